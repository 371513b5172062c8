"""Freed memory is used again by the next frame, instead of being given back to the kernel and mapped anew."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from scenarios import active_node, check_answers, exchange
from std_msgs.msg import Header

from radius_fps_ros.clouds import Cloud, encode_cloud
from radius_fps_ros.clouds.synthetic import street_scan
from radius_fps_ros.nodes.messages import cloud_message

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the thresholds are glibc's")

# A cloud in three copies at once, as a message makes them on its way through rclpy.
FRAMES = """
import resource, sys
from radius_fps_ros.nodes.memory import keep_freed_memory
kept = keep_freed_memory() if sys.argv[1] == "keep" else False
size, frames = 3_000_000, 20
for number in range(frames + 3):
    if number == 3:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    copies = [bytes([number]) * size for _ in range(3)]
    del copies
print(kept, (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / (3 * frames * size / 4096))
"""


def faults_per_page(what, **environment):
    """(whether malloc was told to keep what is freed, page faults for each page that the frames use)."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    done = subprocess.run(
        [sys.executable, "-c", FRAMES, what], env=clean | environment, capture_output=True, text=True, check=True
    )
    kept, faults = done.stdout.split()
    return kept == "True", float(faults)


def test_the_next_frame_faults_no_page_in():
    kept, faults = faults_per_page("keep")
    assert kept
    assert faults < 0.05


def test_by_default_every_page_is_faulted_in_anew():
    """What the function is for; where this fails, it is not needed any more."""
    assert faults_per_page("leave")[1] > 0.5


@pytest.mark.parametrize(
    "environment", [{"MALLOC_TRIM_THRESHOLD_": "131072"}, {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=131072"}]
)
def test_what_the_user_chose_is_left_alone(environment):
    kept, faults = faults_per_page("keep", **environment)
    assert not kept
    assert faults > 0.5


def page_faults(pid):
    """Of a process and all its threads, so far."""
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[7])


@pytest.mark.ros
def test_the_perception_node_keeps_what_is_freed(ros_node, tmp_path, monkeypatch):
    """By default such frames, no two alike, fault in 2,000 pages each."""
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    scans = [encode_cloud(Cloud.of_records(street_scan(130_000, seed=k))) for k in range(10)]
    with active_node(ros_node, "/memory", tmp_path / "log", {"features": "on"}) as (monitor, process):
        seen = []
        for second in range(12):
            header = Header(frame_id="lidar")
            header.stamp.sec = second
            check_answers(exchange(monitor, [cloud_message(scans[second % 10], header)]), 4096)
            seen.append(page_faults(process.process.pid))
    assert (seen[-1] - seen[0]) / 11 < 300
