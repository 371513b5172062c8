"""A picture of two meshes and the segment from the witness to its nearest point."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..hausdorff import Certificate, PreparedMesh
from ..hausdorff.rounding import printed_interval
from ..replacing import replacing

MOST_TRIANGLES = 20_000  # drawn of each mesh; the rest of a larger one would only fill the same pixels


def check_format(path: Path) -> None:
    """Raise an InputError where no picture can be written with this suffix."""
    from matplotlib.backend_bases import FigureCanvasBase

    known = FigureCanvasBase.get_supported_filetypes()
    if path.suffix and path.suffix[1:].lower() not in known:
        raise InputError(f"{path} has the suffix {path.suffix!r}; a picture can be {', '.join(sorted(known))}")


def draw(path: Path, a: PreparedMesh, b: PreparedMesh, certificate: Certificate, names: tuple[str, str]) -> None:
    """Write the picture: all of it on the left, the surroundings of the witness on the right.

    Raises:
        InputError: the file cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 6), layout="constrained")
    FigureCanvasAgg(figure)
    segment = np.stack([certificate.witness_a, certificate.witness_b])
    low, high = np.minimum(a.low, b.low), np.maximum(a.high, b.high)
    length = float(np.linalg.norm(segment[0] - segment[1]))
    near = max(2.0 * length, 0.05 * float((high - low).max()))
    centre = segment.mean(axis=0)
    views = ((low, high, "both meshes"), (centre - near, centre + near, "around the witness"))
    for column, (view_low, view_high, title) in enumerate(views):
        axes = figure.add_subplot(1, 2, column + 1, projection="3d")
        for mesh, colour, name in ((a, "tab:blue", f"A: {names[0]}"), (b, "tab:orange", f"B: {names[1]}")):
            _add_mesh(axes, mesh, view_low, view_high, colour, name)
        axes.plot(*segment.T, color="black", marker="o", markersize=3, linewidth=2, label="witness", zorder=10)
        axes.set(xlim=(view_low[0], view_high[0]), ylim=(view_low[1], view_high[1]), zlim=(view_low[2], view_high[2]))
        axes.set_box_aspect(np.maximum(view_high - view_low, 1e-3 * (view_high - view_low).max() + 1e-300))
        axes.set_title(title)
    axes.legend(loc="upper right")
    c = certificate
    figure.suptitle(f"Hausdorff distance in {printed_interval(c.lower, c.upper, 9)}  {c.status.value}")
    try:
        with replacing(path) as new:
            figure.savefig(new, dpi=120)
    except (OSError, ValueError) as error:
        raise InputError(f"the picture cannot be written to {path}: {error}") from None


def _add_mesh(
    axes: object, mesh: PreparedMesh, low: NDArray[np.float64], high: NDArray[np.float64], colour: str, name: str
) -> None:
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection  # type: ignore[import-untyped]

    corners = mesh.vertices[mesh.faces]
    seen = ((corners.max(axis=1) >= low) & (corners.min(axis=1) <= high)).all(axis=1)
    corners = corners[seen]
    corners = corners[:: max(1, len(corners) // MOST_TRIANGLES)]
    surface = Poly3DCollection(corners, facecolor=colour, edgecolor=colour, linewidth=0.2, alpha=0.25, label=name)
    axes.add_collection3d(surface)  # type: ignore[attr-defined]
