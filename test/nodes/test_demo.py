"""The demonstration runs by itself and says whether all went well."""

import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.ros


def run_demo(*arguments):
    command = [sys.executable, "-m", "radius_fps_ros.nodes.demo", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_the_street(ros_environment, tmp_path):
    done = run_demo("--seconds", 2, "--picture", tmp_path / "folder" / "demo.png")
    answered, dropped = (
        int(re.search(words, done.stdout)[1]) for words in (r"Answered (\d+) of 20 frames\.", r"(\d+) dropped\.")
    )
    # A machine too busy for ten frames a second drops some: told, in red, and nothing else may be missing.
    assert answered > 0
    assert answered + dropped == 20, done.stdout + done.stderr
    assert done.returncode == (0 if answered == 20 else 1)
    assert ("end other work" in done.stdout) == (dropped > 0)
    assert (tmp_path / "folder" / "demo.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("name", ["real_frames_sqlite3", "real_frames_mcap"])
def test_real_bags(ros_environment, data_dir, tmp_path, name):
    done = run_demo("--bag", data_dir / name, "--seconds", 2, "--picture", tmp_path / "demo.png")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "/lidar_top" in done.stdout
    assert "/velodyne_points" in done.stdout


def test_a_folder_that_is_no_bag(ros_environment, tmp_path):
    done = run_demo("--bag", tmp_path, "--picture", tmp_path / "demo.png")
    assert done.returncode == 1
    assert "demo: " in done.stderr
    assert "Traceback" not in done.stderr
