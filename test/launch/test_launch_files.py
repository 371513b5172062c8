"""Arguments of the launch files, and who plays a bag. A stand-in takes the place of `ros2 bag`, which PyPI lacks."""

import logging
import sys
from pathlib import Path

import pytest

for package in ("launch_testing", "launch_ros"):
    pytest.importorskip(package, reason=f"{package} is not installed (a ROS distribution has it)")

from ament_index_python.packages import get_packages_with_prefixes
from launch import LaunchContext, LaunchDescription, LaunchService
from launch.actions import RegisterEventHandler
from launch.event_handlers import OnProcessStart
from launch.launch_description_sources import PythonLaunchDescriptionSource

from radius_fps_ros.errors import RadiusFpsError
from radius_fps_ros.nodes.launching import choose_player

sys.path.insert(0, str(Path(__file__).parent))
from launched import included

LAUNCH = Path(__file__).resolve().parents[2] / "launch"


@pytest.mark.parametrize("file", sorted(LAUNCH.glob("*.launch.py")), ids=lambda file: file.name)
def test_every_argument_has_a_description(file):
    description = PythonLaunchDescriptionSource(str(file)).get_launch_description(LaunchContext())
    arguments = description.get_launch_arguments()
    assert len(arguments) > 5
    assert all(argument.description not in ("", "no description given") for argument in arguments)
    assert len({argument.name for argument in arguments}) == len(arguments)


def test_bringup_offers_no_arguments_that_would_reach_both_nodes_or_none():
    source = PythonLaunchDescriptionSource(str(LAUNCH / "bringup.launch.py"))
    arguments = source.get_launch_description(LaunchContext()).get_launch_arguments()
    assert not {"name", "params_file"} & {argument.name for argument in arguments}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"rviz": "true"}, "rviz:=true needs the package rviz2, which is not installed"),
        ({"bag": "drive.mcap", "player": "rosbag2"}, "player:=rosbag2 needs the command `ros2 bag`"),
        ({"hausdorff": "yes"}, "expected one of [true, 1, false, 0] but got 'yes'"),
        ({"bag": "drive.mcap", "loop": "perhaps"}, "loop:=perhaps cannot be used"),
        ({"bag": "drive.mcap", "rate": "fast"}, "rate:=fast cannot be used"),
    ],
)
def test_bringup_starts_nothing_where_something_is_missing_or_wrong(monkeypatch, caplog, arguments, sentence):
    if "rviz" in arguments and "rviz2" in get_packages_with_prefixes():
        pytest.skip("rviz2 is installed")
    monkeypatch.setenv("PATH", "/nowhere")
    started = []
    note = RegisterEventHandler(OnProcessStart(on_start=lambda event, context: started.append(event.process_name)))
    logging.getLogger("launch").addHandler(caplog.handler)
    service = LaunchService(noninteractive=True)
    service.include_launch_description(LaunchDescription([note, included("bringup", **arguments)]))
    try:
        assert service.run() == 1
    finally:
        logging.getLogger("launch").removeHandler(caplog.handler)
    assert sentence in caplog.text
    assert started == []


def test_all_launch_files_are_found():
    assert {f.name.split(".")[0] for f in LAUNCH.glob("*.launch.py")} == {
        "perception",
        "hausdorff",
        "replay",
        "bringup",
    }


@pytest.fixture
def ros2_bag(tmp_path, monkeypatch):
    """A `ros2` that writes down how it was called, and the Python package that `ros2 bag` comes from."""
    (tmp_path / "ros2").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/called\n')
    (tmp_path / "ros2").chmod(0o755)
    (tmp_path / "ros2bag.py").touch()
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path / "called"


def test_ros2_bag_plays_where_it_is_present(ros2_bag):
    assert [choose_player(wanted) for wanted in ("auto", "rosbag2", "radius_fps")] == [
        "rosbag2",
        "rosbag2",
        "radius_fps",
    ]


def test_the_own_player_plays_elsewhere(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert [choose_player(wanted) for wanted in ("auto", "radius_fps")] == ["radius_fps", "radius_fps"]
    with pytest.raises(RadiusFpsError, match="needs the command `ros2 bag`"):
        choose_player("rosbag2")


def test_the_arguments_reach_ros2_bag(ros2_bag):
    given = {"bag": "a bag", "topic": "top", "points": "points", "rate": "0.5", "loop": "true", "clock": "true"}
    service = LaunchService(noninteractive=True)
    service.include_launch_description(LaunchDescription([included("replay", namespace="left", **given)]))
    assert service.run() == 0
    called = ros2_bag.read_text().splitlines()
    assert called[:3] == ["bag", "play", "a bag"]
    assert called[3:] == [
        *("--rate", "0.5", "--delay", "2.0", "--loop", "--clock"),
        *("--topics", "/top", "--remap", "/top:=/left/points"),
    ]
