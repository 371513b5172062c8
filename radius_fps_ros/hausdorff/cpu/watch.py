"""The clock and the caller, looked at while the threads work: one kernel may take minutes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from ..goal import Goal, Status
from .workers import Workers

INTERVAL = 0.02  # seconds between two looks


class Watch:
    """Stops the workers when a limit or the caller ends the work; a context manager, which watches in its body.

    Attributes:
        status: with what the work ended, or None.
        failure: what the progress callback raised; it belongs to the caller.
    """

    def __init__(self, goal: Goal, workers: Workers, state: Callable[[], tuple[float, float, int]]) -> None:
        """``state()`` tells the interval so far and the triangles still open."""
        self.status: Status | None = None
        self.failure: BaseException | None = None
        self._goal, self._workers, self._state = goal, workers, state
        self._looking = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hausdorff watch", daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        # It holds the search, which holds this: all memory would stay until the garbage collector comes by.
        del self._state

    def look(self) -> Status | None:
        """The status with which a limit or the caller ends the work, or None; shows the interval now and then."""
        with self._looking:  # the callback never runs twice at once
            if self.status is None:
                self.status = self._goal.interruption(*self._state())
            return self.status

    def _run(self) -> None:
        while not self._over.wait(INTERVAL):
            try:
                status = self.look()
            except BaseException as error:
                self.failure = error
                status = self.status = Status.CANCELLED
            if status is not None:
                self._workers.stop[0] = 1
                return
