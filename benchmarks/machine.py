"""What a benchmark ran on, for the head of its JSON file; where that file goes; which peers run beside it.

`radius-fps bench` sets RADIUS_FPS_RESULTS, the folder of the files (default: results/ beside this file, from which the
README's tables are made), and RADIUS_FPS_PEERS: 0 leaves the peers out.
"""

from __future__ import annotations

import datetime
import importlib
import json
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

RESULTS = Path(os.environ.get("RADIUS_FPS_RESULTS") or Path(__file__).parent / "results")


def machine() -> dict[str, Any]:
    """Processor, cores, Python, package versions, GPU where there is one, and the day."""
    names = [
        line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    facts: dict[str, Any] = {
        "processor": names[0] if names else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "date": datetime.date.today().isoformat(),
    }
    for package in ("numpy", "numba", "cupy-cuda12x", "cupy-cuda13x"):
        try:
            facts[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        facts["gpu"] = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        facts["gpu"] = None
    return facts


def import_peer(name: str) -> Any:
    """The module of another implementation to measure beside ours.

    Raises:
        ImportError: it is not installed, or peers are not asked for.
    """
    if os.environ.get("RADIUS_FPS_PEERS") == "0":
        raise ImportError("peers are not asked for", name=name)
    return importlib.import_module(name)


def write_results(name: str, rows: list[dict[str, Any]], **more: Any) -> Path:
    """Write ``<name>.json`` with the machine, the command, its real-time priority and the rows.

    A member ``ratios`` says what is compared and how many times faster ours is: ``radius-fps bench`` prints it.
    """
    path = RESULTS / f"{name}.json"
    command = " ".join(["python", os.path.relpath(sys.argv[0]), *sys.argv[1:]])
    priority = os.sched_getparam(0).sched_priority  # above 0: no ordinary process came in between (chrt -f)
    head = {"machine": machine(), "command": command, "realtime_priority": priority}
    text = json.dumps({**head, **more, "rows": rows}, indent=1) + "\n"
    try:
        RESULTS.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        raise SystemExit(f"{path} cannot be written: {error.strerror or error}") from error
    return path
