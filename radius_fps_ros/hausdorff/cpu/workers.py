"""The backend's threads: the kernels release the interpreter lock, so plain Python threads use all cores.

Not Numba's own parallel loops: two callers may not enter their default threading layer at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, TypeVar

from ...device import usable_cores

T = TypeVar("T")


class Workers:
    """A pool for one certification; a context manager. The caller's thread is one of the workers."""

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or usable_cores()
        self._pool = ThreadPoolExecutor(self.threads) if self.threads > 1 else None

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)

    def map(self, function: Callable[..., T], arguments: Sequence[tuple[Any, ...]]) -> list[T]:
        """``[function(*a) for a in arguments]``, each call on whichever thread is free."""
        results: list[Any] = [None] * len(arguments)
        counter = itertools.count()

        def drain() -> None:
            while (i := next(counter)) < len(arguments):
                results[i] = function(*arguments[i])

        helpers = min(self.threads, len(arguments)) - 1
        jobs = [self._pool.submit(drain) for _ in range(helpers)] if self._pool is not None else []
        drain()
        for job in jobs:
            if not job.cancel():  # not begun: nothing left for it, and a nested map must not wait for a busy thread
                job.result()
        return results

    def ranges(self, n: int, smallest: int) -> list[tuple[int, int]]:
        """``0..n`` in a few ranges a thread, none much shorter than ``smallest``; the same for the same ``n``."""
        parts = max(1, min(4 * self.threads, n // smallest))
        edges = [n * i // parts for i in range(parts + 1)]
        return list(itertools.pairwise(edges))
