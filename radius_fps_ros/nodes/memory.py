"""Keeps freed memory in the process, because clouds of megabytes come and go with every frame."""

from __future__ import annotations

import ctypes
import os

# Of glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

LARGEST_KEPT = 32 << 20  # bytes; the largest threshold that all versions take, and as much as a cloud may have
MOST_KEPT = 128 << 20  # bytes at the end of a heap


def keep_freed_memory() -> bool:
    """Let malloc keep what is freed for the next frame; True when it does.

    By default glibc gives buffers of megabytes back to the kernel as soon as they are free, and with every frame the
    kernel maps and clears each page anew: five milliseconds for a cloud of 3 MB on its way through rclpy. Buffers of
    more than `LARGEST_KEPT` are given back as before. Other C libraries, and users who set malloc's thresholds in the
    environment, are left alone.
    """
    chosen = any(name.startswith("MALLOC_") and name.endswith("_") for name in os.environ)
    if chosen or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, LARGEST_KEPT)) and bool(mallopt(_M_TRIM_THRESHOLD, MOST_KEPT))
