"""The CUDA sources of this package, and how the host launches them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ...device import KernelFile
from ..geometry import ConvGeometry, Triple
from .tiles import GEMM_TILES, WARPGROUP_TILES

_PACKAGE = "radius_fps_ros.sparse.cuda"
_TYPES = ((("HALF", 0),), (("HALF", 1),))


# (log2 of the pieces of an input row, output channels) of the published network, in both types: the variants that are
# compiled in tests. Others are compiled when they are first used.
_NETWORK = (
    *((1, pieces, out) for pieces, out in ((0, 16), (1, 16), (1, 32), (2, 32), (2, 64), (3, 64), (3, 128), (4, 128))),
    *((0, pieces, out) for pieces, out in ((0, 16), (2, 16), (2, 32), (3, 32), (3, 64), (4, 64), (4, 128), (5, 128))),
)

KERNEL_RULEBOOK = KernelFile(_PACKAGE, "rulebook.cu")
KERNEL_VOXELIZE = KernelFile(_PACKAGE, "voxelize.cu", variants=_TYPES)
KERNEL_NATIVE = KernelFile(_PACKAGE, "native.cu", variants=_TYPES)
KERNEL_INTERPOLATE = KernelFile(_PACKAGE, "interpolate.cu", variants=_TYPES)
KERNEL_FRAME = KernelFile(
    _PACKAGE,
    "frame.cu",
    variants=tuple((("HALF_IN", half_in), ("HALF_OUT", half_out)) for half_in in (0, 1) for half_out in (0, 1)),
)
KERNEL_IMPLICIT_GEMM = KernelFile(
    _PACKAGE,
    "implicit_gemm.cu",
    variants=tuple(
        tuple(GEMM_TILES[half][out].macros(bool(half), pieces, out).items()) for half, pieces, out in _NETWORK
    ),
)
KERNEL_WARPGROUP_GEMM = KernelFile(
    _PACKAGE,
    "warpgroup_gemm.cu",
    variants=tuple(
        tuple(tile.macros(False, pieces, out).items())
        for half, pieces, out in _NETWORK
        for tile in WARPGROUP_TILES
        if not half and out >= tile.columns
    ),
    architecture="sm_90a",
)
KERNELS = (
    KERNEL_RULEBOOK,
    KERNEL_VOXELIZE,
    KERNEL_NATIVE,
    KERNEL_INTERPOLATE,
    KERNEL_FRAME,
    KERNEL_IMPLICIT_GEMM,
    KERNEL_WARPGROUP_GEMM,
)

THREADS = 256
NULL = np.uint64(0)

_GEOMETRY = np.dtype(
    [(name, np.int32, 3) for name in ("kernel", "stride", "padding", "dilation", "in_shape", "out_shape")]
)
_TRIVIAL = ConvGeometry.make(1)


def geometry_argument(in_shape: Triple, geometry: ConvGeometry = _TRIVIAL) -> Any:
    """The ``Geometry`` of ``sites.cuh``, to be passed by value."""
    values = (geometry.kernel_size, geometry.stride, geometry.padding, geometry.dilation)
    return np.array((*values, in_shape, geometry.output_shape(in_shape)), dtype=_GEOMETRY)


def blocks(items: int, threads: int = THREADS) -> int:
    """Blocks of ``threads`` for ``items``; at least one, because an empty grid cannot be launched."""
    return max(1, -(-items // threads))


def aligned(array: Any) -> Any:
    """The array, contiguous and at an address that 16-byte loads accept; copied only when it is not."""
    import cupy

    array = cupy.ascontiguousarray(array)
    return array if array.data.ptr % 16 == 0 else array.copy()


def launch(
    kernel: KernelFile,
    name: str,
    grid: tuple[int, ...],
    arguments: tuple[Any, ...],
    *,
    threads: int = THREADS,
    shared: int = 0,
    **macros: int,
) -> None:
    """Launch ``name`` of ``kernel`` on the current stream; Python integers go as int32, ``None`` as a null pointer."""
    function = find_function(kernel, name, shared=shared, **macros)
    function(grid, (threads,), kernel_arguments(arguments), shared_mem=shared)


def find_function(kernel: KernelFile, name: str, *, shared: int = 0, **macros: int) -> Any:
    """The compiled function on the current device, allowed ``shared`` bytes of dynamic shared memory."""
    import cupy

    return _function(kernel, name, tuple(sorted(macros.items())), shared, cupy.cuda.Device().id)


def kernel_arguments(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Python integers as int32 (CuPy would pass int64) and ``None`` as a null pointer."""
    return tuple(np.int32(a) if type(a) is int else NULL if a is None else a for a in arguments)


@functools.cache
def _function(kernel: KernelFile, name: str, macros: tuple[tuple[str, int], ...], shared: int, device: int) -> Any:
    function = kernel.load(**dict(macros)).get_function(name)
    if shared > 48 * 1024:  # more than every device grants unasked
        function.max_dynamic_shared_size_bytes = max(shared, function.max_dynamic_shared_size_bytes)
    return function


def shared_limit() -> int:
    """Shared memory that a block may have on the current device, in bytes."""
    import cupy

    return _attribute(cupy.cuda.Device().id, "MaxSharedMemoryPerBlockOptin")


def multiprocessors() -> int:
    """Multiprocessors of the current device."""
    import cupy

    return _attribute(cupy.cuda.Device().id, "MultiProcessorCount")


@functools.cache
def _attribute(device: int, name: str) -> int:
    import cupy

    return int(cupy.cuda.Device(device).attributes[name])


def compute_capability() -> int:
    """Of the current device: 90 for 9.0."""
    import cupy

    return int(cupy.cuda.Device().compute_capability)
