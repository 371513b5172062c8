"""A picture of a cloud from above with its samples highlighted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

Points = npt.NDArray[np.float32]


def save_picture(path: Path, points: Points, samples: Points, title: str, half_width: float = 50.0) -> None:
    """Write a PNG: ``points`` (N, 3) grey by height, ``samples`` (M, 3) in colour, x to the right, metres.

    Args:
        path: the PNG file; its folder is created.
        points: (N, 3) the whole cloud [m].
        samples: (M, 3) the sampled points [m].
        title: the picture's heading.
        half_width: half the length of the square shown around the sensor [m].
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # no display needed, and no global state
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 11), dpi=110, facecolor="#10141a", layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot(facecolor="#10141a")
    finite = points[np.isfinite(points).all(axis=1)]
    low, high = np.percentile(finite[:, 2], (2, 98)) if len(finite) else (0.0, 1.0)
    axes.scatter(
        *finite[:, :2].T, c=finite[:, 2], s=0.4, cmap="Greys_r", vmin=low - (high - low), vmax=high, linewidths=0
    )
    axes.scatter(*samples[:, :2].T, s=5, c="#ffb000", linewidths=0, label=f"{len(samples):,} samples")
    axes.scatter([0], [0], marker="^", s=70, c="#4cc2ff", label="sensor")
    axes.set(xlim=(-half_width, half_width), ylim=(-half_width, half_width), aspect="equal")
    axes.set_xlabel("x [m]", color="#c8d0d8")
    axes.set_ylabel("y [m]", color="#c8d0d8")
    axes.set_title(title, color="#eef2f6")
    axes.tick_params(colors="#c8d0d8")
    axes.legend(loc="upper right", facecolor="#1b222b", labelcolor="#eef2f6", edgecolor="none")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
