"""Ctrl-C while a launch has just begun: launch takes it as a KeyboardInterrupt wherever its main thread is."""

import os
import signal
import subprocess
import sys
import time

import pytest

for package in ("launch_testing", "launch_ros"):
    pytest.importorskip(package, reason=f"{package} is not installed (a ROS distribution has it)")

PROGRAM = f"""
import sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
from launch import LaunchDescription, LaunchService
from launched import included, use_own_domain
use_own_domain()
service = LaunchService()
service.include_launch_description(LaunchDescription([included("perception")]))
sys.exit(service.run())
"""


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.1, 0.3, 0.5, 1.0])
def test_an_interrupt_while_the_node_starts_ends_the_launch(tmp_path, delay):
    path = tmp_path / "log"
    with path.open("w") as log:
        process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while "process started" not in path.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.005)
        time.sleep(delay)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(20) == 0
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
