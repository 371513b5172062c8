"""The CUDA sources of this package, the structures they take, and how the host launches them."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from ...device import KernelFile
from ...errors import BackendError

_PACKAGE = "radius_fps_ros.hausdorff.cuda"

KERNEL_TREE = KernelFile(_PACKAGE, "tree.cu")
KERNEL_WAVEFRONT = KernelFile(_PACKAGE, "wavefront.cu")
KERNELS = (KERNEL_TREE, KERNEL_WAVEFRONT)

_POINTER = np.uint64
FRAME = np.dtype([("origin", np.float64, 3), ("scale", np.float64)], align=True)
MESH = np.dtype([("faces", _POINTER), ("vertices", _POINTER), ("count", np.int32)], align=True)
TARGET = np.dtype(
    [("mesh", MESH), ("frame", FRAME), ("nodes", _POINTER), ("rows", _POINTER), ("first_leaf", np.int32)], align=True
)
WORKLIST = np.dtype([("memory", _POINTER), ("capacity", np.int32)], align=True)
PRECISION = np.dtype([("tiny", np.float32), ("blur", np.float32), ("ignore", np.float32)], align=True)
SEARCH = np.dtype(
    [
        ("target", TARGET),
        ("source", MESH),
        ("lists", WORKLIST, 2),
        ("precision", PRECISION),
        ("cut", np.float64),
        ("slack", np.float64),
        ("threshold", np.float64),
        *((name, _POINTER) for name in ("state", "group_row", "roots", "root_vertices", "vertex_distance")),
        *((name, _POINTER) for name in ("vertex_row", "new_distance", "new_row", "order")),
    ],
    align=True,
)
CHAMPION = np.dtype(
    [("key", np.uint64), ("rank", np.uint64), ("point", np.float64, 3), ("lock", np.int32), ("unused", np.int32)],
    align=True,
)
STATE = np.dtype(
    [
        ("farthest", CHAMPION),
        ("nearest", CHAMPION),
        *((name, np.float64) for name in ("closed", "top", "unseeded", "certified")),  # not negative
        ("triangles", np.uint64),
        *((name, np.int32) for name in ("roots", "vertices", "reading", "total", "written", "list", "paused")),
        *((name, np.uint32) for name in ("arrived", "passed")),
    ],
    align=True,
)

# As in the sources.
NODE_BYTES, ROW_BYTES, TRIANGLE_BYTES, BOUND_OFFSET, GROUP = 96, 48, 97, 72, 16

THREADS = 64  # of a block
TOGETHER = 384  # of a block, one on each multiprocessor, where all run at once: as in wavefront.cu
_BLOCKS = 16  # a multiprocessor


class Parameters:
    """What a kernel takes: structures as 0-dimensional arrays, device arrays, integers (int32) and floats (float64).

    The addresses are looked up once; integers may change between launches through ``integers``.
    """

    def __init__(self, *values: Any) -> None:
        self.integers: list[ctypes.c_int32] = []
        self._kept = values
        self._values = [self._stored(value) for value in values]
        self._pointers = (ctypes.c_void_p * len(values))(*map(self._address, self._values))

    def _stored(self, value: Any) -> Any:
        if isinstance(value, int):
            self.integers.append(ctypes.c_int32(value))
            return self.integers[-1]
        if isinstance(value, float):
            return ctypes.c_double(value)
        return value if isinstance(value, np.ndarray) else ctypes.c_uint64(value.data.ptr)

    @staticmethod
    def _address(value: Any) -> int:
        return int(value.ctypes.data if isinstance(value, np.ndarray) else ctypes.addressof(value))

    @property
    def address(self) -> int:
        """What the driver wants: the address of an array of addresses."""
        return ctypes.addressof(self._pointers)


def launch(
    kernel: KernelFile, name: str, items: int, parameters: Parameters, *, looping: bool = True, threads: int = THREADS
) -> None:
    """Launch ``name`` on the current stream with a thread for each of ``items``.

    Kernels that loop over their items get at most as many blocks as the device runs at a time. The driver is called
    directly: a search is made of dozens of short launches, and CuPy's own way takes longer than many of them run.
    """
    import cupy

    device = cupy.cuda.runtime.getDevice()
    blocks = max(1, -(-items // threads))
    if looping:
        blocks = min(blocks, _BLOCKS * _multiprocessors(device))
    stream = cupy.cuda.get_current_stream().ptr
    function = _function(kernel, name, device)
    cupy.cuda.driver.launchKernel(function.ptr, blocks, 1, 1, threads, 1, 1, 0, stream, parameters.address, 0)


def launch_together(kernel: KernelFile, name: str, parameters: Parameters) -> None:
    """Launch ``name`` with one block a multiprocessor on the current stream, all at once: they wait for each other.

    Raises:
        BackendError: the device does not offer it.
    """
    import cupy

    device = cupy.cuda.runtime.getDevice()
    _check_together(device)
    stream = cupy.cuda.get_current_stream().ptr
    function = _function(kernel, name, device)
    cupy.cuda.driver.launchCooperativeKernel(
        function.ptr, _multiprocessors(device), 1, 1, TOGETHER, 1, 1, 0, stream, parameters.address
    )


@functools.cache
def _check_together(device: int) -> None:
    import cupy

    if not cupy.cuda.Device(device).attributes["CooperativeLaunch"]:
        raise BackendError(f"the search needs cooperative launch, which CUDA device {device} does not offer")


@functools.cache
def _function(kernel: KernelFile, name: str, device: int) -> Any:
    return kernel.load().get_function(name).kernel


@functools.cache
def _multiprocessors(device: int) -> int:
    import cupy

    return int(cupy.cuda.Device(device).attributes["MultiProcessorCount"])
