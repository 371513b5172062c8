"""What a benchmark ran on, for the head of its JSON file."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


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


def write_results(name: str, rows: list[dict[str, Any]], **more: Any) -> Path:
    """Write ``results/<name>.json`` with the machine, the command and the rows."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    command = " ".join(["python", os.path.relpath(sys.argv[0]), *sys.argv[1:]])
    path.write_text(json.dumps({"machine": machine(), "command": command, **more, "rows": rows}, indent=1) + "\n")
    return path
