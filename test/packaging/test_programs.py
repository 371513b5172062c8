"""Where ROS 2 or the built interfaces are missing, as after installing a wheel, a program says so in one sentence."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run_without_site_packages(program, *folders):
    code = f"import sys; sys.path += {[str(folder) for folder in (ROOT, *folders)]}\n"
    code += f"from radius_fps_ros.nodes.programs import {program}; {program}()"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True)
    return done.returncode, done.stderr


@pytest.mark.parametrize("program", ["perception_node", "hausdorff_node", "replay_node"])
def test_ros_is_missing(program):
    code, err = run_without_site_packages(program)
    assert code == 2
    assert err == f"{program} needs ROS 2: source its setup file, or run `make setup` and use .venv\n"


@pytest.mark.parametrize("program", ["perception_node", "hausdorff_node"])
def test_the_interfaces_are_missing(program, tmp_path):
    (tmp_path / "rclpy.py").touch()
    code, err = run_without_site_packages(program, tmp_path)
    assert code == 2
    assert err.startswith(f"{program} needs radius_fps_interfaces: build it")
    assert err.count("\n") == 1
