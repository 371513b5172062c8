"""Points to voxels on the CPU: one pass in row order through a hash table of voxel keys."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...device.jit import cached_jit
from ...errors import InputError
from ..geometry import Triple
from ..voxel_grid import VoxelGrid, bad_features
from .keys import decode

_DROPPED = -2  # in the table: a voxel that came after the frame's cap was reached


def voxelize(
    points: NDArray[np.float32],
    features: NDArray[np.float32],
    frame_starts: tuple[int, ...],
    grid: VoxelGrid,
    max_voxels: int,
    max_points_per_voxel: int,
) -> tuple[NDArray[np.float32], NDArray[np.int32], dict[str, int]]:
    """See ``radius_fps_ros.sparse.voxelize``; the arrays are already checked. Returns features, indices, counts."""
    frames = len(frame_starts) - 1
    capacity = min(len(points), frames * max_voxels)
    slots = 1 << max(4, (2 * len(points)).bit_length())
    table_keys = np.full(slots, -1, dtype=np.int64)
    table_voxels = np.empty(slots, dtype=np.int32)
    keys = np.empty(capacity, dtype=np.int64)
    means = np.empty((capacity, features.shape[1]), dtype=np.float32)
    invalid, outside, not_finite, voxels, dropped_voxels, over_voxels, over_points = _collect(
        points,
        features,
        np.asarray(frame_starts, dtype=np.int64),
        np.asarray((grid.minimum, grid.maximum, grid.voxel_size), dtype=np.float32),
        grid.cells,
        grid.spatial_shape,
        max_voxels,
        max_points_per_voxel,
        table_keys,
        table_voxels,
        keys,
        means,
        np.empty(capacity, dtype=np.int32),
    )
    if not_finite:
        raise InputError(bad_features(not_finite, len(points) - invalid - outside))
    order = np.argsort(keys[:voxels])
    indices = np.empty((voxels, 4), dtype=np.int32)
    decode(keys[order], grid.spatial_shape, indices)
    counts = {
        "points": len(points),
        "invalid_points": invalid,
        "out_of_range_points": outside,
        "voxels": voxels,
        "dropped_voxels": dropped_voxels,
        "over_voxel_cap_points": over_voxels,
        "over_point_cap_points": over_points,
    }
    return means[order], indices, counts


@cached_jit(__file__, error_model="numpy")
def _collect(
    points: NDArray[np.float32],
    features: NDArray[np.float32],
    frame_starts: NDArray[np.int64],
    bounds: NDArray[np.float32],
    cells: Triple,
    shape: Triple,
    max_voxels: int,
    max_points: int,
    table_keys: NDArray[np.int64],
    table_voxels: NDArray[np.int32],
    keys: NDArray[np.int64],
    means: NDArray[np.float32],
    counts: NDArray[np.int32],
) -> tuple[int, int, int, int, int, int, int]:
    channels = features.shape[1]
    mask = np.uint64(len(table_keys) - 1)
    invalid = outside = not_finite = voxels = dropped_voxels = over_voxels = over_points = 0
    cell = np.empty(3, dtype=np.int64)
    for frame in range(len(frame_starts) - 1):
        frame_end = voxels + max_voxels
        for i in range(frame_starts[frame], frame_starts[frame + 1]):
            inside = finite = True
            for a in range(3):
                value = points[i, a]
                finite = finite and np.isfinite(value)
                inside = inside and value >= bounds[0, a] and value < bounds[1, a]
            if not inside:
                outside += finite
                invalid += not finite
                continue
            for a in range(3):
                # Rounding may lift a point just below the maximum to the next cell; it belongs to the last one.
                quotient = np.floor((points[i, a] - bounds[0, a]) / bounds[2, a])
                cell[a] = min(np.int64(quotient), cells[a] - 1)
            finite = True
            for c in range(channels):
                finite = finite and np.isfinite(features[i, c])
            not_finite += not finite
            key = ((np.int64(frame) * shape[0] + cell[2]) * shape[1] + cell[1]) * shape[2] + cell[0]
            slot = (np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20) & mask
            while table_keys[slot] != -1 and table_keys[slot] != key:
                slot = (slot + np.uint64(1)) & mask
            if table_keys[slot] == -1:
                table_keys[slot] = key
                if voxels == frame_end:
                    table_voxels[slot] = _DROPPED
                    dropped_voxels += 1
                else:
                    table_voxels[slot] = voxels
                    keys[voxels] = key
                    counts[voxels] = 0
                    means[voxels] = np.float32(0)
                    voxels += 1
            voxel = table_voxels[slot]
            if voxel == _DROPPED:
                over_voxels += 1
            elif counts[voxel] == max_points:
                over_points += 1
            else:
                counts[voxel] += 1
                for c in range(channels):
                    means[voxel, c] += features[i, c]
    for voxel in range(voxels):
        for c in range(channels):
            means[voxel, c] /= np.float32(counts[voxel])
    return invalid, outside, not_finite, voxels, dropped_voxels, over_voxels, over_points
