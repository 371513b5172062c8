"""Files that this package and its interfaces install into their share folders."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

PACKAGE = "radius_fps_ros"


def share_file(*names: str, package: str = PACKAGE) -> Path | None:
    """The path of ``share/<package>/<names>``, or ``None`` where it is not installed.

    The ament index is not asked because it has no answer outside a sourced workspace. There the folders are tried into
    which pip installs: of the environment, of the user, beside the package (``--target``); then the checkout.
    """
    beside = Path(__file__).resolve().parents[1]
    prefixes = [*filter(None, os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)), sysconfig.get_path("data")]
    prefixes += [sysconfig.get_path("data", sysconfig.get_preferred_scheme("user")), str(beside)]
    for folder in [*(Path(prefix, "share", package) for prefix in prefixes), beside]:
        path = folder.joinpath(*names)
        if path.is_file():
            return path
    return None
