"""How long each stage of a frame takes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stage(milliseconds: dict[str, float], name: str) -> Iterator[None]:
    """Measure the body into ``milliseconds[name]``."""
    begin = time.perf_counter()
    yield
    milliseconds[name] = (time.perf_counter() - begin) * 1e3
