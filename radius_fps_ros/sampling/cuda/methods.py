"""How each method launches its kernels, on CuPy's current stream. Nothing here waits for the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...device import is_cupy_array
from .kernels import Kernels
from .layout import THREADS, max_voxel_cells, shape_for, tile_blocks, voxels_per_warp

CURVE_BITS = 8  # of each coordinate
SORT_PASSES = 3  # of 8 bits each: codes have up to 24
NULL = np.uintp(0)

Arrays = dict[str, Any]


def brute(kernels: Kernels, points: Any, n_samples: int, start: Any, blocks: int, arrays: Arrays) -> None:
    """Two launches a sample."""
    n, threads = len(points), 256
    keys, indices, summary = arrays["keys"], arrays["indices"], arrays["summary"]
    grid = -(-n // threads)
    kernels.brute_start(grid, threads, points, np.uint32(n), *_start(start), keys, indices, summary)
    for _ in range(n_samples):
        kernels.brute_update(grid, threads, points, np.uint32(n), keys, indices, summary)
        kernels.brute_choose(1, 1024, keys, np.uint32(n), np.uint32(n_samples), indices, summary)


def single_block(kernels: Kernels, points: Any, n_samples: int, start: Any, blocks: int, arrays: Arrays) -> None:
    """One block does it all."""
    shape = shape_for("single_block", len(points))
    sizes = (np.uint32(len(points)), *_start(start), np.uint32(n_samples))
    keys = () if shape.held else (arrays["keys"],)
    getattr(kernels, shape.kernel)(1, shape.threads, points, *sizes, arrays["indices"], arrays["summary"], *keys)


def cluster(kernels: Kernels, points: Any, n_samples: int, start: Any, blocks: int, arrays: Arrays) -> None:
    """One cluster of blocks does it all."""
    shape = shape_for("cluster", len(points))
    sizes = (np.uint32(len(points)), *_start(start), np.uint32(n_samples))
    getattr(kernels, shape.kernel)(shape.blocks, shape.threads, points, *sizes, arrays["indices"], arrays["summary"])


def radius(kernels: Kernels, points: Any, n_samples: int, start: Any, blocks: int, arrays: Arrays) -> None:
    """Sort by spherical voxels, then one persistent kernel."""
    n = len(points)
    _sort(kernels.order_spherical, points, max_voxel_cells(n), blocks, arrays)
    kernels.radius(
        blocks,
        THREADS,
        points,
        np.uint32(n),
        *_start(start),
        np.uint32(n_samples),
        arrays["usable"],
        arrays["xyz"],
        arrays["keys"],
        arrays["items"],
        arrays["voxel begin"],
        arrays["voxel size"],
        arrays["voxel boxes"],
        arrays["voxel ranks"],
        np.uint32(voxels_per_warp(n, blocks)),
        arrays["voxel count"],
        arrays["arrivals"],
        arrays["best mail"],
        arrays["indices"],
        arrays["summary"],
    )


def lookahead(kernels: Kernels, points: Any, n_samples: int, start: Any, blocks: int, arrays: Arrays) -> None:
    """Sort along a Hilbert curve, then one persistent kernel."""
    _sort(kernels.order_hilbert, points, CURVE_BITS, blocks, arrays)
    kernels.lookahead(
        blocks,
        THREADS,
        points,
        np.uint32(len(points)),
        *_start(start),
        np.uint32(n_samples),
        arrays["usable"],
        arrays["xyz"],
        arrays["keys"],
        arrays["items"],
        arrays["tile boxes"],
        arrays["tile keys"],
        arrays["group boxes"],
        arrays["offers"],
        arrays["count mail"],
        arrays["sample mail"],
        arrays["arrivals"],
        arrays["drawn"],
        arrays["history"],
        arrays["indices"],
        arrays["summary"],
    )


METHODS: dict[str, Callable[[Kernels, Any, int, Any, int, Arrays], None]] = {
    "brute": brute,
    "single_block": single_block,
    "cluster": cluster,
    "radius": radius,
    "lookahead": lookahead,
}


def _start(start: Any) -> tuple[Any, np.uint32]:
    """The two arguments of start.cuh: where the row is on the device, or null and the row."""
    return (start, np.uint32(0)) if is_cupy_array(start) else (NULL, np.uint32(start))


def _sort(order: Any, points: Any, resolution: int, blocks: int, arrays: Arrays) -> None:
    arrays["mail"].data.memset_async(0, arrays["mail"].nbytes)
    order(
        min(blocks, tile_blocks(len(points))),
        THREADS,
        points,
        np.uint32(len(points)),
        np.uint32(resolution),
        np.int32(SORT_PASSES),
        arrays["usable"],
        arrays["items"],
        arrays["xyz"],  # scratch until it is filled
        arrays["digit counts"],
        arrays["order arrivals"],
        arrays["xyz"],
        arrays["keys"],
        arrays["tile boxes"],
        arrays["tile keys"],
    )
