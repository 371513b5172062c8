"""Points to voxels on CUDA: a stable sort by voxel and prefix sums, all sizes on the device."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import numpy as np

from ...errors import InputError
from ..voxel_grid import VoxelGrid, bad_features
from .kernels import KERNEL_VOXELIZE, launch, multiprocessors
from .rulebook import SiteList

# In the order of voxelize.cu.
COUNTERS = (
    "invalid_points",
    "out_of_range_points",
    "inside_points",
    "bad_features",
    "dropped_voxels",
    "over_voxel_cap_points",
    "over_point_cap_points",
    "bad_means",
)
_INTERNAL = ("inside_points", "bad_features", "bad_means")  # not among a tensor's stats
_THREADS, _FIND_THREADS = 512, 1024  # of voxelize.cu
_DIGIT_BITS = 7
_DIGITS = 2**_DIGIT_BITS
_POINT_BYTES = 16
_GRID = np.dtype(
    [
        ("minimum", np.float32, 3),
        ("maximum", np.float32, 3),
        ("size", np.float32, 3),
        ("cells", np.int32, 3),
        ("shape", np.int32, 3),
    ]
)


class Voxelizer:
    """Voxelizes frame after frame on the current device without a wait or an allocation.

    Attributes:
        capacity: points that a frame may have.
    """

    def __init__(
        self,
        capacity: int,
        channels: int,
        grid: VoxelGrid,
        max_voxels: int,
        max_points_per_voxel: int,
        frames: int = 1,
    ) -> None:
        """Take the memory that is worked in: about 33 bytes a point; see ``radius_fps_ros.sparse.voxelize``."""
        import cupy

        self.capacity, self._channels, self._frames = capacity, channels, frames
        self._max_voxels = min(max_voxels, np.iinfo(np.int32).max)
        self._max_points = min(max_points_per_voxel, np.iinfo(np.int32).max)
        corners = (grid.minimum, grid.maximum, grid.voxel_size)
        self._grid = np.array((*corners, grid.cells, grid.spatial_shape), dtype=_GRID)
        self._passes = max(1, -(-(frames * prod(grid.spatial_shape) - 1).bit_length() // _DIGIT_BITS))
        self._sort_blocks = multiprocessors()
        self._blocks = max(1, min(4 * multiprocessors(), -(-capacity // _THREADS)))
        self._points = cupy.empty((2, max(1, capacity), _POINT_BYTES), dtype=cupy.uint8)
        self._arrivals = cupy.empty(max(1, -(-capacity // 32)), dtype=cupy.uint32)
        self._digits = cupy.empty((self._passes, self._sort_blocks, _DIGITS), dtype=cupy.uint32)
        self._cuts = cupy.empty(frames, dtype=cupy.int32)
        self._kept = cupy.empty(self._blocks, dtype=cupy.int32)

    def enqueue(
        self,
        points: Any,
        features: Any,
        voxels: SiteList,
        means: Any,
        required: Any,
        counters: Any,
        frame_starts: Any = None,
    ) -> None:
        """Queue the voxelization of N points, at most ``capacity``, on the current stream.

        Args:
            points, features: (N, 3) and (N, C) float32, contiguous.
            voxels: receives the sites, their keys unless ``None``, and in ``count`` how many; no more than ``limit``.
            means: (limit, width) float32 or float16 of the voxels, channels beyond C zero.
            required: (1,) int32, receives the number of voxels that there are within the cap.
            counters: (len(COUNTERS),) int32, zero before.
            frame_starts: (frames + 1,) int32 first rows of the frames; ``None`` for a single frame.
        """
        n, half = len(points), int(means.dtype == np.float16)
        inside = counters[COUNTERS.index("inside_points") :]

        def run(name: str, *arguments: Any, blocks: int = self._blocks, threads: int = _THREADS) -> None:
            launch(KERNEL_VOXELIZE, name, (blocks,), arguments, threads=threads, HALF=half)

        sorting = {"blocks": self._sort_blocks}
        source, target = self._points
        work = (self._arrivals, self._passes, self._digits, counters)
        frames = (frame_starts, self._frames, self._grid)
        run("locate_points", points, features, self._channels, n, *frames, source, *work, **sorting)
        for i in range(self._passes):
            following = self._digits[i + 1] if i + 1 < self._passes else None
            count = inside if i else None
            digits = (i * _DIGIT_BITS, self._digits[i])
            run("sort_pass", source, count, n, *digits, target, inside, following, **sorting)
            source, target = target, source
        run("mark_arrivals", source, inside, self._arrivals)
        marked = (self._arrivals, n, frame_starts, self._max_voxels, self._cuts)
        run("find_cuts", *marked, blocks=self._frames, threads=_FIND_THREADS)
        kept = (source, inside, self._cuts, self._frames, self._grid, self._kept)
        run("count_kept", *kept, counters)
        made = (voxels.sites, voxels.keys, means, means.shape[1], voxels.limit, voxels.count, required, counters)
        run("emit_voxels", *kept, features, self._channels, self._max_points, *made)


def read_counters(values: Iterable[int]) -> dict[str, int]:
    """The values of `COUNTERS` by name.

    Raises:
        InputError: a feature inside the range is not finite.
    """
    counts = dict(zip(COUNTERS, (int(value) for value in values), strict=True))
    if counts["bad_features"]:
        raise InputError(bad_features(counts["bad_features"], counts["inside_points"]))
    return counts


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
    capacity = min(n, frames * max_voxels)
    status = cupy.zeros(len(COUNTERS) + 2, dtype=cupy.int32)
    counters, count, required = status[:-2], status[-2:-1], status[-1:]
    sites = cupy.empty((capacity, 4), dtype=cupy.int32)
    means = cupy.empty((capacity, channels), dtype=cupy.float32)
    voxelizer = Voxelizer(n, channels, grid, max_voxels, max_points_per_voxel, frames)
    starts = cupy.asarray(frame_starts, dtype=cupy.int32) if frames > 1 else None
    voxelizer.enqueue(points, features, SiteList(sites, None, capacity, count), means, required, counters, starts)
    values = cupy.asnumpy(status)
    voxels = int(values[-1])
    counts = read_counters(values[:-2])
    kept = {name: counts[name] for name in COUNTERS if name not in _INTERNAL}
    return means[:voxels], sites[:voxels], {"points": n, "voxels": voxels, **kept}
