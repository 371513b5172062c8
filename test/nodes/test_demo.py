"""The demonstration runs by itself and says whether all went well."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest
from scenarios import wait_until

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


def test_a_picture_that_cannot_be_written(ros_environment):
    done = run_demo("--seconds", 1, "--picture", "/proc/demo.png")
    assert done.returncode == 1
    assert "the picture /proc/demo.png cannot be written" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_it_and_its_node(ros_environment, tmp_path, number):
    command = [sys.executable, "-u", "-m", "radius_fps_ros.nodes.demo", "--seconds", "60"]
    with (tmp_path / "output").open("w+") as output:
        demo = subprocess.Popen(
            [*command, "--picture", str(tmp_path / "demo.png")], stdout=output, stderr=output, start_new_session=True
        )
        wait_until(lambda: "Configuring" in (tmp_path / "output").read_text(), 60)
        time.sleep(3)  # somewhere between the start of the node's process and the stream: it must end everywhere
        demo.send_signal(number)
        assert demo.wait(60) == 130
    text = (tmp_path / "output").read_text()
    assert "Traceback" not in text
    assert "Interrupted." in text
    with pytest.raises(ProcessLookupError):
        os.killpg(demo.pid, 0)
