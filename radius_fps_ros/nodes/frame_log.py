"""What happened to the frames: counts since activation and the latencies of the last ones."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

import numpy as np

RECENT = 10.0  # s that a warning outlasts what it warns of
WINDOW = 200  # frames: 20 s at 10 Hz, enough for a p99 that one outlier does not set alone


@dataclass
class FrameLog:
    """Counts and recent latencies. Written by one thread; a reader in another sees whole values."""

    answered: int = 0
    refused: int = 0
    deadlines_missed: int = 0
    degraded: int = 0
    last_refusal: str = ""
    features_missed: int = 0
    last_miss: str = ""
    _grown: dict[str, tuple[int, float]] = field(default_factory=dict)
    _finished: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=WINDOW))

    @property
    def frames(self) -> int:
        """Frames answered or refused."""
        return self.answered + self.refused

    def answer(self, milliseconds: float, missed: bool, degraded: bool) -> None:
        """Count an answered frame; ``missed`` its deadline, or ``degraded`` to keep the budget."""
        self.answered += 1
        self.deadlines_missed += missed
        self.degraded += degraded
        self._finished.append((time.monotonic(), milliseconds))

    def refuse(self, sentence: str) -> None:
        """Count a refused frame."""
        self.refused += 1
        self.last_refusal = sentence

    def miss_features(self, sentence: str) -> None:
        """Count an answered frame that got no features."""
        self.features_missed += 1
        self.last_miss = sentence

    def recently(self, what: str, count: int) -> bool:
        """Whether ``count``, told here every second or so, has grown within the last `RECENT` seconds."""
        known, when = self._grown.get(what, (0, -RECENT))
        now = time.monotonic()
        if count > known:
            when = now
        self._grown[what] = count, when
        return count > 0 and now - when < RECENT

    def rate(self, seconds: float) -> float:
        """Answered frames a second over the last ``seconds``."""
        since = time.monotonic() - seconds
        return sum(1 for finished, _ in tuple(self._finished) if finished >= since) / seconds

    def latency(self, percentiles: tuple[float, ...]) -> tuple[float, ...]:
        """Percentiles of the latest frames' milliseconds from callback to published; NaN before the first frame."""
        latencies = [milliseconds for _, milliseconds in tuple(self._finished)]
        if not latencies:
            return tuple(float("nan") for _ in percentiles)
        return tuple(float(value) for value in np.percentile(latencies, percentiles))
