"""Checks of active sites and look-up grids, shared by tensors and rulebooks."""

from __future__ import annotations

from math import prod
from typing import Any

from ..device import array_module
from ..errors import InputError
from .geometry import Triple

# Keys of sites are 64-bit; this leaves room for the window of a kernel at the last site.
MAX_VOLUME = 2**62


def check_sites(indices: Any, shape: Triple, batch_size: int) -> None:
    """Raise ``InputError`` unless ``indices`` is (N, 4) int32 within ``batch_size`` and ``shape``.

    That sites are distinct is checked where they are sorted (building a rulebook), not here.
    """
    if getattr(indices, "ndim", 0) != 2 or indices.shape[1] != 4 or indices.dtype != "int32":
        found = f"{getattr(indices, 'dtype', type(indices).__name__)} of shape {getattr(indices, 'shape', '?')}"
        raise InputError(f"indices must be an int32 array of shape (N, 4) (batch, z, y, x), not {found}")
    if batch_size < 1:
        raise InputError(f"batch_size must be at least 1, not {batch_size}")
    check_volume(shape, batch_size)
    if len(indices) == 0:
        return
    xp = array_module(indices)
    limit = xp.asarray((batch_size, *shape), dtype=xp.int32)
    if bool(((indices < 0) | (indices >= limit)).any()):
        raise InputError(f"indices lie outside batch_size {batch_size} and spatial_shape {shape} (batch, z, y, x)")


def check_volume(shape: Triple, batch_size: int) -> None:
    """Raise ``InputError`` when the cells of the batch cannot be numbered in 64 bits."""
    if batch_size * prod(shape) > MAX_VOLUME:
        raise InputError(f"batch_size {batch_size} times spatial_shape {shape} is above 2**62 cells")


def check_grid(grid: Any, shape: Triple, batch_size: int) -> None:
    """Raise ``InputError`` unless ``grid`` can hold one int32 for every cell of the batch."""
    cells = batch_size * prod(shape)
    if grid.dtype != "int32" or grid.size < cells or not grid.flags.c_contiguous:
        raise InputError(
            f"grid must be a contiguous int32 array of at least {cells} elements (batch_size * D * H * W), "
            f"not {grid.dtype} with {grid.size}"
        )
