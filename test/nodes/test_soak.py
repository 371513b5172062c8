"""The soak's verdict tells a leak from a step and from noise; the soak itself runs for seconds here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
from soak import verdict

SECONDS = np.arange(5.0, 605.0, 5.0)
NOISE = np.random.default_rng(0).normal(scale=0.3, size=len(SECONDS))


@pytest.mark.parametrize(
    ("rss_mb", "files", "growing"),
    [
        (250 + NOISE, 25 + 0 * SECONDS, []),
        (250 + NOISE + 5 * (SECONDS > 380), 25 + 0 * SECONDS, []),  # a deeper queue, once
        (250 + NOISE + 30 * (SECONDS < 100), 25 + 0 * SECONDS, []),
        (250 + NOISE + 20 * np.minimum(SECONDS, 190) / 190, 25 + 0 * SECONDS, []),  # only during the warm-up
        (250 + NOISE + 0.01 * SECONDS, 25 + 0 * SECONDS, ["rss_mb"]),  # 1 KB a frame
        (250 + NOISE, 25 + SECONDS // 60, ["files"]),
    ],
)
def test_what_grows(rss_mb, files, growing):
    rows = [
        {"seconds": s, "rss_mb": r, "shm_mb": 268.0, "files": f, "threads": 22.0}
        for s, r, f in zip(SECONDS, rss_mb, files, strict=True)
    ]
    assert [line["what"] for line in verdict(rows) if line["grows"]] == growing


@pytest.mark.ros
def test_a_short_soak_leaves_nothing_behind(ros_environment, tmp_path):
    command = [sys.executable, str(BENCHMARKS / "soak.py"), "--minutes", "0.1", "--points", "5000", "--period", "0.5"]
    environment = {**os.environ, "RADIUS_FPS_RESULTS": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, env=environment)
    result = json.loads((tmp_path / "soak.json").read_text())
    assert result["exit_code"] == 0, done.stderr
    assert result["left_in_shared_memory"] == []
    assert result["answered"] > 0
    assert {"rss_mb", "shm_mb", "files", "threads"} < set(result["rows"][0])
