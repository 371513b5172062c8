"""A signal that comes while a program still imports its node ends it in order too."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PATIENCE = 60.0  # s


def listens(process):
    """Whether the process has taken SIGTERM over."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
    return int(caught, 16) >> (signal.SIGTERM - 1) & 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", ["perception_node", "hausdorff_node"])
def test_a_signal_during_the_imports(name, number):
    program = f"from radius_fps_ros.nodes.programs import {name}; {name}()"
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE) as process:
        try:
            end = time.monotonic() + PATIENCE
            while not listens(process):
                assert time.monotonic() < end
            imported = b"rclpy" in Path(f"/proc/{process.pid}/maps").read_bytes()
            process.send_signal(number)
            _, err = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert not imported, "the signal came too late to show anything"
    assert process.returncode == 0
    assert b"Traceback" not in err
