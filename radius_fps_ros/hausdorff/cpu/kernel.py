"""The decorator of all kernels: Numba with a cache that notices a change in any of their files."""

from __future__ import annotations

import hashlib
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit

_SOURCES = hashlib.sha256(
    b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
).hexdigest()

# Fused multiply-adds round less often than rounding.py assumes, so contraction keeps its bounds valid.
_njit = njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})

# A kernel's report: farthest distance, its x, y, z, largest closed bound, triangles, and a flag that ends the kernel.
STOP = 6


def jit(function: Callable[..., Any]) -> Any:
    """Compile ``function`` without the interpreter lock, from the cache where it is up to date.

    Numba's cache compares the time stamp of the file that holds a function, but kernels inline kernels of other files:
    after an upgrade that changes only those, it would serve the old code. What a function closes over is part of the
    key, so each kernel closes over a digest of all kernel files.
    """
    code = function.__code__.replace(co_freevars=("_sources",))
    cell = (types.CellType(_SOURCES),)
    kernel = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__, cell)
    kernel.__qualname__, kernel.__module__, kernel.__doc__ = (
        function.__qualname__,
        function.__module__,
        function.__doc__,
    )
    return _njit(kernel)
