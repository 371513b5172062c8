"""Which backend runs, and why."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from ..errors import BackendError, InputError

BACKENDS = ("auto", "cpu", "cuda")


@dataclass(frozen=True)
class BackendChoice:
    """The backend that runs.

    Attributes:
        name: ``"cpu"`` or ``"cuda"``.
        reason: why, in words, for logs and stats.
    """

    name: str
    reason: str


def is_cupy_array(array: Any) -> bool:
    """True for a CuPy array; never imports CuPy, so it costs nothing where no GPU is used."""
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(array, cupy.ndarray)


def array_module(*arrays: Any) -> ModuleType:
    """The array library (``cupy`` or ``numpy``) that the given arrays belong to."""
    return sys.modules["cupy"] if any(is_cupy_array(a) for a in arrays) else np


@functools.cache
def cuda_unavailable_reason() -> str | None:
    """``None`` when CuPy sees a usable CUDA device, else one sentence that says what is missing."""
    try:
        import cupy
    except ImportError:
        return "CuPy is not installed (pip install cupy-cuda12x or cupy-cuda13x)"
    except Exception as error:  # CuPy makes folders and loads libraries when it is imported: much can fail
        return f"CUDA is not usable because CuPy cannot be imported ({type(error).__name__}: {error})"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"CUDA reports no usable device ({error})"
    if count == 0:
        return "CUDA reports no device"
    capability = cupy.cuda.Device().compute_capability
    if int(capability) < 70:
        return f"the CUDA device has compute capability {capability[:-1]}.{capability[-1]}; 7.0 or newer is needed"
    return _nvrtc_missing()


def _nvrtc_missing() -> str | None:
    """``None`` when CuPy finds the compiler of the kernels, which its wheels do not bring, else one sentence."""
    try:
        from cupy_backends.cuda.libs import nvrtc

        nvrtc.getVersion()
    except Exception as error:  # each version of CuPy has an error of its own for a library that it does not find
        sentence = str(error).strip().partition("\n")[0]
        return (
            "CuPy finds no NVRTC (pip install nvidia-cuda-nvrtc-cu12 for cupy-cuda12x, nvidia-cuda-nvrtc for "
            f"cupy-cuda13x, or a CUDA toolkit): {sentence}"
        )
    return None


def device_memory(choice: BackendChoice) -> int | None:
    """Bytes that this process's CuPy memory pool holds on the current device; ``None`` where the CPU runs."""
    if choice.name != "cuda":
        return None
    import cupy

    return int(cupy.get_default_memory_pool().total_bytes())


def select_backend(requested: str, *arrays: Any) -> BackendChoice:
    """Choose the backend for ``requested`` (``"auto" | "cpu" | "cuda"``).

    ``auto`` takes CUDA when a usable device exists and the CPU otherwise, and the reason says which and why.
    Arrays that already lie on the device ask for CUDA: with ``cpu`` they are refused, never copied in silence.

    Raises:
        InputError: ``requested`` is not one of the three names, or CuPy arrays meet ``backend="cpu"``.
        BackendError: ``cuda`` was asked for and no usable device exists.
    """
    if requested not in BACKENDS:
        raise InputError(f"backend must be one of {', '.join(BACKENDS)}, not {requested!r}")
    on_device = any(is_cupy_array(a) for a in arrays)
    if requested == "cpu":
        if on_device:
            raise InputError("backend='cpu' got CuPy arrays; pass NumPy arrays or use backend='cuda'")
        return BackendChoice("cpu", "requested")
    missing = cuda_unavailable_reason()
    if missing is None:
        return BackendChoice("cuda", "requested" if requested == "cuda" else "a CUDA device is available")
    if requested == "cuda":
        raise BackendError(f"backend='cuda' cannot run: {missing}")
    return BackendChoice("cpu", missing)
