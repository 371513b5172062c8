"""What killed processes leave in shared memory."""

from __future__ import annotations

import fcntl
import re
import time
from pathlib import Path

# Fast DDS 2 and 3. A segment has 16 hexadecimal digits; ports, which several processes share, have other names.
_LOCK_NAME = re.compile(r"(fastrtps|fastdds)_[0-9a-f]{16}_el")
_YOUNG = 1.0  # s; a process that is just starting creates the file before it locks it


def remove_ownerless_segments(folder: Path = Path("/dev/shm")) -> int:
    """Remove Fast DDS's shared-memory segments (up to 128 MiB each) whose process is gone; returns how many.

    A segment's process holds a lock on the file beside it for as long as it lives. Nothing else removes what a process
    leaves that was killed, until the machine starts again.
    """
    removed = 0
    for lock in folder.iterdir() if folder.is_dir() else ():
        if not _LOCK_NAME.fullmatch(lock.name):
            continue
        try:
            if time.time() - lock.stat().st_ctime < _YOUNG:
                continue
            with lock.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                lock.with_name(lock.name[:-3]).unlink(missing_ok=True)
                lock.unlink()
        except OSError:
            continue  # locked, another user's, or removed meanwhile by somebody else
        removed += 1
    return removed
