"""How each method launches its kernels, on CuPy's current stream. Nothing here waits for the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...device import is_cupy_array
from .kernels import Kernels
from .layout import (
    BEST_WORDS,
    COUNT_WORDS,
    COUNTER_WORDS,
    OFFER_WORDS,
    SAMPLE_WORDS,
    SUMMARY_WORDS,
    THREADS,
    max_voxel_cells,
    shape_for,
    tile_blocks,
    voxels_per_warp,
)

CURVE_BITS = 8  # of each coordinate
SORT_PASSES = 3  # of 8 bits each: codes have up to 24
NULL = np.uintp(0)

Arrays = dict[str, Any]


def brute(kernels: Kernels, points: Any, n_samples: int, start: Any, blocks: int, arrays: Arrays) -> None:
    """Two launches a sample."""
    n, threads = len(points), 256
    keys, indices, summary = arrays["keys"], arrays["indices"], arrays["mail"]
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
    getattr(kernels, shape.kernel)(1, shape.threads, points, *sizes, arrays["indices"], arrays["mail"], *keys)


def cluster(kernels: Kernels, points: Any, n_samples: int, start: Any, blocks: int, arrays: Arrays) -> None:
    """One cluster of blocks does it all."""
    shape = shape_for("cluster", len(points))
    sizes = (np.uint32(len(points)), *_start(start), np.uint32(n_samples))
    getattr(kernels, shape.kernel)(shape.blocks, shape.threads, points, *sizes, arrays["indices"], arrays["mail"])


def radius(kernels: Kernels, points: Any, n_samples: int, start: Any, blocks: int, arrays: Arrays) -> None:
    """Sort by spherical voxels, then one persistent kernel."""
    n = len(points)
    summary, counters, best_mail = _zeroed(arrays["mail"], SUMMARY_WORDS, COUNTER_WORDS, BEST_WORDS * blocks)
    usable, order_arrivals, arrivals, voxel_count = (counters[i:] for i in range(4))
    _sort(kernels.order_spherical, points, max_voxel_cells(n), blocks, arrays, usable, order_arrivals)
    kernels.radius(
        blocks,
        THREADS,
        points,
        np.uint32(n),
        *_start(start),
        np.uint32(n_samples),
        usable,
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


def lookahead(kernels: Kernels, points: Any, n_samples: int, start: Any, blocks: int, arrays: Arrays) -> None:
    """Sort along a Hilbert curve, then one persistent kernel."""
    sizes = (SUMMARY_WORDS, COUNTER_WORDS, OFFER_WORDS * blocks, COUNT_WORDS * blocks, SAMPLE_WORDS * blocks)
    summary, counters, offers, count_mail, sample_mail = _zeroed(arrays["mail"], *sizes)
    usable, order_arrivals, arrivals = (counters[i:] for i in range(3))
    _sort(kernels.order_hilbert, points, CURVE_BITS, blocks, arrays, usable, order_arrivals)
    kernels.lookahead(
        blocks,
        THREADS,
        points,
        np.uint32(len(points)),
        *_start(start),
        np.uint32(n_samples),
        usable,
        arrays["xyz"],
        arrays["keys"],
        arrays["items"],
        arrays["tile boxes"],
        arrays["tile keys"],
        arrays["group boxes"],
        offers,
        count_mail,
        sample_mail,
        arrivals,
        arrays["drawn"],
        arrays["history"],
        arrays["indices"],
        summary,
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


def _sort(order: Any, points: Any, resolution: int, blocks: int, arrays: Arrays, usable: Any, arrivals: Any) -> None:
    order(
        min(blocks, tile_blocks(len(points))),
        THREADS,
        points,
        np.uint32(len(points)),
        np.uint32(resolution),
        np.int32(SORT_PASSES),
        usable,
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
