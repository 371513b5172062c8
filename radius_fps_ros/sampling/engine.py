"""The contract between the public functions and a backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

METHODS = ("auto", "radius", "lookahead", "brute")


@dataclass(frozen=True)
class RawSample:
    """A backend's answer.

    Attributes:
        indices: (K,) int64 rows of the points in greedy order, an array the caller may keep. K is smaller than asked
            for only when the largest remaining squared distance is 0, and 0 when the row to start from is not finite.
        coverage_squared: float32, the largest over the finite points of the smallest squared distance to the samples.
        method, rounds, voxels, skip_rate, threads: see `SamplingStats`.
    """

    indices: Any
    coverage_squared: float
    method: str
    rounds: int
    voxels: int
    skip_rate: float
    threads: int


class Engine(Protocol):
    """Samples clouds by one method and owns the workspaces: a second call of the same size allocates none.

    The arithmetic that every engine must reproduce bit for bit, in float32 and without fused multiply-add:

    * squared distance ``(dx*dx + dy*dy) + dz*dz``; overflow to infinity and underflow to 0 are kept as they come;
    * a point's key is the smallest squared distance to the samples so far, -1 for a row that is not finite;
    * the next sample is the row with the largest key, the smallest row among equals; a largest key of 0 ends the run.

    An engine serves one call at a time.
    """

    def __init__(self, method: str = "auto", threads: int | None = None) -> None:
        """``method`` is one of `METHODS`; ``threads`` bounds the CPU threads and means nothing to CUDA."""

    def run(self, points: Any, n_samples: int, start: int) -> RawSample:
        """Sample ``points``, (N, 3) float32 C-contiguous, from the row ``start``; 1 <= n_samples <= N."""

    def warm_up(self) -> None:
        """Compile or load everything `run` may need."""

    @property
    def workspace_bytes(self) -> int:
        """Bytes of the workspaces held between calls."""
