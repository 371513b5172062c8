"""Files that this package installs into its share folder."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

PACKAGE = "radius_fps_ros"


def share_file(*names: str) -> Path | None:
    """The path of ``share/radius_fps_ros/<names>``, or ``None`` where it is not installed.

    The ament index is not asked because it has no answer outside a sourced workspace. There the folders are tried into
    which pip installs: of the environment, of the user, beside the package (``--target``); then the checkout.
    """
    beside = Path(__file__).resolve().parents[1]
    prefixes = [*filter(None, os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)), sysconfig.get_path("data")]
    prefixes += [sysconfig.get_path("data", sysconfig.get_preferred_scheme("user")), str(beside)]
    for folder in [*(Path(prefix, "share", PACKAGE) for prefix in prefixes), beside]:
        path = folder.joinpath(*names)
        if path.is_file():
            return path
    return None
