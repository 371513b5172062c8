"""When a search for the Hausdorff distance may stop, and what it has reached: shared by all backends."""

from __future__ import annotations

import enum
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .mesh import PreparedMesh
from .rounding import error_bound, round_up

PROGRESS_INTERVAL = 0.05  # seconds between two calls of a progress callback


class Status(str, enum.Enum):
    """How a certification ended; the interval contains the distance in every case."""

    CONVERGED = "CONVERGED"  # the interval is as narrow as asked
    PROVEN_BELOW = "PROVEN_BELOW"  # the distance is at most the threshold
    PROVEN_ABOVE = "PROVEN_ABOVE"  # the distance is above the threshold
    TIME_LIMIT = "TIME_LIMIT"
    MEMORY_LIMIT = "MEMORY_LIMIT"
    PRECISION_LIMIT = "PRECISION_LIMIT"  # as narrow as float64 coordinates of this size allow, wider than asked
    CANCELLED = "CANCELLED"  # the progress callback returned False

    def __str__(self) -> str:
        return self.value

    def meaning(self, threshold: float | None = None) -> str:
        """What the status says about the distance, in words; ``threshold`` is the one that was asked about."""
        bound = "the threshold" if threshold is None else f"the threshold {_shortest(threshold)}"
        return {
            Status.CONVERGED: "the interval is as narrow as asked",
            Status.PROVEN_BELOW: f"the distance is proven to be at most {bound}",
            Status.PROVEN_ABOVE: f"the distance is proven to be above {bound}",
            Status.TIME_LIMIT: "the time limit came first; the interval is valid",
            Status.MEMORY_LIMIT: "the memory limit came first; the interval is valid",
            Status.PRECISION_LIMIT: "the interval is as narrow as float64 allows for these coordinates; it is valid",
            Status.CANCELLED: "cancelled; the interval is valid",
        }[self]


def _shortest(number: float) -> str:
    """All digits of a number, because a proof for a rounded threshold is another one; as few as give it back."""
    return repr(float(number)).removesuffix(".0")


@dataclass(frozen=True)
class Progress:
    """What a progress callback sees.

    Attributes:
        lower, upper: the interval so far, in the meshes' unit.
        surviving: triangles still open.
        elapsed: seconds since the start.
    """

    lower: float
    upper: float
    surviving: int
    elapsed: float


@dataclass(frozen=True)
class Interval:
    """``lower <= h <= upper``."""

    lower: float
    upper: float


@dataclass
class Outcome:
    """One direction's result: the interval, the status, where the lower bound is attained, triangles bounded."""

    lower: float
    upper: float
    status: Status
    witness: NDArray[np.float64]
    nearest: NDArray[np.float64]
    triangles: int


@dataclass
class Goal:
    """What was asked for, in absolute units, and the clock."""

    tolerance: float
    threshold: float | None = None
    time_limit: float | None = None
    memory_limit: int | None = None
    progress: Callable[[Progress], bool | None] | None = None
    started: float = field(default_factory=time.perf_counter)
    _reported: float = field(default=-math.inf, repr=False)

    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.started

    def verdict(self, lower: float, upper: float) -> Status | None:
        """The status that this interval proves, or None to go on."""
        if self.threshold is not None:
            if lower > self.threshold:
                return Status.PROVEN_ABOVE
            if upper <= self.threshold:
                return Status.PROVEN_BELOW
        return Status.CONVERGED if upper - lower <= self.tolerance else None

    def interruption(self, lower: float, upper: float, surviving: int) -> Status | None:
        """TIME_LIMIT or CANCELLED, or None to go on; shows the interval to the callback now and then."""
        elapsed = self.elapsed()
        if self.progress is not None and elapsed - self._reported >= PROGRESS_INTERVAL:
            self._reported = elapsed
            if self.progress(Progress(lower, upper, surviving, elapsed)) is False:
                return Status.CANCELLED
        if self.time_limit is not None and elapsed >= self.time_limit:
            return Status.TIME_LIMIT
        return None

    def cut(self, lower: float, upper_floor: float, error: float) -> float:
        """Computed bounds up to this value need no further work.

        They keep the interval within the tolerance of ``lower``, or below the threshold, or below an upper bound that
        stands anyway. ``error`` is what rounding may add; the cut stays above the noise of computed distances.
        """
        cut = max(lower + self.tolerance - error, upper_floor - error, lower + 4.0 * error)
        if self.threshold is not None and lower <= self.threshold:
            cut = max(cut, self.threshold - error)
        return cut


def unsearched(source: PreparedMesh, target: PreparedMesh, floor: Interval) -> Outcome:
    """What the bounding box of ``source`` and one vertex of ``target`` tell before any search; the status is open.

    No point of the box is farther from the vertex than one of the box's corners.
    """
    vertex = target.vertices[target.faces[0, 0]]
    farthest = np.maximum(np.abs(source.low - vertex), np.abs(source.high - vertex))
    magnitude = float(max(np.abs(source.low).max(), np.abs(source.high).max(), np.abs(vertex).max()))
    upper = round_up(float(np.linalg.norm(farthest)), error_bound(magnitude, 0))
    witness = source.vertices[source.faces[0, 0]]
    return Outcome(floor.lower, max(floor.upper, upper), Status.TIME_LIMIT, witness, vertex, 0)
