"""Farthest point sampling written as its definition: slow, obviously right, the judge of every other method."""

from __future__ import annotations

import numpy as np


def reference_sampling(points: np.ndarray, n_samples: int, start: int = 0) -> tuple[np.ndarray, np.float32]:
    """Sample ``points`` ((N, 3), rounded to float32) one pick at a time.

    Returns:
        The (K,) int64 rows in greedy order, K < n_samples only when all remaining squared distances are 0, and the
        largest squared distance from a finite point to its nearest sample.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        points = np.asarray(points).astype(np.float32)
        finite = np.isfinite(points).all(axis=1)
        key = np.where(finite, np.float32(np.inf), np.float32(-1))
        picks = [start]
        while True:
            d = points - points[picks[-1]]
            squared = (d[:, 0] * d[:, 0] + d[:, 1] * d[:, 1]) + d[:, 2] * d[:, 2]
            key = np.where(finite, np.minimum(key, squared), key)
            farthest = int(np.argmax(key))  # the first of equals
            if len(picks) == n_samples or key[farthest] == 0:
                return np.array(picks, np.int64), key[farthest]
            picks.append(farthest)
