"""The certified Hausdorff distance between two triangle meshes: arguments in, certificate out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..device import select_backend
from ..errors import InputError
from .goal import Goal, Interval, Outcome, Progress, Status, unsearched
from .mesh import MeshLike, PreparedMesh, prepare_mesh


@dataclass(frozen=True)
class Certificate:
    """A proof that the Hausdorff distance lies in ``[lower, upper]``.

    Attributes:
        status: why the search ended; the interval is valid in every case.
        lower, upper: bounds on the distance, in the meshes' unit, rounded outward.
        witness_a: point whose distance to the other mesh is at least ``lower``, up to the rounding of its
            coordinates; on A, or on B when ``direction`` is ``"b_to_a"``.
        witness_b: nearest point to ``witness_a`` on the other mesh.
        direction: ``"a_to_b"`` or ``"b_to_a"``: which directed distance gave ``lower``.
        relative_gap: ``(upper - lower)`` over the diagonal of A's bounding box (of both meshes' where A is a point).
        triangles: how many triangles were bounded.
        milliseconds: wall-clock time, checks and building the search structures included.
        backend: ``"cpu"`` or ``"cuda"``.
    """

    status: Status
    lower: float
    upper: float
    witness_a: NDArray[np.float64]
    witness_b: NDArray[np.float64]
    direction: str
    relative_gap: float
    triangles: int
    milliseconds: float
    backend: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "status": self.status.value,
            "lower": self.lower,
            "upper": self.upper,
            "witness_a": self.witness_a.tolist(),
            "witness_b": self.witness_b.tolist(),
            "direction": self.direction,
            "relative_gap": self.relative_gap,
            "triangles": self.triangles,
            "milliseconds": self.milliseconds,
            "backend": self.backend,
        }


def certify_hausdorff(
    a: MeshLike,
    b: MeshLike,
    *,
    tolerance: float = 1e-6,
    absolute_tolerance: float | None = None,
    symmetric: bool = False,
    threshold: float | None = None,
    time_limit: float | None = None,
    memory_limit: int | None = None,
    backend: str = "auto",
    progress: Callable[[Progress], bool | None] | None = None,
) -> Certificate:
    """Enclose the Hausdorff distance from A to B, the largest distance of any point of A to the nearest point of B.

    The result is an interval that contains the exact distance of the meshes as given: rounding is accounted for
    (see ``rounding.py``). Any triangles will do: open, intersecting, duplicate, degenerate. Branch and bound with the
    bounds of Sacht and Jacobson (Cascading upper bounds for triangle soup Pompeiu-Hausdorff distance, 2024) in the
    rounds of Fan et al. (GPU-accelerated Certified Hausdorff Distance Between Triangle Meshes, 2026).

    Args:
        a, b: each ``(vertices (V, 3), faces (F, 3))``, a path, or a ``PreparedMesh``, which keeps its search
            structures: certify many meshes against one map by preparing the map once.
        tolerance: stop when ``upper - lower`` is at most this times the diagonal of A's bounding box.
        absolute_tolerance: the same in the meshes' unit; it replaces ``tolerance``.
        symmetric: the larger of the distances from A to B and from B to A.
        threshold: stop as soon as ``distance <= threshold`` or ``distance > threshold`` is proven. When the interval
            reaches the tolerance with the threshold still inside, the status is ``CONVERGED``.
        time_limit: seconds. It ends the search and the building of its structures; a file that is being read is read to
            its end first.
        memory_limit: bytes for the search and the structures it builds, the meshes themselves not included.
            ``None``: half of the free memory for the search.
        backend: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        progress: called some twenty times a second with the interval so far; returning False ends the search with
            ``CANCELLED``.

    Raises:
        InputError: a mesh or an option cannot be used.
        BackendError: the backend cannot run here.
    """
    started = time.perf_counter()
    name, directed = _backend(backend)
    source, target = prepare_mesh(a, "mesh A"), prepare_mesh(b, "mesh B")
    _check_positive("tolerance", tolerance)
    for option, value in (
        ("absolute_tolerance", absolute_tolerance),
        ("threshold", threshold),
        ("time_limit", time_limit),
        ("memory_limit", memory_limit),
    ):
        if value is not None:
            _check_positive(option, value)
    diagonal = source.diagonal or float(
        np.linalg.norm(np.maximum(source.high, target.high) - np.minimum(source.low, target.low))
    )
    goal = Goal(
        tolerance=absolute_tolerance if absolute_tolerance is not None else tolerance * diagonal,
        threshold=threshold,
        time_limit=time_limit,
        memory_limit=None if memory_limit is None else int(memory_limit),
        progress=progress,
        started=started,
    )
    outcome, direction = directed(source, target, goal, Interval(0.0, 0.0)), "a_to_b"
    if symmetric:
        reverse = _reverse(directed, source, target, goal, outcome)
        direction = "a_to_b" if outcome.lower >= reverse.lower else "b_to_a"
        if direction == "a_to_b":
            reverse.witness, reverse.nearest = outcome.witness, outcome.nearest
        reverse.triangles += outcome.triangles
        outcome = reverse
    return Certificate(
        outcome.status,
        outcome.lower,
        outcome.upper,
        outcome.witness,
        outcome.nearest,
        direction,
        (outcome.upper - outcome.lower) / diagonal if diagonal > 0.0 else 0.0,
        outcome.triangles,
        1e3 * goal.elapsed(),
        name,
    )


def warm_up(backend: str = "auto") -> None:
    """Compile the kernels, or load them from their cache, now rather than in the first certification."""
    corners = np.array([[0.0, 0.0, 0.0], [4.0, 0.0, 0.0], [1.0, 3.0, 0.0]])
    # Three points against their triangle: it has to be split, so that every kernel runs.
    certify_hausdorff(
        (corners, np.array([[0, 1, 2]])), (corners, np.arange(3).repeat(3).reshape(3, 3)), backend=backend
    )


Directed: TypeAlias = Callable[[PreparedMesh, PreparedMesh, Goal, Interval], Outcome]


def _backend(requested: str) -> tuple[str, Directed]:
    """Name and directed search of the backend that runs."""
    if select_backend(requested).name == "cuda":
        from . import cuda

        return "cuda", cuda.directed
    from .cpu.wavefront import directed

    return "cpu", directed


def _reverse(directed: Directed, source: PreparedMesh, target: PreparedMesh, goal: Goal, forward: Outcome) -> Outcome:
    """The other direction, warm: what cannot exceed the forward bounds is closed at once."""
    floor = Interval(forward.lower, forward.upper)
    if forward.status is Status.PROVEN_ABOVE:
        return replace(unsearched(target, source, floor), status=forward.status)
    if forward.status in (Status.CONVERGED, Status.PROVEN_BELOW, Status.PRECISION_LIMIT):
        return directed(target, source, goal, floor)
    reverse = unsearched(target, source, floor)
    return replace(reverse, status=goal.verdict(reverse.lower, reverse.upper) or forward.status)


def _check_positive(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value) or value <= 0:
        raise InputError(f"{name} must be a finite number above 0, not {value!r}")
