"""``radius-fps replay`` publishes a bag's clouds, raw and in order, and says what is wrong with a bag."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from rclpy.qos import QoSProfile
from rclpy.serialization import serialize_message
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore
from scenarios import random_points, xyzi_cloud
from sensor_msgs.msg import PointCloud2

pytestmark = pytest.mark.ros

CLOUDS = [serialize_message(xyzi_cloud(random_points(200, seed=k), stamp=(k, 0))) for k in range(4)]


def write_bag(path, topics=("/front", "/rear"), clouds=CLOUDS):
    store = get_typestore(Stores.ROS2_KILTED)
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        connections = [writer.add_connection(t, "sensor_msgs/msg/PointCloud2", typestore=store) for t in topics]
        for k, cdr in enumerate(clouds):
            for connection in connections:
                writer.write(connection, 10**9 + k * 10**8, cdr)
    return path


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


def unpadded(received):
    """DDS pads a serialized message to a multiple of four bytes on its way between processes."""
    return [message[: len(cloud)] for message, cloud in zip(received, CLOUDS, strict=False)]


@pytest.mark.parametrize("only", [None, "/rear"])
def test_all_clouds_arrive_raw_and_in_order(ros_node, tmp_path, only):
    front, rear = heard(ros_node, "/front"), heard(ros_node, "/rear_remapped")
    process = replay(
        write_bag(tmp_path / "bag"),
        *(["--topic", only] if only else []),
        *("--rate", 4, "--wait", 10, "--ros-args", "-r", "/rear:=/rear_remapped"),
    )
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    deadline = time.monotonic() + 5
    while len(rear[0]) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert unpadded(rear[0]) == CLOUDS
    assert unpadded(front[0]) == ([] if only else CLOUDS)
    for _, subscription in (front, rear):
        ros_node.destroy_subscription(subscription)


def test_a_loop_ends_with_an_interrupt(ros_node, tmp_path):
    received, subscription = heard(ros_node, "/front")
    process = replay(write_bag(tmp_path / "bag"), "--loop", "--rate", 20)
    deadline = time.monotonic() + 60
    while len(received) < 9:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(2)
    output, _ = process.communicate(timeout=10)
    assert process.returncode == 0, output
    ros_node.destroy_subscription(subscription)


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
    bag = write_bag(tmp_path / "bag")
    damage(bag)
    process = replay(bag, "--wait", 0, *arguments)
    output, _ = process.communicate(timeout=60)
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
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "Traceback" not in output
    assert words in output


def test_a_topic_may_be_named_without_its_slash(ros_environment, tmp_path):
    process = replay(write_clouds(tmp_path / "bag"), "--topic", "front", "--wait", 0)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert "published 2 clouds of /front" in output


@pytest.mark.parametrize("arguments", [["--bogus"], ["more", "words"], ["--ros-args", "-r", "no rule"]])
def test_unknown_arguments_are_refused(ros_environment, tmp_path, arguments):
    process = replay(write_clouds(tmp_path / "bag"), "--wait", 0, *arguments)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "Traceback" not in output
    assert output.count("\n") <= 2, "one sentence, and rcl's own line before it"
