"""Trilinear interpolation over active sites on the CPU."""

from __future__ import annotations

import numpy as np
from numba import prange
from numpy.typing import NDArray

from ...device import numba_threads
from ..geometry import Triple
from .kernel import parallel_kernel
from .keys import sort_sites


def interpolate(
    features: NDArray[np.float32],
    indices: NDArray[np.int32],
    spatial_shape: Triple,
    batch_size: int,
    positions: NDArray[np.float32],
    batch_index: NDArray[np.int32],
) -> NDArray[np.float32]:
    """Features (M, C) float32 at continuous site positions (M, 3) (z, y, x); see ``gather_features``."""
    keys, rows = sort_sites(indices, spatial_shape)
    out = np.zeros((len(positions), features.shape[1]), dtype=np.float32)
    with numba_threads(None):
        _interpolate(
            features.astype(np.float32, copy=False), keys, rows, spatial_shape, batch_size, positions, batch_index, out
        )
    return out


@parallel_kernel
def _interpolate(
    features: NDArray[np.float32],
    keys: NDArray[np.int64],
    rows: NDArray[np.int32],
    shape: Triple,
    batch_size: int,
    positions: NDArray[np.float32],
    batch_index: NDArray[np.int32],
    out: NDArray[np.float32],
) -> None:
    depth, height, width = shape
    for m in prange(len(positions)):
        z, y, x = positions[m, 0], positions[m, 1], positions[m, 2]
        batch = np.int64(batch_index[m])
        # Also false for NaN: a position that is nowhere near a site keeps its zeros.
        if not (-1 < z < depth and -1 < y < height and -1 < x < width and 0 <= batch < batch_size):
            continue
        z0, y0, x0 = np.int64(np.floor(z)), np.int64(np.floor(y)), np.int64(np.floor(x))
        total = np.float32(0)
        for dz in range(2):
            wz = np.float32(1) - abs(z - np.float32(z0 + dz))
            for dy in range(2):
                wy = np.float32(1) - abs(y - np.float32(y0 + dy))
                if not (0 <= z0 + dz < depth and 0 <= y0 + dy < height):
                    continue
                base = ((batch * depth + z0 + dz) * height + y0 + dy) * width
                cursor = np.searchsorted(keys, base + max(x0, 0))
                for dx in range(2):
                    weight = wz * wy * (np.float32(1) - abs(x - np.float32(x0 + dx)))
                    if not (0 <= x0 + dx < width and weight > 0):
                        continue
                    if cursor < len(keys) and keys[cursor] < base + x0 + dx:
                        cursor += 1
                    if cursor < len(keys) and keys[cursor] == base + x0 + dx:
                        total += weight
                        row = rows[cursor]
                        for c in range(out.shape[1]):
                            out[m, c] += weight * features[row, c]
        if total > 0:
            for c in range(out.shape[1]):
                out[m, c] /= total
