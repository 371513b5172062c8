"""A thread that works on the newest item only: what it cannot keep up with is dropped and counted, never queued."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class NewestItemWorker(Generic[Item]):
    """Calls ``work(item)`` in a thread of its own with the newest item offered.

    ``work`` must handle its own errors. One that escapes ends the thread: its traceback goes to stderr, and ``failed``
    is called, so that nobody waits for answers that never come.
    """

    def __init__(self, work: Callable[[Item], None], failed: Callable[[], None], name: str) -> None:
        """Start the thread."""
        self._failed = failed
        self._work = work
        self._newest: list[Item] = []
        self._condition = threading.Condition()
        self._stopping = False
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """How many items were replaced before work on them began."""
        with self._condition:
            return self._dropped

    def offer(self, item: Item) -> None:
        """Hand over an item; one that still waits is dropped in its favour."""
        with self._condition:
            self._dropped += len(self._newest)
            self._newest = [item]
            self._condition.notify()

    def stop(self, timeout: float) -> bool:
        """End after the item in work, dropping the waiting one; False when it still works after ``timeout`` [s]."""
        with self._condition:
            self._stopping = True
            self._dropped += len(self._newest)
            self._newest = []
            self._condition.notify()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._newest or self._stopping)
                if self._stopping:
                    return
                item = self._newest.pop()
            try:
                self._work(item)
            except BaseException:
                traceback.print_exc()
                self._failed()
                return
