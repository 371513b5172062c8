"""The folder of real clouds, bags and meshes that RADIUS_FPS_DATA names; docs/measurements.md lists its files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

NUSCENES = "nuscenes_top_34688x5_f32.bin"
KITTI = "kitti_000008_17238x4_f32.bin"
MESHES = "meshes/reference.json"
BAGS = "*/metadata.yaml"
WHAT = {
    NUSCENES: f"the scan {NUSCENES}",
    KITTI: f"the scan {KITTI}",
    MESHES: f"{MESHES} with the meshes that it names",
    BAGS: "a folder with a ROS 2 bag and its metadata.yaml",
}


def data_folder(needed: Sequence[str], folder: str | None = None) -> Path | None:
    """``folder``, by default what RADIUS_FPS_DATA names; ``None`` where neither is given: only generated data runs.

    A script whose ``needed`` files (relative paths or patterns) are not in it ends with one sentence that names them.
    """
    named = folder or os.environ.get("RADIUS_FPS_DATA")
    if not named:
        return None
    path = Path(named)
    missing = [what for what in needed if not any(path.glob(what))]
    if missing:
        state = "does not" if path.is_dir() else "is no folder"
        holds = ", ".join(WHAT.get(what, what) for what in needed)
        raise SystemExit(f"the folder of real data (RADIUS_FPS_DATA) must hold {holds}; {path} {state}")
    return path
