"""A picture of a cloud from above with its samples highlighted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..replacing import replacing

Points = npt.NDArray[np.float32]

BACKGROUND, INK, POINTS, SAMPLES, SENSOR = "#10141a", "#dbe2ea", "#75869a", "#ffb000", "#4cc2ff"


def save_picture(path: Path, points: Points, samples: Points, title: str, inches: float = 14.0) -> None:
    """Write a PNG: the points in grey, the samples in colour, the middle of the samples in view.

    Args:
        path: the PNG file; its folder is created.
        points: (N, 3) the whole cloud [m].
        samples: (M, 3) the sampled points [m], finite; at least one.
        title: the picture's heading.
        inches: its width; a small picture has fewer pixels, and larger letters for its size.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # no display needed, and no global state
    from matplotlib.figure import Figure

    low, high = np.percentile(samples[:, :2], (6, 94), axis=0)
    width, height = np.maximum(high - low, 1.0) * 1.25
    centre = (low + high) / 2
    scale = inches / 14
    tall = float(np.clip(13 * scale * height / width + 1.2, 4 * scale, inches))
    figure = Figure(figsize=(inches, tall), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    figure.set_facecolor(BACKGROUND)
    axes = figure.add_subplot(facecolor=BACKGROUND)
    finite = points[np.isfinite(points).all(axis=1)]
    axes.scatter(finite[:, 0], finite[:, 1], s=1.6 * scale**2, c=POINTS, linewidths=0, label=f"{len(points):,} points")
    axes.scatter(
        samples[:, 0], samples[:, 1], s=4.5 * scale**2, c=SAMPLES, linewidths=0, label=f"{len(samples):,} samples"
    )
    axes.scatter([0], [0], marker="^", s=50 * scale, c=SENSOR, label="sensor")
    axes.set_xlim(centre[0] - width / 2, centre[0] + width / 2)
    axes.set_ylim(centre[1] - height / 2, centre[1] + height / 2)
    axes.set_aspect("equal")
    axes.set_title(title, color=INK)
    axes.set_xlabel("x [m]", color=INK)
    axes.set_ylabel("y [m]", color=INK)
    axes.tick_params(colors=INK)
    axes.legend(loc="upper right", markerscale=2, facecolor="#1b222b", labelcolor=INK, edgecolor="none")
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as new:
        figure.savefig(new)
