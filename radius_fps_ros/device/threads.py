"""How many CPU cores this process may use, and Numba's thread count for one call."""

from __future__ import annotations

import contextlib
import functools
import math
import os
from collections.abc import Iterator
from pathlib import Path

from ..errors import InputError


def usable_cores() -> int:
    """Cores this process may use: its CPU affinity, cut by a cgroup v2 CPU quota (containers)."""
    return int(min(len(os.sched_getaffinity(0)), _quota_cores()))


@functools.cache  # read once: a network asks for each of its layers
def _quota_cores() -> float:
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, int(quota) // int(period))
    except (OSError, ValueError):  # no cgroup v2 here, or "max": no quota
        return math.inf


@contextlib.contextmanager
def numba_threads(threads: int | None) -> Iterator[int]:
    """Run the body with ``threads`` Numba threads (``None``: all usable cores); yields the number in force.

    Raises:
        InputError: ``threads`` is less than 1.
    """
    import numba

    if threads is not None and threads < 1:
        raise InputError(f"threads must be at least 1, not {threads}")
    wanted = min(threads or usable_cores(), numba.config.NUMBA_NUM_THREADS)
    before = numba.get_num_threads()
    numba.set_num_threads(wanted)
    try:
        yield wanted
    finally:
        numba.set_num_threads(before)
