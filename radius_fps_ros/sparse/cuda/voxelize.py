"""Points to voxels on CUDA: one stable sort of voxel keys, the rest by prefix sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import InputError
from ..voxel_grid import VoxelGrid, bad_features
from .kernels import KERNEL_VOXELIZE, blocks, launch

_COUNTERS = (
    "invalid_points",
    "out_of_range_points",
    "bad_features",
    "voxels",
    "dropped_voxels",
    "over_voxel_cap_points",
    "over_point_cap_points",
)
_GRID = np.dtype(
    [
        ("minimum", np.float32, 3),
        ("maximum", np.float32, 3),
        ("size", np.float32, 3),
        ("cells", np.int32, 3),
        ("shape", np.int32, 3),
    ]
)


def voxelize(
    points: Any,
    features: Any,
    frame_starts: tuple[int, ...],
    grid: VoxelGrid,
    max_voxels: int,
    max_points_per_voxel: int,
) -> tuple[Any, Any, dict[str, int]]:
    """See ``radius_fps_ros.sparse.voxelize``; the arrays are already checked. Returns features, indices, counts.

    Counts stay on the device until the end, where they are read once.
    """
    import cupy

    n, channels = features.shape
    frames = len(frame_starts) - 1
    argument = np.array((grid.minimum, grid.maximum, grid.voxel_size, grid.cells, grid.spatial_shape), dtype=_GRID)
    starts = cupy.asarray(frame_starts, dtype=cupy.int32)
    counters = cupy.zeros(len(_COUNTERS), dtype=cupy.int32)
    keys = cupy.empty(n, dtype=cupy.int64)
    arrivals, kept = cupy.empty(n, dtype=cupy.int32), cupy.empty(n, dtype=cupy.int32)
    capacity = min(n, frames * max_voxels)
    sites = cupy.empty((capacity, 4), dtype=cupy.int32)
    means = cupy.empty((capacity, channels), dtype=cupy.float32)

    def run(name: str, *arguments: Any) -> None:
        launch(KERNEL_VOXELIZE, name, (blocks(n),), arguments)

    run("locate_points", points, features, channels, n, starts, frames, argument, keys, counters)
    order = cupy.argsort(keys)
    keys = keys[order]
    run("mark_arrivals", keys, order, n, arrivals)
    arrived = cupy.cumsum(arrivals, dtype=cupy.int32)
    cap = min(max_voxels, n)
    run("keep_voxels", keys, order, n, starts, argument, arrived, cap, kept, counters)
    place = cupy.cumsum(kept, dtype=cupy.int32)
    most = min(max_points_per_voxel, n)
    run("average_points", keys, order, n, argument, kept, place, features, channels, most, sites, means, counters)

    counts = dict(zip(_COUNTERS, (int(v) for v in cupy.asnumpy(counters)), strict=True))
    bad = counts.pop("bad_features")
    if bad:
        inside = n - counts["invalid_points"] - counts["out_of_range_points"]
        raise InputError(bad_features(bad, inside))
    voxels = counts["voxels"]
    return means[:voxels], sites[:voxels], {"points": n, **counts}
