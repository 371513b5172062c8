"""Farthest point sampling by one pass over all points a sample: the baseline."""

# mypy: disallow-untyped-defs=False, warn-return-any=False
from __future__ import annotations

import numpy as np
from numba import njit

from ..engine import RawSample
from .arithmetic import INFINITE, NEVER, as_bits, as_float, update_run
from .workspace import Workspace

RUN = 64  # points a run: four 16-lane vectors


def sample_brute(points: np.ndarray, n_samples: int, start: int, workspace: Workspace) -> RawSample:
    """Sample ``points`` (N, 3) float32 on one thread; see `Engine.run`."""
    runs = -(-len(points) // RUN)
    indices = np.empty(n_samples, np.int64)
    count, coverage = _sample(
        points.reshape(-1),
        start,
        workspace.array("runs", runs * RUN * 4, np.int32),
        workspace.array("run keys", runs, np.int32),
        indices,
    )
    return RawSample(indices[:count], coverage, "brute", rounds=count, voxels=0, skip_rate=0.0, threads=1)


@njit(cache=True, nogil=True)
def _sample(xyz, start, blocks, keys, indices):
    _pack(xyz, blocks)
    row = start
    count = 0
    while True:
        indices[count] = row
        count += 1
        i = np.uintp(3 * row)
        x, y, z = xyz[i], xyz[i + np.uintp(1)], xyz[i + np.uintp(2)]
        largest = np.int32(0)
        for run in range(keys.shape[0]):
            key = update_run(blocks, np.uintp(run) * np.uintp(4 * RUN), RUN, x, y, z)
            keys[np.uintp(run)] = key
            largest = max(largest, key)
        if count == indices.shape[0] or largest == 0:
            return count, as_float(largest)
        run = 0
        while keys[run] != largest:
            run += 1
        row = run * RUN
        while blocks[4 * RUN * run + 3 * RUN + row - run * RUN] != largest:
            row += 1


@njit
def _pack(xyz, blocks):
    n = xyz.shape[0] // 3
    for slot in range(blocks.shape[0] // 4):
        base = 4 * (slot // RUN) * RUN + slot % RUN
        finite = slot < n
        for axis in range(3):
            v = xyz[3 * slot + axis] if slot < n else np.float32(0)
            finite = finite and v - v == np.float32(0)
            blocks[base + axis * RUN] = as_bits(v)
        blocks[base + 3 * RUN] = INFINITE if finite else NEVER
