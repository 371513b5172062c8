"""A picture of active sites seen from above."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..device import is_cupy_array
from ..errors import InputError
from ..replacing import replacing
from .tensor import SparseTensor


def draw_sites(maps: Mapping[str, SparseTensor], path: str | Path, *, sample: int = 0) -> None:
    """Write a PNG with one panel a tensor: how many active sites lie above each other at each (x, y).

    Axes are metres where the tensors come from `voxelize`, else input voxels.

    Args:
        maps: tensors by the title of their panel.
        path: of the file.
        sample: which one of the batch.

    Raises:
        InputError: nothing to draw, no such sample, or the file cannot be written.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    if not maps:
        raise InputError("maps hold no tensor to draw")
    columns = min(3, len(maps))
    rows = -(-len(maps) // columns)
    figure = Figure(figsize=(6 * columns, 5.2 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for spare in panels[len(maps) :]:
        spare.set_axis_off()
    for axes, (name, tensor) in zip(panels, maps.items(), strict=False):
        if not 0 <= sample < tensor.batch_size:
            raise InputError(f"sample must be below the batch size {tensor.batch_size}, not {sample}")
        indices = tensor.indices.get() if is_cupy_array(tensor.indices) else tensor.indices
        sites = indices[indices[:, 0] == sample]
        _, height, width = tensor.spatial_shape
        x_edges, y_edges, unit = _edges(tensor, width, 2), _edges(tensor, height, 1), _unit(tensor)
        towers, counts = np.unique(sites[:, 2:], axis=0, return_counts=True)
        # One marker for each occupied column: drawing the whole plane would cost its area, not its sites.
        x = x_edges[0] + (towers[:, 1] + 0.5) * (x_edges[1] - x_edges[0]) / width
        y = y_edges[0] + (towers[:, 0] + 0.5) * (y_edges[1] - y_edges[0]) / height
        side = 72 * 4.2 / max(width, height)
        highest = max(2, int(counts.max(initial=1)))
        marks = axes.scatter(x, y, c=counts, s=max(0.3, side * side), marker="s", linewidths=0, vmin=1, vmax=highest)
        axes.set(
            xlim=x_edges, ylim=y_edges, aspect="equal", title=f"{name}: {len(sites)} sites",
            xlabel=f"x [{unit}]", ylabel=f"y [{unit}]",
        )  # fmt: skip
        figure.colorbar(marks, ax=axes, label="sites along z", ticks=MaxNLocator(integer=True))
    try:
        with replacing(path) as new:
            figure.savefig(new, dpi=100, format="png")
    except OSError as error:
        raise InputError(f"cannot write the picture {path}: {error.strerror or error}") from error


def _unit(tensor: SparseTensor) -> str:
    return "voxels" if tensor.voxel_grid is None else "m"


def _edges(tensor: SparseTensor, cells: int, axis: int) -> tuple[float, float]:
    """Both ends of an axis (1: y, 2: x) in metres or input voxels."""
    scale, shift = tensor.scale[axis], tensor.shift[axis]
    ends = [scale * (end - 0.5) + shift + 0.5 for end in (0, cells)]
    grid: Any = tensor.voxel_grid
    if grid is not None:
        ends = [grid.minimum[2 - axis] + grid.voxel_size[2 - axis] * end for end in ends]
    return ends[0], ends[1]
