"""Where work runs: choice of backend, CPU threads, CUDA kernel files."""

from .backend import (
    BackendChoice,
    array_module,
    cuda_unavailable_reason,
    device_memory,
    is_cupy_array,
    select_backend,
)
from .kernels import KernelFile
from .threads import numba_threads, usable_cores

__all__ = [
    "BackendChoice",
    "KernelFile",
    "array_module",
    "cuda_unavailable_reason",
    "device_memory",
    "is_cupy_array",
    "numba_threads",
    "select_backend",
    "usable_cores",
]
