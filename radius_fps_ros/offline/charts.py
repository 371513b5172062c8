"""The report's charts as SVG that takes the page's text colour, and pictures as PNG."""

from __future__ import annotations

import io
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..clouds.picture import save_picture

Values = npt.NDArray[np.float64]
COLOURS = ("#2a7de1", "#e08a00", "#1a9c6b", "#b455c4", "#d0454c", "#7a8797")  # legible on white and on near-black
MOST_BINS = 300  # along the time axis; more would not be seen
_INK = "#123457"  # stands for the page's text colour until `_svg` puts that in its place
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "radius-fps",
    "text.parse_math": False,
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.15,
    **{
        f"{part}.{what}": _INK
        for part, what in (
            ("text", "color"), ("axes", "edgecolor"), ("axes", "labelcolor"), ("grid", "color"), ("xtick", "color"),
            ("ytick", "color"),
        )
    },
}  # fmt: skip


def histogram(values: Values, marks: dict[str, float], unit: str) -> str:
    """A histogram with vertical marks, such as percentiles; the axis ends at 1.3 times the last mark."""
    with _axes() as (axes, svg):
        most = max(max(marks.values()) * 1.3, 1e-9)
        low = min(float(values.min()), most) * 0.9
        axes.hist(np.clip(values, low, most), bins=np.linspace(low, most, 49), color=COLOURS[0], linewidth=0)
        for k, (name, value) in enumerate(marks.items()):
            axes.axvline(value, color=_INK, linewidth=1, linestyle=("-", "--", ":")[k % 3], label=name)
        axes.legend(frameon=False, loc="upper right")
        axes.set_xlim(low, most)
        axes.set_xlabel(unit)
        axes.set_ylabel("clouds")
        axes.yaxis.get_major_locator().set_params(integer=True)
    return svg.pop()


def spark_histogram(values: Values) -> str:
    """A small histogram without axes, from the least to the 99th percentile."""
    low, high = float(values.min()), float(np.percentile(values, 99))
    counts, _ = np.histogram(np.clip(values, low, high), bins=28, range=(low, high if high > low else low + 1e-9))
    tall = 18 * counts / counts.max()
    bars = "".join(f'<path d="M{4 * k} 18v{-y:.2f}h3.4v{y:.2f}z"/>' for k, y in enumerate(tall) if y)
    return f'<svg viewBox="0 0 112 18" fill="{COLOURS[0]}">{bars}</svg>'


def over_time(lines: Sequence[tuple[str, Values, Values]], ylabel: str) -> str:
    """Lines over seconds, each (colour, seconds, values): medians of bins, with their span behind them."""
    with _axes() as (axes, svg):
        longest = max((float(seconds.max()) for _, seconds, _ in lines if len(seconds)), default=0.0)
        scale, unit = (60.0, "minutes") if longest > 600 else (1.0, "seconds")
        for colour, seconds, values in lines:
            middle, centre, low, high = binned(seconds / scale, values)
            axes.fill_between(middle, low, high, color=colour, alpha=0.2, linewidth=0)
            few = len(middle) <= 40
            axes.plot(middle, centre, color=colour, linewidth=1.4, marker="o" if few else "", markersize=3)
        axes.margins(x=0.02, y=0.12)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
        axes.set_xlabel(f"{unit} since the first cloud")
        axes.set_ylabel(ylabel)
    return svg.pop()


def binned(x: Values, y: Values) -> tuple[Values, Values, Values, Values]:
    """Mean x, median, least and largest finite y of at most `MOST_BINS` runs of equally many points."""
    keep = np.isfinite(y)
    x, y = x[keep], y[keep]
    if len(x) == 0:
        return x, y, y, y
    groups = np.array_split(np.arange(len(x)), min(len(x), MOST_BINS))
    rows = [(x[g].mean(), np.median(y[g]), y[g].min(), y[g].max()) for g in groups]
    middle, centre, low, high = np.array(rows, np.float64).T
    return middle, centre, low, high


def picture(points: npt.NDArray[np.float32], samples: npt.NDArray[np.float32], title: str) -> bytes:
    """The PNG of `save_picture`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "picture.png")
        save_picture(path, points, samples, title, inches=9)
        return path.read_bytes()


@contextmanager
def _axes() -> Iterator[tuple[Any, list[str]]]:
    """Axes to draw on; the SVG is in the list when the body has ended."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    svg: list[str] = []
    with rc_context(_STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=(5.2, 2.5), layout="constrained")
        FigureCanvasSVG(figure)
        yield figure.add_subplot(), svg
        stream = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(stream, format="svg", transparent=True, metadata=nothing)
    svg.append(_inline(stream.getvalue()))


def _inline(svg: str) -> str:
    """The SVG element alone: in the page's text colour, as wide as its place, without styles that reach beyond it."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg, flags=re.S)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(
        r' id="(figure|axes|patch|text|line2d|xtick|ytick|matplotlib|legend|PolyCollection|FillBetween\w*)[^"]*"',
        "",
        svg,
    )
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    return svg.replace(_INK, "currentColor")
