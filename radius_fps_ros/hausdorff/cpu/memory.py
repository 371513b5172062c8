"""What a search needs of memory, and what the machine can give."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from ..mesh import PreparedMesh
from .geometry import ROW
from .seeds import GROUP

OBJECTS = 150_000  # Python's own: threads, views, tuples
# bytes a face of the target: node, row, face index, box while building; and a vertex: local coordinates
TARGET_FACE, TARGET_VERTEX = 64 + 8 * ROW + 4 + 48, 24
# bytes a face of the source: box, keys and indices while sorting; its share of a group; and a vertex: local
# coordinates, distance and row
SOURCE_FACE, SOURCE_GROUP, SOURCE_VERTEX = 48 + 16, 48 + 28, 24 + 12


def fixed_bytes(source: PreparedMesh, target: PreparedMesh) -> int:
    """What the search keeps whatever it meets."""
    return (
        OBJECTS
        + len(target.faces) * TARGET_FACE
        + len(target.vertices) * TARGET_VERTEX
        + len(source.faces) * SOURCE_FACE
        + (len(source.faces) // GROUP + 1) * SOURCE_GROUP
        + len(source.vertices) * SOURCE_VERTEX
    )


def available_bytes() -> int:
    """Free memory of the machine, or of the control group when it has less."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, ValueError):  # no cgroup v2 here, or "max": no limit
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text())
        free = min(free, limit - int((group / "memory.current").read_text()))
    return free
