"""``radius-fps replay`` publishes a bag's clouds, raw and in order, and says what is wrong with a bag."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import rclpy
from rclpy.parameter import Parameter
from rclpy.qos import QoSProfile
from rclpy.serialization import serialize_message
from rclpy.time import Time
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore
from rosgraph_msgs.msg import Clock
from scenarios import PATIENCE, in_executor, random_points, wait_until, write_bag, xyzi_cloud
from sensor_msgs.msg import PointCloud2

pytestmark = pytest.mark.ros

CLOUDS = [serialize_message(xyzi_cloud(random_points(200, seed=k), stamp=(k, 0))) for k in range(4)]


def write_clouds(path, topic="/front", seconds=(0, 1), clouds=CLOUDS):
    """A bag of one topic with clouds at the given times."""
    store = get_typestore(Stores.ROS2_KILTED)
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        connection = writer.add_connection(topic, "sensor_msgs/msg/PointCloud2", typestore=store)
        for second, cdr in zip(seconds, clouds, strict=False):
            writer.write(connection, second * 10**9, cdr)
    return path


def replay(*arguments):
    command = [str(Path(sys.executable).with_name("radius-fps")), "replay", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def heard(node, topic):
    received = []
    return received, node.create_subscription(PointCloud2, topic, received.append, QoSProfile(depth=20), raw=True)


def heard_times(node):
    """The times on /clock [ns]; the list grows."""
    times = []
    on_clock = lambda message: times.append(Time.from_msg(message.clock).nanoseconds)  # noqa: E731
    return times, node.create_subscription(Clock, "/clock", on_clock, QoSProfile(depth=200))


def unpadded(received):
    """DDS pads a serialized message to a multiple of four bytes on its way between processes."""
    return [message[: len(cloud)] for message, cloud in zip(received, CLOUDS, strict=False)]


@pytest.mark.parametrize("only", [None, "/rear"])
def test_all_clouds_arrive_raw_and_in_order(ros_node, tmp_path, only):
    front, rear = heard(ros_node, "/front"), heard(ros_node, "/rear_remapped")
    process = replay(
        write_bag(tmp_path / "bag", ["/front", "/rear"], CLOUDS),
        *(["--topic", only] if only else []),
        *("--rate", 4, "--wait", PATIENCE, "--ros-args", "-r", "/rear:=/rear_remapped"),
    )
    output, _ = process.communicate(timeout=3 * PATIENCE)
    assert process.returncode == 0, output
    wait_until(lambda: len(rear[0]) >= 4)
    assert unpadded(rear[0]) == CLOUDS
    assert unpadded(front[0]) == ([] if only else CLOUDS)
    for _, subscription in (front, rear):
        in_executor(ros_node.executor, ros_node.destroy_subscription, subscription)


def test_a_loop_ends_with_an_interrupt(ros_node, tmp_path):
    received, subscription = heard(ros_node, "/front")
    process = replay(write_bag(tmp_path / "bag", ["/front", "/rear"], CLOUDS), "--loop", "--rate", 20)
    wait_until(lambda: len(received) >= 9)
    process.send_signal(2)
    output, _ = process.communicate(timeout=3 * PATIENCE)
    assert process.returncode == 0, output
    in_executor(ros_node.executor, ros_node.destroy_subscription, subscription)


def test_the_clock_shows_the_bag_s_time_and_jumps_back_with_the_loop(ros_node, tmp_path):
    times, subscription = heard_times(ros_node)
    process = replay(
        write_clouds(tmp_path / "bag", seconds=(5000, 5002)), "--loop", "--clock", "--rate", 4, "--wait", 0
    )
    steps = lambda: np.diff(times[:]) * 1e-9  # noqa: E731
    wait_until(lambda: (steps() < -1).sum() == 2)
    process.send_signal(2)
    output, _ = process.communicate(timeout=3 * PATIENCE)
    assert process.returncode == 0, output
    in_executor(ros_node.executor, ros_node.destroy_subscription, subscription)
    back = np.flatnonzero(steps() < 0)
    (round_begin, round_end), full_round = back, np.array(times[back[0] + 1 : back[1] + 1]) * 1e-9
    assert round_end > round_begin + 3, "times between the clouds are published, too"
    assert full_round[0] == pytest.approx(5000, abs=1)
    assert full_round.max() >= 5002, "a cloud's time is on the clock before the cloud"
    assert times[0] >= 5000e9


def test_a_node_with_use_sim_time_follows_the_replay(ros_node, tmp_path):
    parameters = [Parameter("use_sim_time", value=True)]
    follower = rclpy.create_node("follower", parameter_overrides=parameters)
    ros_node.executor.add_node(follower)
    process = replay(write_clouds(tmp_path / "bag", seconds=(7000, 7001)), "--loop", "--clock", "--wait", 0)
    wait_until(lambda: 7000e9 <= follower.get_clock().now().nanoseconds < 7100e9)
    process.send_signal(2)
    assert process.wait(3 * PATIENCE) == 0
    ros_node.executor.remove_node(follower)
    in_executor(ros_node.executor, follower.destroy_node)


def test_without_the_option_there_is_no_clock(ros_node, tmp_path):
    times, subscription = heard_times(ros_node)
    clouds, points = heard(ros_node, "/front")
    process = replay(write_clouds(tmp_path / "bag"), "--rate", 20, "--wait", PATIENCE)
    assert process.wait(3 * PATIENCE) == 0
    wait_until(lambda: len(clouds) == 2)
    assert not times
    for each in (subscription, points):
        in_executor(ros_node.executor, ros_node.destroy_subscription, each)


@pytest.mark.parametrize(
    ("damage", "arguments", "words"),
    [
        (lambda bag: None, ["--topic", "/side"], "/side"),
        (lambda bag: None, ["--rate", "0"], "parameter rate must be a number from 0.001 to 1000, not 0.0"),
        (lambda bag: next(bag.glob("*.mcap")).write_bytes(b""), [], "not a readable bag"),
        (lambda bag: (bag / "metadata.yaml").unlink(), [], None),
    ],
)
def test_a_bad_bag_or_argument_is_one_sentence(ros_environment, tmp_path, damage, arguments, words):
    bag = write_bag(tmp_path / "bag", ["/front", "/rear"], CLOUDS)
    damage(bag)
    process = replay(bag, "--wait", 0, *arguments)
    output, _ = process.communicate(timeout=3 * PATIENCE)
    assert process.returncode == 2
    assert "Traceback" not in output
    errors = [line for line in output.splitlines() if "ERROR" in line]
    assert len(errors) == 1
    assert words is None or words in errors[0]


@pytest.mark.parametrize(
    ("contents", "words"),
    [
        ({"topic": "/not-a-name"}, "has a topic whose name ROS 2 does not allow"),
        ({"seconds": (0, 10**9)}, "has a gap of 1e+09 s after 1 clouds"),
        ({"clouds": [CLOUDS[0], CLOUDS[1][:200]]}, "cloud 1 is no readable PointCloud2"),
        ({"clouds": [b"\0"]}, "cloud 0 is no readable PointCloud2"),
    ],
)
def test_a_bag_that_cannot_be_published_ends_with_one_sentence(ros_environment, tmp_path, contents, words):
    process = replay(write_clouds(tmp_path / "bag", **contents), "--wait", 0)
    output, _ = process.communicate(timeout=3 * PATIENCE)
    assert process.returncode == 2
    assert "Traceback" not in output
    assert words in output


def test_a_topic_may_be_named_without_its_slash(ros_environment, tmp_path):
    process = replay(write_clouds(tmp_path / "bag"), "--topic", "front", "--wait", 0)
    output, _ = process.communicate(timeout=3 * PATIENCE)
    assert process.returncode == 0, output
    assert "published 2 clouds of /front" in output


@pytest.mark.parametrize("arguments", [["--bogus"], ["more", "words"], ["--ros-args", "-r", "no rule"]])
def test_unknown_arguments_are_refused(ros_environment, tmp_path, arguments):
    process = replay(write_clouds(tmp_path / "bag"), "--wait", 0, *arguments)
    output, _ = process.communicate(timeout=3 * PATIENCE)
    assert process.returncode == 2
    assert "Traceback" not in output
    assert output.count("\n") <= 2, "one sentence, and rcl's own line before it"
