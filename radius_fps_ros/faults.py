"""Errors of a device, told apart: memory that ran out, which passes, and a fault, after which the process is lost."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from .device import BackendChoice
from .errors import BackendError

CUDA_OUT_OF_MEMORY = 2  # of the runtime (cudaErrorMemoryAllocation) and of the driver (CUDA_ERROR_OUT_OF_MEMORY)


@contextmanager
def faults_as_sentences(doing: str) -> Iterator[None]:
    """Let the errors that CUDA reports in the body leave it as one kind.

    Raises:
        BackendError: a CUDA call of the body failed, or the device's memory did not suffice.
    """
    try:
        yield
    except Exception as error:
        if not _is_cuda_error(error):
            raise
        raise BackendError(f"the CUDA device failed while {doing}: {error}") from error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory of the host or of the device ran out; smaller work may well succeed afterwards."""
    cause: BaseException | None = error
    while cause is not None:
        # CuPy's OutOfMemoryError is a MemoryError; what its pool does not ask for fails with a CUDA error.
        if isinstance(cause, MemoryError) or (
            _is_cuda_error(cause) and getattr(cause, "status", None) == CUDA_OUT_OF_MEMORY
        ):
            return True
        cause = cause.__cause__
    return False


def free_device_memory(choice: BackendChoice) -> None:
    """Give the blocks that CuPy's pools keep for reuse back to the device."""
    if choice.name == "cuda":
        import cupy

        cupy.get_default_memory_pool().free_all_blocks()
        cupy.get_default_pinned_memory_pool().free_all_blocks()


def _is_cuda_error(error: BaseException) -> bool:
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(
        error,
        (
            cupy.cuda.runtime.CUDARuntimeError,
            cupy.cuda.driver.CUDADriverError,
            cupy.cuda.memory.OutOfMemoryError,
        ),
    )
