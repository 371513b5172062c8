"""What farthest point sampling returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class SamplingStats:
    """How a result was computed.

    Attributes:
        backend: ``"cpu"`` or ``"cuda"``.
        backend_reason: why that backend ran, in words.
        method: the method that ran (what ``"auto"`` resolved to).
        rounds: passes over the points or voxels: one a sample for ``brute`` and ``radius``, one a batch of samples for
            ``lookahead``.
        voxels: voxels the points were cut into, 0 without voxels.
        skip_rate: share of the N x M point-to-sample distances that pruning avoided, 0 to 1.
        milliseconds: wall time of the call, preparation and copies included.
        threads: CPU threads that worked on the cloud, 0 on CUDA.
    """

    backend: str
    backend_reason: str
    method: str
    rounds: int
    voxels: int
    skip_rate: float
    milliseconds: float
    threads: int


@dataclass(frozen=True)
class SamplingResult:
    """The samples of one cloud.

    Attributes:
        indices: (M,) int64 rows of the input in greedy order, in the array library of the input. Any prefix is the
            answer for that many samples.
        coverage_radius: the largest distance from a finite point to its nearest sample, in the unit of the input.
        n_distinct: how many leading ``indices`` are distinct positions; smaller than M only with
            ``on_duplicates="pad"``.
        stats: how the result was computed.
    """

    indices: Any
    coverage_radius: float
    n_distinct: int
    stats: SamplingStats
