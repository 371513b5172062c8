"""A tensor or a network's result in words, for people who debug."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from ..device import is_cupy_array
from .tensor import SparseTensor


def summary(tensor: SparseTensor | Mapping[str, SparseTensor]) -> str:
    """One line a tensor: sites, occupied share of the volume, extent of the sites, and the range of the features.

    Takes a tensor, or the tensors by name that a network returns.
    """
    tensors = {"tensor": tensor} if isinstance(tensor, SparseTensor) else tensor
    head = ("name", "sites", "channels", "type", "shape (z, y, x)", "batch", "occupied", "z", "y", "x",
            "min", "mean", "max", "zeros", "not finite")  # fmt: skip
    rows = [head, *(_row(name, made) for name, made in tensors.items())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _row(name: str, tensor: SparseTensor) -> tuple[str, ...]:
    features, indices = _host(tensor.features).astype(np.float64), _host(tensor.indices)
    occupied = len(indices) / (tensor.batch_size * prod(tensor.spatial_shape))
    extents = [f"{axis.min()}..{axis.max()}" for axis in indices.T[1:]] if len(indices) else ["-"] * 3
    finite = features[np.isfinite(features)]
    values = [f"{value:.4g}" for value in (finite.min(), finite.mean(), finite.max())] if finite.size else ["-"] * 3
    zeros = f"{np.mean(features == 0):.1%}" if features.size else "-"
    return (
        name,
        str(len(indices)),
        str(features.shape[1]),
        str(tensor.features.dtype),
        " x ".join(map(str, tensor.spatial_shape)),
        str(tensor.batch_size),
        f"{occupied:.3%}",
        *extents,
        *values,
        zeros,
        str(features.size - finite.size),
    )


def _host(array: Any) -> np.ndarray:
    return array.get() if is_cupy_array(array) else array  # type: ignore[no-any-return]
