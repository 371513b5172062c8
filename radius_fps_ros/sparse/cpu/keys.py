"""64-bit keys of sites: ``((batch * D + z) * H + y) * W + x`` orders sites by (batch, z, y, x)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...errors import InputError
from ..geometry import Triple
from .kernel import kernel


@kernel
def encode(indices: NDArray[np.int32], shape: Triple, keys: NDArray[np.int64]) -> bool:
    """Write the key of every site; true when the keys ascend strictly (sites sorted and distinct)."""
    depth, height, width = shape
    ascending = True
    for i in range(len(indices)):
        keys[i] = ((np.int64(indices[i, 0]) * depth + indices[i, 1]) * height + indices[i, 2]) * width + indices[i, 3]
        ascending = ascending and (i == 0 or keys[i - 1] < keys[i])
    return ascending


@kernel
def decode(keys: NDArray[np.int64], shape: Triple, indices: NDArray[np.int32]) -> None:
    """The inverse of ``encode``."""
    depth, height, width = shape
    for i in range(len(keys)):
        key = keys[i]
        indices[i, 3] = key % width
        key //= width
        indices[i, 2] = key % height
        key //= height
        indices[i, 1] = key % depth
        indices[i, 0] = key // depth


def sort_sites(indices: NDArray[np.int32], shape: Triple) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Sorted keys (N,) int64 of the sites and the row (N,) int32 that each belongs to.

    Raises:
        InputError: the same site occurs twice.
    """
    keys = np.empty(len(indices), dtype=np.int64)
    if encode(np.ascontiguousarray(indices), shape, keys):
        return keys, np.arange(len(keys), dtype=np.int32)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    repeated = np.flatnonzero(keys[1:] == keys[:-1])
    if len(repeated):
        site = tuple(int(v) for v in indices[order[repeated[0]]])
        raise InputError(f"indices hold the same site twice, for example (batch, z, y, x) = {site}; sites must differ")
    return keys, order.astype(np.int32)
