"""A request's work in a thread of its own, which is left behind when the caller does not wait any longer.

Reading a mesh from a file, for one, cannot be interrupted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

from ..hausdorff import Status

T = TypeVar("T")

POLL = 0.02  # s between two looks at the caller


class Patience:
    """Until when a request is worked on: it is cancelled, or its time is over. What has ended stays ended.

    Attributes:
        grace: seconds that work which looks at the end itself gets to end in order; 0 for work that does not look.
    """

    def __init__(self, seconds: float, cancelled: Callable[[], bool]) -> None:
        self._until = time.monotonic() + seconds
        self._cancelled = cancelled
        self._ended: Status | None = None
        self.grace = 0.0

    @property
    def seconds(self) -> float:
        """What is left, above 0 always."""
        return max(self._until - time.monotonic(), 1e-9)

    def ended(self) -> Status | None:
        """CANCELLED or TIME_LIMIT, or None to go on."""
        if self._ended is None:
            if self._cancelled():
                self._ended = Status.CANCELLED
            elif time.monotonic() >= self._until:
                self._ended = Status.TIME_LIMIT
        return self._ended

    def wait_for(self, work: Future[T]) -> None:
        """Return when the work is done, or soon after the patience ended."""
        while not wait([work], POLL).done:
            if self.ended() is not None:
                wait([work], self.grace)
                return


def in_background(call: Callable[[], T]) -> Future[T]:
    """Begin a call in a thread that nothing waits for, not even the end of the process."""
    work: Future[T] = Future()

    def run() -> None:
        try:
            result = call()
        except BaseException as error:
            work.set_exception(error)
        else:
            work.set_result(result)

    threading.Thread(target=run, name="request", daemon=True).start()
    return work
