"""Reading and writing while others compute, with results in the order of the bag.

A thread of its own for reading was tried on two cores and brought nothing: reading and writing a cloud take a fraction
of what its samples take.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class InOrder(Generic[Item, Result]):
    """Works on items in several threads and gives the results in the order of the items.

    At most ``2 * workers`` results and ``most_bytes`` wait for an earlier one.
    """

    def __init__(self, work: Callable[[Item], Result], workers: int, most_bytes: int = 2**28) -> None:
        """``work`` is called in ``workers`` threads."""
        self._work = work
        self._workers = workers
        self._most_bytes = most_bytes

    def __call__(
        self, items: Iterator[Item], needs_work: Callable[[Item], bool], size: Callable[[Item], int]
    ) -> Generator[tuple[Item, Result | None], None, None]:
        """Yield each item with its result, ``None`` for one that needs no work; ``size`` is an item's bytes."""
        waiting: deque[tuple[Item, Future[Result] | None]] = deque()
        in_work = held = 0
        pool = ThreadPoolExecutor(self._workers, thread_name_prefix="frame")
        try:
            for item in items:
                future = pool.submit(self._work, item) if needs_work(item) else None
                waiting.append((item, future))
                in_work += future is not None
                held += size(item)
                while waiting and (
                    in_work > 2 * self._workers
                    or held > self._most_bytes
                    or waiting[0][1] is None
                    or waiting[0][1].done()
                ):
                    first, future = waiting.popleft()
                    in_work -= future is not None
                    held -= size(first)
                    yield first, None if future is None else future.result()
            while waiting:
                first, future = waiting.popleft()
                yield first, None if future is None else future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
