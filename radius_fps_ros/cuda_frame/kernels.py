"""The CUDA source of this package."""

from __future__ import annotations

import functools
from typing import Any

from ..device import KernelFile

KERNEL_FRAME = KernelFile("radius_fps_ros.cuda_frame", "frame.cu")
KERNELS = (KERNEL_FRAME,)

THREADS = 256


@functools.cache
def find_kernel(name: str, device: int) -> Any:
    """The function ``name`` on CUDA device ``device``, which is the current one."""
    return KERNEL_FRAME.load().get_function(name).kernel


def launch(name: str, threads: int, *arguments: Any) -> None:
    """Launch at least ``threads`` threads on CuPy's current stream."""
    import cupy

    kernel = find_kernel(name, cupy.cuda.runtime.getDevice())
    kernel((max(1, -(-threads // THREADS)),), (THREADS,), arguments)
