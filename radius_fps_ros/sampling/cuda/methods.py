"""How each method launches its kernels, on CuPy's current stream. Nothing here waits for the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .kernels import Kernels
from .layout import (
    BEST_WORDS,
    COUNT_WORDS,
    OFFER_WORDS,
    SAMPLE_WORDS,
    SUMMARY_WORDS,
    THREADS,
    groups_for,
    max_voxel_cells,
    tiles_for,
    voxels_per_warp,
)

CURVE_BITS = 8  # of each coordinate
SORT_PASSES = 3  # of 8 bits each: codes have up to 24

Arrays = dict[str, Any]


def brute(kernels: Kernels, points: Any, n_samples: int, start: int, blocks: int, arrays: Arrays) -> None:
    """Two launches a sample."""
    n, threads = len(points), 256
    keys, indices, summary = arrays["keys"], arrays["indices"], arrays["mail"]
    grid = -(-n // threads)
    kernels.brute_start(grid, threads, points, np.uint32(n), np.uint32(start), keys, indices, summary)
    for _ in range(n_samples):
        kernels.brute_update(grid, threads, points, np.uint32(n), keys, indices, summary)
        kernels.brute_choose(1, 1024, keys, np.uint32(n), np.uint32(n_samples), indices, summary)


def single_block(kernels: Kernels, points: Any, n_samples: int, start: int, blocks: int, arrays: Arrays) -> None:
    """One block does it all."""
    sizes = (np.uint32(len(points)), np.uint32(start), np.uint32(n_samples))
    kernels.single_block(1, 1024, points, *sizes, arrays["keys"], arrays["indices"], arrays["mail"])


def radius(kernels: Kernels, points: Any, n_samples: int, start: int, blocks: int, arrays: Arrays) -> None:
    """Sort by spherical voxels, then one persistent kernel."""
    n = len(points)
    summary, voxel_count, arrivals, order_arrivals, best_mail = _zeroed(
        arrays["mail"], SUMMARY_WORDS, 1, 1, 1, BEST_WORDS * blocks
    )
    _sort(kernels.order_spherical, points, max_voxel_cells(n), blocks, arrays, order_arrivals)
    kernels.radius(
        blocks,
        THREADS,
        points,
        np.uint32(n),
        np.uint32(start),
        np.uint32(n_samples),
        arrays["xyz"],
        arrays["keys"],
        arrays["items"],
        arrays["voxel begin"],
        arrays["voxel size"],
        arrays["voxel boxes"],
        arrays["voxel ranks"],
        np.uint32(voxels_per_warp(n, blocks)),
        voxel_count,
        arrivals,
        best_mail,
        arrays["indices"],
        summary,
    )


def lookahead(kernels: Kernels, points: Any, n_samples: int, start: int, blocks: int, arrays: Arrays) -> None:
    """Sort along a Hilbert curve, then one persistent kernel."""
    n = len(points)
    sizes = (SUMMARY_WORDS, 1, 1, 1, OFFER_WORDS * blocks, COUNT_WORDS * blocks, SAMPLE_WORDS * blocks)
    summary, _, arrivals, order_arrivals, offers, count_mail, sample_mail = _zeroed(arrays["mail"], *sizes)
    _sort(kernels.order_hilbert, points, CURVE_BITS, blocks, arrays, order_arrivals)
    group_tiles, groups = groups_for(n, blocks)
    kernels.lookahead(
        blocks,
        THREADS,
        points,
        np.uint32(start),
        np.uint32(n_samples),
        arrays["xyz"],
        arrays["keys"],
        arrays["items"],
        arrays["tile boxes"],
        arrays["tile keys"],
        np.uint32(tiles_for(n)),
        arrays["group boxes"],
        np.uint32(groups),
        np.uint32(group_tiles),
        offers,
        count_mail,
        sample_mail,
        arrivals,
        arrays["drawn"],
        arrays["history"],
        arrays["indices"],
        summary,
    )


METHODS: dict[str, Callable[[Kernels, Any, int, int, int, Arrays], None]] = {
    "brute": brute,
    "single_block": single_block,
    "radius": radius,
    "lookahead": lookahead,
}


def _sort(order: Any, points: Any, resolution: int, blocks: int, arrays: Arrays, arrivals: Any) -> None:
    order(
        blocks,
        THREADS,
        points,
        np.uint32(len(points)),
        np.uint32(resolution),
        np.int32(SORT_PASSES),
        arrays["items"],
        arrays["xyz"],  # scratch until it is filled
        arrays["digit counts"],
        arrivals,
        arrays["xyz"],
        arrays["keys"],
        arrays["tile boxes"],
        arrays["tile keys"],
    )


def _zeroed(memory: Any, *sizes: int) -> list[Any]:
    """Set ``memory`` to 0 and cut it into parts."""
    memory.data.memset_async(0, memory.nbytes)
    ends = np.cumsum(sizes)
    return [memory[end - size : end] for size, end in zip(sizes, ends, strict=True)]
