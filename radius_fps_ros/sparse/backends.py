"""The backend package that an array belongs to."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from ..device import is_cupy_array


def backend_of(array: Any) -> ModuleType:
    """``sparse.cuda`` for CuPy arrays, ``sparse.cpu`` for NumPy arrays; both have the same functions."""
    if is_cupy_array(array):
        from . import cuda

        return cuda
    from . import cpu

    return cpu
