"""Numba kernels with a cache on disk that notices a change in any of their files."""

from __future__ import annotations

import hashlib
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

NO_CACHE = "no folder for compiled kernels can be written, so they are compiled anew each time; set NUMBA_CACHE_DIR"


def cached_jit(module_file: str, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """The decorator for kernels of the folder of ``module_file``: compiles without the interpreter lock, and caches.

    Numba's cache compares the time stamp of the file that holds a function, but kernels inline functions of other
    files: after an upgrade that changes only those, it would serve the old code. What a function closes over is part
    of the key, so each kernel closes over a digest of all Python files in the folder. Where no cache can be written, it
    compiles without one and warns.

    Args:
        module_file: ``__file__`` of a module in the folder of the kernels.
        options: further options of ``numba.njit``.
    """
    from numba import njit

    sources = b"".join(path.read_bytes() for path in sorted(Path(module_file).parent.glob("*.py")))
    cell = (types.CellType(hashlib.sha256(sources).hexdigest()),)

    def decorate(function: Callable[..., Any]) -> Any:
        code = function.__code__.replace(co_freevars=("_sources",))
        kernel = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__, cell)
        for attribute in ("__qualname__", "__module__", "__doc__"):
            setattr(kernel, attribute, getattr(function, attribute))
        try:
            return njit(cache=True, nogil=True, **options)(kernel)
        except RuntimeError:  # neither the package's folder nor the user's can be written
            warnings.warn(NO_CACHE, RuntimeWarning, stacklevel=1)  # this place: said once, not for each kernel
            return njit(nogil=True, **options)(kernel)

    return decorate
