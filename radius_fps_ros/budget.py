"""What a frame may have so that frames stay within their time: fewer features, or a prefix of the samples."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from statistics import median

MEASURES = ("none", "features", "samples")
WINDOW = 5  # measurements whose median counts: two outliers do not move it, and a new load shows after three
ENOUGH = 3  # measurements before anything is withheld; the first frames may be slow only because they are the first
HEADROOM = 0.9  # share of the budget that is planned with; a full frame must fit into it to end a degradation
STEPS = 16  # numbers of samples that are granted: each has a CUDA graph, of which few are kept
MAX_FEATURES_EVERY = 10  # features come at least this often, or nobody would notice that they fit again


@dataclass(frozen=True)
class BudgetSettings:
    """What may change between frames.

    Attributes:
        budget_ms: time for the work on one frame [ms].
        over_budget: what gives way when a full frame is expected to take longer, one of `MEASURES`.
        n_samples, min_samples: samples of a full frame, and the fewest that ``"samples"`` leaves of them.
    """

    budget_ms: float = 100.0
    over_budget: str = "features"
    n_samples: int = 4096
    min_samples: int = 1024


@dataclass(frozen=True)
class Grant:
    """What one frame may have.

    Attributes:
        samples: how many samples to take.
        features: whether this frame gets features.
        features_every: features are computed for one frame in so many.
        full_ms: what a full frame is expected to take, at most where samples are withheld [ms]; 0 while too few frames
            have been measured.
        reason: one sentence when something is withheld, else empty.
    """

    samples: int
    features: bool
    features_every: int
    full_ms: float
    reason: str

    @property
    def degraded(self) -> bool:
        """Whether frames get less than was asked for."""
        return bool(self.reason)


class Budget:
    """Expects of the next frame what the last ones took: a fixed part, a part for each sample, and the features.

    Each part is the median of its last `WINDOW` measurements. Fewer samples are taken to save time in proportion; in
    truth they save less, so a step to more samples is safe, and steps to fewer go on until the time fits. Time that a
    frame spends waiting for the one before is not counted: ``budget_ms`` should not exceed the time between two frames.
    """

    def __init__(self) -> None:
        self._fixed, self._per_sample, self._features = (deque[float](maxlen=WINDOW) for _ in range(3))
        self._degraded = False
        self._since_features = 0

    def grant(self, settings: BudgetSettings, features: bool) -> Grant:
        """What the next frame may have; ``features``: whether features are computed at all."""
        fixed, per_sample = _expected(self._fixed), _expected(self._per_sample)
        extracting = _expected(self._features) if features else 0.0
        full = fixed + per_sample * settings.n_samples + extracting
        planned = HEADROOM * settings.budget_ms
        samples, every, least = settings.n_samples, 1, full
        if len(self._fixed) >= ENOUGH and full > (planned if self._degraded else settings.budget_ms):
            if settings.over_budget == "features" and features:
                every = _bounded(extracting, planned - (full - extracting), 2, MAX_FEATURES_EVERY)
                least = full - extracting + extracting / every
            elif settings.over_budget == "samples":
                fitting = max(0.0, planned - fixed - extracting) / max(per_sample, 1e-9)
                step = max(1, settings.n_samples // STEPS)
                samples = min(settings.n_samples, max(settings.min_samples, int(fitting) // step * step))
                least = fixed + per_sample * samples + extracting
        reason = _sentence(settings, samples, every, full, least)
        self._degraded = bool(reason)
        due = features and self._since_features + 1 >= every
        return Grant(samples, due, every, full if len(self._fixed) >= ENOUGH else 0.0, reason)

    def record(self, grant: Grant, fixed_ms: float, sampling_ms: float, features_ms: float | None) -> None:
        """Learn from a frame that was answered as granted.

        Args:
            grant: what it was granted.
            fixed_ms, sampling_ms: time that does not depend on the number of samples, and time that grows with it [ms].
            features_ms: time of the features [ms]; ``None`` where none were computed.
        """
        self._fixed.append(fixed_ms)
        self._per_sample.append(sampling_ms / grant.samples)
        if features_ms is not None:
            self._features.append(features_ms)
        self._since_features = 0 if grant.features else self._since_features + 1


def _expected(measured: deque[float]) -> float:
    return median(measured) if measured else 0.0


def _bounded(work: float, room: float, low: int, high: int) -> int:
    """In how many frames ``work`` fits when each has ``room`` for it, from ``low`` to ``high``."""
    return high if work >= high * room else max(low, math.ceil(work / room))


def _sentence(settings: BudgetSettings, samples: int, every: int, full: float, least: float) -> str:
    if every > 1:
        given = f"features for one frame in {every}, because a frame with them takes about"
    elif samples < settings.n_samples:
        # Fewer samples do not save time in proportion, so for all of them this is the most that it can be.
        given = f"{samples} of {settings.n_samples} samples, because all would take up to"
    else:
        return ""
    even_so = f"; even so a frame takes about {least:.3g} ms on average" if least > settings.budget_ms else ""
    return f"{given} {full:.3g} ms and budget_ms is {settings.budget_ms:g}{even_so}"
