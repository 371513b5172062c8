"""Files that this package installs into its share folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

PACKAGE = "radius_fps_ros"


def share_file(*names: str) -> Path | None:
    """The path of ``share/radius_fps_ros/<names>``, or ``None`` where it is not installed.

    The ament index is not asked because it has no answer outside a sourced workspace, where ``sys.prefix`` has one.
    """
    for prefix in [*filter(None, os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)), sys.prefix]:
        path = Path(prefix, "share", PACKAGE, *names)
        if path.is_file():
            return path
    return None
