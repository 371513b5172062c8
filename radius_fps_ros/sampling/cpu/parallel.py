"""Chunks of one job on several Python threads: the kernels release the GIL.

Numba's own parallel loops are not used: without TBB or OpenMP they end the process when two threads call at once, and
each costs seconds to compile.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

POINTS_PER_THREAD = 100_000
"""Half a millisecond of preparation: handing less to another thread costs as much as it saves."""


def worthwhile_threads(n_points: int, threads: int, points_per_thread: int = POINTS_PER_THREAD) -> int:
    """How many of ``threads`` a cloud of ``n_points`` keeps busy."""
    return max(1, min(threads, n_points // points_per_thread))


@functools.cache
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="radius_fps_sampling")


# A forked child has none of the parent's threads, so it must not submit to them.
os.register_at_fork(after_in_child=_pool.cache_clear)


def submit(workers: int, call: Callable[..., Any], *args: Any) -> Future[Any]:
    """``call(*args)`` on one of ``workers`` threads kept for the next time."""
    return _pool(workers).submit(call, *args)


def split(n: int, parts: int) -> list[tuple[int, int]]:
    """``n`` items as ``parts`` ranges of nearly equal length."""
    cuts = [n * k // parts for k in range(parts + 1)]
    return list(itertools.pairwise(cuts))


def run_chunks(kernel: Callable[..., Any], chunks: list[tuple[int, int]], *args: Any) -> None:
    """Call ``kernel(*args, k, begin, end)`` for every chunk k, each on its own thread; returns when all are done."""
    if len(chunks) == 1:
        kernel(*args, 0, *chunks[0])
        return
    others = [submit(len(chunks) - 1, kernel, *args, k, *chunk) for k, chunk in enumerate(chunks) if k > 0]
    kernel(*args, 0, *chunks[0])
    for other in others:
        other.result()
