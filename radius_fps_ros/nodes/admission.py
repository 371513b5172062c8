"""How many requests run at once and how many may wait; one more is turned away at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Admission:
    """Counts running and waiting requests; waiting ones are served in no particular order."""

    def __init__(self, running: int, waiting: int) -> None:
        """Allow ``running`` requests at once and ``waiting`` more in the queue."""
        self._running = threading.BoundedSemaphore(running)
        self._places = threading.BoundedSemaphore(running + waiting)

    @contextmanager
    def admit(self) -> Iterator[bool]:
        """Wait for a turn and hold it in the body; yields False, without waiting, when the queue is full."""
        if not self._places.acquire(blocking=False):
            yield False
            return
        try:
            with self._running:
                yield True
        finally:
            self._places.release()
