"""The backend's threads: the kernels release the interpreter lock, so plain Python threads use all cores.

Not Numba's own parallel loops: two callers may not enter their default threading layer at once.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from ...device import usable_cores

T = TypeVar("T")

PIECE = 2**17  # items of a pass over a mesh between two looks at the flag: a few milliseconds
POLL = 0.01  # seconds between two looks at the flag while another certification holds a lock


class Interrupted(Exception):
    """The work was stopped; what it has written so far is incomplete."""


class Workers:
    """A pool for one certification; a context manager. The caller's thread is one of the workers.

    Attributes:
        threads: how many, the caller's included.
        stop: int64 ``(1,)``; anything but 0, set by any thread and never taken back, ends kernels and `map` soon.
    """

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or usable_cores()
        self.stop = np.zeros(1, np.int64)
        self._pool = ThreadPoolExecutor(self.threads) if self.threads > 1 else None

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self.stop[0] = 1  # what the others do is of no use any more
        if self._pool is not None:
            self._pool.shutdown(wait=True)

    def check(self) -> None:
        """Raise `Interrupted` once the work shall stop."""
        if self.stop[0] != 0:
            raise Interrupted

    def map(self, function: Callable[..., T], arguments: Sequence[tuple[Any, ...]]) -> list[T]:
        """``[function(*a) for a in arguments]``, each call on whichever thread is free.

        Raises:
            Interrupted: the work was stopped; calls that had not begun were left out.
        """
        results: list[Any] = [None] * len(arguments)
        counter = itertools.count()

        def drain() -> None:
            while self.stop[0] == 0 and (i := next(counter)) < len(arguments):
                results[i] = function(*arguments[i])

        helpers = min(self.threads, len(arguments)) - 1
        jobs = [self._pool.submit(drain) for _ in range(helpers)] if self._pool is not None else []
        drain()
        for job in jobs:
            if not job.cancel():  # not begun: nothing left for it, and a nested map must not wait for a busy thread
                job.result()
        self.check()
        return results

    def ranges(self, n: int, smallest: int) -> list[tuple[int, int]]:
        """``0..n`` in a few ranges a thread, none much shorter than ``smallest``; the same for the same ``n``."""
        parts = max(1, min(4 * self.threads, n // smallest))
        edges = [n * i // parts for i in range(parts + 1)]
        return list(itertools.pairwise(edges))

    def over(self, n: int, function: Callable[[int, int], Any]) -> None:
        """``function(first, last)`` over ``0..n`` in pieces, for work that does not look at the flag."""
        edges = [*range(0, n, PIECE), n]
        self.map(function, list(itertools.pairwise(edges)))

    @contextmanager
    def hold(self, lock: threading.Lock) -> Iterator[None]:
        """Hold a lock in the body; raises `Interrupted` when the work is stopped while another holds it."""
        while not lock.acquire(timeout=POLL):
            self.check()
        try:
            yield
        finally:
            lock.release()
