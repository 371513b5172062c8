"""Chunks of one job on several Python threads: the kernels release the GIL.

Numba's own parallel loops are not used: without TBB or OpenMP they end the process when two threads call at once, and
each costs seconds to compile.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
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
    """``call(*args)`` on one of ``workers`` threads kept for the next time.

    Cancel it before waiting for it: it never begins while the threads are taken by longer work, when the system gives
    no thread, or when the interpreter is about to end.
    """
    future: Future[Any] = Future()
    job: list[Callable[[], Any]] = [functools.partial(call, *args)]
    future.add_done_callback(lambda _: job.clear())  # a cancelled job may stay queued for long: not with its arrays
    with contextlib.suppress(RuntimeError):  # no thread can be started
        _pool(workers).submit(_run, future, job)
    return future


def _run(future: Future[Any], job: list[Callable[[], Any]]) -> None:
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(job[0]())
        except BaseException as error:  # raised again where the result is asked for
            future.set_exception(error)


def split(n: int, parts: int) -> list[tuple[int, int]]:
    """``n`` items as ``parts`` ranges of nearly equal length."""
    cuts = [n * k // parts for k in range(parts + 1)]
    return list(itertools.pairwise(cuts))


def run_chunks(kernel: Callable[..., Any], chunks: list[tuple[int, int]], *args: Any) -> None:
    """Call ``kernel(*args, k, begin, end)`` for every chunk k, on several threads; returns when all are done."""
    others: list[Future[Any]] = []
    try:
        for k, chunk in enumerate(chunks[1:], 1):
            others.append(submit(len(chunks) - 1, kernel, *args, k, *chunk))
        kernel(*args, 0, *chunks[0])
        for k, other in enumerate(others, 1):
            if other.cancel():  # nobody has begun it
                kernel(*args, k, *chunks[k])
    finally:  # nothing may still write when an exception, an interruption too, lets the caller use the arrays again
        begun = [other for other in others if not other.cancel()]
        wait(begun)
    for other in begun:
        other.result()  # raises what it raised
