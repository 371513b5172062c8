"""What goes wrong around a running node: others that vanish, stall, flood it, or ask for what it does not offer."""

import array
import signal
import subprocess
import sys

import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from radius_fps_interfaces.msg import FrameStats
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.serialization import serialize_message
from scenarios import (
    active_node,
    check_answers,
    exchange,
    in_executor,
    malformed_clouds,
    next_diagnostics,
    random_points,
    set_parameters,
    wait_until,
    xyzi_cloud,
)
from sensor_msgs.msg import PointCloud2

pytestmark = pytest.mark.ros

N_SAMPLES = 32
NAME = "/faults/radius_fps_perception"


@pytest.fixture(scope="module")
def running(ros_node, tmp_path_factory):
    """A monitor of an active node that asks for reliable clouds, and the path of the node's log."""
    path = tmp_path_factory.mktemp("faults") / "log"
    parameters = {"n_samples": N_SAMPLES, "input_reliability": "reliable"}
    with active_node(ros_node, "/faults", path, parameters) as (monitor, _):
        yield monitor, path


@pytest.fixture
def stats(running, ros_node):
    """The statistics that arrive during a test, in order."""
    received = []
    subscription = ros_node.create_subscription(FrameStats, f"{NAME}/stats", received.append, QoSProfile(depth=100))
    monitor, _ = running

    def comes():  # not before the node knows this subscription
        exchange(monitor, [xyzi_cloud(random_points(100))])
        return received

    wait_until(comes)
    yield received
    in_executor(ros_node.executor, ros_node.destroy_subscription, subscription)


def child(program):
    """A process that runs ``program`` with a node of its own, to be killed."""
    begin = "import rclpy, time\nfrom sensor_msgs.msg import PointCloud2\nrclpy.init()\n"
    begin += "node = rclpy.create_node('child')\n"
    return subprocess.Popen([sys.executable, "-c", begin + program])


PUBLISHER = """
from rclpy.serialization import deserialize_message
cloud = deserialize_message(open({path!r}, "rb").read(), PointCloud2)
publisher = node.create_publisher(PointCloud2, "/faults/points", 5)
while True:
    publisher.publish(cloud)
    time.sleep(0.05)
"""


def test_a_publisher_is_killed_and_another_comes(running, stats, tmp_path):
    monitor, _ = running
    for frame_id in ("first", "second"):
        path = tmp_path / frame_id
        path.write_bytes(serialize_message(xyzi_cloud(random_points(100), frame_id=frame_id)))
        process = child(PUBLISHER.format(path=str(path)))
        try:
            wait_until(lambda f=frame_id: sum(s.header.frame_id == f for s in stats) >= 3)
        finally:
            process.kill()
            process.wait()
        check_answers(exchange(monitor, [xyzi_cloud(random_points(200))]), N_SAMPLES)


def test_every_frame_of_a_burst_is_answered_or_counted(running, stats, ros_node):
    publisher = ros_node.create_publisher(PointCloud2, "/faults/points", QoSProfile(depth=50))
    wait_until(lambda: publisher.get_subscription_count() == 1)
    publisher.publish(xyzi_cloud(random_points(100), frame_id="before"))
    wait_until(lambda: stats and stats[-1].header.frame_id == "before")
    before = stats[-1]
    burst = [xyzi_cloud(random_points(100), stamp=(k, 0), frame_id="burst") for k in range(50)]
    for message in burst:
        publisher.publish(message)
    wait_until(lambda: stats[-1].header == burst[-1].header)
    last = stats[-1]
    assert last.status != FrameStats.REFUSED
    assert (last.frame - before.frame) + (last.frames_dropped - before.frames_dropped) == 50
    in_executor(ros_node.executor, ros_node.destroy_publisher, publisher)


def test_a_million_points_between_hundreds(running):
    monitor, _ = running
    sizes = (100, 1_000_000, 100, 1_000_000, 100)
    exchanges = exchange(monitor, [xyzi_cloud(random_points(size)) for size in sizes])
    assert [each.stats.points_in for each in exchanges] == list(sizes)
    check_answers(exchanges, N_SAMPLES)


def test_malformed_frames_between_good_ones(running):
    monitor, _ = running
    clouds = []
    for bad, _ in malformed_clouds().values():
        clouds += [bad, xyzi_cloud(random_points(100))]
    exchanges = exchange(monitor, clouds)
    assert all(each.stats.status == FrameStats.REFUSED for each in exchanges[::2])
    check_answers(exchanges[1::2], N_SAMPLES)
    assert exchanges[-1].stats.frames_refused - exchanges[0].stats.frames_refused == len(malformed_clouds()) - 1


SUBSCRIBER = """
node.create_subscription(PointCloud2, {topic!r}, lambda message: None, 5)
rclpy.spin(node)
"""


def test_a_stopped_subscriber_costs_nobody_else_anything(running, ros_node):
    monitor, _ = running
    topic = f"{NAME}/sampled"
    others = ros_node.count_subscribers(topic)
    process = child(SUBSCRIBER.format(topic=topic))
    try:
        wait_until(lambda: ros_node.count_subscribers(topic) == others + 1)
        process.send_signal(signal.SIGSTOP)
        exchanges = exchange(monitor, [xyzi_cloud(random_points(1000, seed=k)) for k in range(15)])
    finally:
        process.kill()
        process.wait()
    check_answers(exchanges, N_SAMPLES)
    assert exchanges[-1].stats.frames_dropped == exchanges[0].stats.frames_dropped


def mismatch(ros_node, words, expected):
    """Wait until the diagnostics warn with ``words``, or no longer do."""

    def seen():
        status, _ = next_diagnostics(ros_node, NAME)
        assert not expected or status.level == DiagnosticStatus.WARN or words not in status.message
        return (words in status.message) == expected

    wait_until(seen, 60)


def test_an_unreliable_publisher_is_told_of_with_the_fix(running, ros_node):
    monitor, log = running
    words = "a publisher of /faults/points is best effort but input_reliability is reliable"
    for _ in range(2):
        qos = QoSProfile(depth=5, reliability=ReliabilityPolicy.BEST_EFFORT)
        publisher = ros_node.create_publisher(PointCloud2, "/faults/points", qos)
        mismatch(ros_node, words, True)
        in_executor(ros_node.executor, ros_node.destroy_publisher, publisher)
        mismatch(ros_node, words, False)
    assert log.read_text().count(words) == 1
    check_answers(exchange(monitor, [xyzi_cloud(random_points(100))]), N_SAMPLES)


def test_a_subscriber_that_asks_for_too_much_is_told_of_with_the_fix(running, ros_node):
    monitor, log = running
    words = f"a subscriber of {NAME}/sampled asks for transient local durability"
    qos = QoSProfile(depth=5, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    subscription = ros_node.create_subscription(PointCloud2, f"{NAME}/sampled", lambda message: None, qos)
    mismatch(ros_node, words, True)
    in_executor(ros_node.executor, ros_node.destroy_subscription, subscription)
    mismatch(ros_node, words, False)
    assert log.read_text().count(words) == 1
    check_answers(exchange(monitor, [xyzi_cloud(random_points(100))]), N_SAMPLES)


def test_of_a_set_of_parameters_all_are_changed_or_none(running, ros_node):
    monitor, _ = running
    successful, reason = set_parameters(ros_node, NAME, n_samples=5, backend="cuda")
    assert not successful
    assert "read-only parameter: backend" in reason
    check_answers(exchange(monitor, [xyzi_cloud(random_points(300))]), N_SAMPLES)


def test_bytes_that_are_no_cloud_at_all(running, ros_node):
    """A publisher of the right type whose contents do not fit anything."""
    monitor, _ = running
    huge = xyzi_cloud(random_points(3), data=array.array("B"), width=2**31, height=2, point_step=2**31)
    (refused,) = exchange(monitor, [huge])
    assert refused.stats.status == FrameStats.REFUSED
    check_answers(exchange(monitor, [xyzi_cloud(random_points(300))]), N_SAMPLES)
