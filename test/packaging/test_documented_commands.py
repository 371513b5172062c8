"""Every command in the documents is run as printed, or checked as far as this machine can go."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import trimesh
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

from radius_fps_ros.clouds import Cloud, encode_cloud, write_cloud
from radius_fps_ros.clouds.synthetic import street_scan

ROOT = Path(__file__).resolve().parents[2]
COMMAND = Path(sys.executable).with_name("radius-fps")
ENVIRONMENT = {**os.environ, "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
STARTED = {"perception_node": "backend cpu", "hausdorff_node": "ready", "radius-fps": "published"}
# What only a ROS 2 workspace, the network, or the user's own machine has.
NEEDS_MORE = ("cd ", "rosdep ", "pip install ", "colcon build", ". install/", "export FASTDDS_", "ros2 lifecycle ")


def printed_commands():
    found = {}
    for name, commands in printed_blocks():
        for command in commands:
            found.setdefault(command, name)
    return [pytest.param(command, id=f"{name}: {command}") for command, name in found.items() if command]


def printed_blocks():
    for document in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for block in re.findall(r"^```bash\n(.*?)^```", document.read_text(), re.DOTALL | re.MULTILINE):
            yield document.name, [re.sub(r"\s+#.*", "", line).strip() for line in block.splitlines()]


COMMANDS = printed_commands()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The files that the commands name."""
    folder = tmp_path_factory.mktemp("documented")
    scan = Cloud.of_records(street_scan(6000))
    write_cloud(folder / "scan.pcd", scan.records)
    sphere = trimesh.creation.icosphere(subdivisions=3)
    for name in ("full", "map", "scan"):
        sphere.export(folder / f"{name}.ply")
    trimesh.creation.icosphere(subdivisions=2).export(folder / "decimated.ply")
    write_drive(folder / "drive", scan)
    shutil.copy(next((folder / "drive").glob("*.mcap")), folder / "drive.mcap")
    return folder


def write_drive(path, scan):
    store = get_typestore(Stores.ROS2_KILTED)
    types = store.types
    header = types["std_msgs/msg/Header"](types["builtin_interfaces/msg/Time"](1, 0), "lidar")
    data = encode_cloud(scan)
    fields = [types["sensor_msgs/msg/PointField"](f.name, f.offset, f.datatype, f.count) for f in data.fields]
    cloud = types["sensor_msgs/msg/PointCloud2"](
        header, data.height, data.width, fields, data.is_bigendian, data.point_step, data.row_step,
        np.frombuffer(data.data, np.uint8), data.is_dense,
    )  # fmt: skip
    tf = types["tf2_msgs/msg/TFMessage"]([])
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        for topic, message in (("/lidar_top", cloud), ("/tf", tf), ("/tf_static", tf)):
            connection = writer.add_connection(topic, message.__msgtype__, typestore=store)
            for k in range(2):
                serialized = store.serialize_cdr(message, message.__msgtype__)
                writer.write(connection, 10**9 + k * 10**8, serialized)


def test_the_commands_of_one_block_can_follow_each_other():
    """`process` refuses an output that is complete; each other test begins without one."""
    for name, commands in printed_blocks():
        outputs = re.findall(r" process .* -o (\S+)", "\n".join(commands))
        assert len(outputs) == len(set(outputs)), name


@pytest.mark.parametrize("command", COMMANDS)
def test_a_printed_command(command, folder):
    if command.startswith(NEEDS_MORE):
        pytest.skip("needs a ROS 2 workspace")
    program, *arguments = shlex.split(command)
    if program == "make":
        assert re.search(rf"^{arguments[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif program == ".venv/bin/python":
        assert f'"{Path(arguments[0]).name}"' in (ROOT / "test/nodes/test_ros_examples.py").read_text(), (
            "no test runs it"
        )
    elif program.startswith(".venv/bin/"):
        check_start(Path(program).name, arguments, folder)
    elif program == "ros2":
        check_launch(arguments)
    elif program == "python":
        assert arguments == ["-m", "pytest", "-m", "gpu", "-q"], "say here how another one is checked"
        assert '"gpu: ' in (ROOT / "pyproject.toml").read_text()
    else:
        assert program == "radius-fps", f"nothing here runs {command}"
        run(arguments, folder)


def check_start(name, arguments, folder):
    """What runs until it is interrupted says that it has started, nothing wrong, and ends in order."""
    pytest.importorskip("rclpy", reason="ROS 2 is not installed")
    log = folder / f"{name}.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [COMMAND.with_name(name), *arguments], cwd=folder, stdout=output, stderr=output, env=ENVIRONMENT
        )
        try:
            deadline = time.monotonic() + 120
            while STARTED[name] not in log.read_text():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0, log.read_text()
        finally:
            process.kill()
    assert "ERROR" not in log.read_text()


def check_launch(arguments):
    """The launch file exists and declares the arguments; those of the files it includes count as its own."""
    assert arguments[:2] == ["launch", "radius_fps_ros"]
    text = (ROOT / "launch" / arguments[2]).read_text() + (ROOT / "radius_fps_ros/nodes/launching.py").read_text()
    declared = set(re.findall(r'(?:argument|DeclareLaunchArgument)\(\s*"(\w+)"', text))
    assert {argument.partition(":=")[0] for argument in arguments[3:]} <= declared


def run(arguments, folder):
    if arguments[0] == "bench":
        arguments = [*arguments, "--help"]  # its own tests run it
    if arguments[0] == "replay":
        pytest.importorskip("rclpy", reason="ROS 2 is not installed")
    if "-o" in arguments:
        output = folder / arguments[arguments.index("-o") + 1]
        shutil.rmtree(output, ignore_errors=True)
    done = subprocess.run(
        [COMMAND, *arguments], cwd=folder, capture_output=True, text=True, timeout=300, env=ENVIRONMENT
    )
    assert done.returncode == 0, done.stderr
    for option in ("-o", "--picture"):
        if option in arguments:
            assert (folder / arguments[arguments.index(option) + 1]).exists()


def test_the_commands_were_found():
    programs = {re.match(r"\S+", parameter.values[0]).group() for parameter in COMMANDS}
    assert {"make", "ros2", "radius-fps", "colcon"} <= programs
    assert len(COMMANDS) > 20
