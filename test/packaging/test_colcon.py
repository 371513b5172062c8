"""Plain ``colcon build`` in a copy of the sources builds both packages, and sourcing makes everything findable."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed")

pytestmark = [pytest.mark.slow, pytest.mark.ros]

if " " in sys.prefix:
    pytest.skip("colcon's scripts cannot run a Python whose own path has a space", allow_module_level=True)

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("radius_fps_ros", "interfaces", "resource", "launch", "config", "rviz")
FILES = ("package.xml", "setup.py", "setup.cfg", "pyproject.toml", "colcon_defaults.yaml", "README.md", "LICENSE")

LOOK = """
from ament_index_python.packages import get_package_prefix, get_package_share_directory
from pathlib import Path
import radius_fps_ros.cli, radius_fps_interfaces.srv, radius_fps_interfaces.action, radius_fps_interfaces.msg
share, prefix = (Path(f("radius_fps_ros")) for f in (get_package_share_directory, get_package_prefix))
for file in (share / "launch/perception.launch.py", share / "config/perception.yaml", share / "config/fastdds_shm.xml",
             prefix / "lib/radius_fps_ros/perception_node", prefix / "lib/radius_fps_ros/replay_node"):
    assert file.is_file(), file
for found in (radius_fps_ros.__file__, radius_fps_interfaces.__file__, share):
    assert "/install/" in str(found), found
radius_fps_interfaces.srv.CertifyHausdorff.Request()
print("found")
"""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A copy of the sources, in a folder with a space in its name, after ``colcon build``."""
    copy = tmp_path_factory.mktemp("colcon") / "a workspace"
    copy.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, copy / name)
    environment = os.environ | {
        "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}",
        "AMENT_PREFIX_PATH": sys.prefix,
        "CMAKE_PREFIX_PATH": sys.prefix,
    }
    done = subprocess.run(["colcon", "build"], cwd=copy, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 packages finished" in done.stdout
    return copy, environment


def sourced(workspace, *command):
    copy, environment = workspace
    script = f'. "{copy}/install/setup.bash" && exec "$@"'
    return subprocess.run(
        ["bash", "-c", script, "bash", *command], cwd=copy.parent, env=environment, capture_output=True, text=True
    )


def test_everything_is_found_through_the_ament_index(workspace):
    done = sourced(workspace, sys.executable, "-c", LOOK)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "found\n"


def test_the_installed_command_runs(workspace):
    copy, _ = workspace
    command = copy / "install" / "radius_fps_ros" / "lib" / "radius_fps_ros" / "radius-fps"
    done = sourced(workspace, str(command), "--help")
    assert done.returncode == 0, done.stderr
    assert "farthest point sampling" in done.stdout
