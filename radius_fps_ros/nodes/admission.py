"""How many requests run at once and how many may wait; one more is turned away at once."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

POLL = 0.05  # s between two looks at whether a waiting request was given up


class Turn(enum.Enum):
    """What became of a request's wait."""

    RUN = enum.auto()
    FULL = enum.auto()
    GIVEN_UP = enum.auto()


class Admission:
    """Counts running and waiting requests; waiting ones are served in no particular order."""

    def __init__(self, running: int, waiting: int) -> None:
        """Allow ``running`` requests at once and ``waiting`` more in the queue."""
        self._running = threading.BoundedSemaphore(running)
        self._places = threading.BoundedSemaphore(running + waiting)

    @contextmanager
    def admit(self, given_up: Callable[[], bool]) -> Iterator[Turn]:
        """Wait for a turn and hold it in the body; only with ``Turn.RUN`` may the request run."""
        if not self._places.acquire(blocking=False):
            yield Turn.FULL
            return
        try:
            admitted = False
            while not admitted and not given_up():
                admitted = self._running.acquire(timeout=POLL)
            try:
                # Looked at again: the running one may have made room because it was cancelled together with this one.
                yield Turn.RUN if admitted and not given_up() else Turn.GIVEN_UP
            finally:
                if admitted:
                    self._running.release()
        finally:
            self._places.release()
