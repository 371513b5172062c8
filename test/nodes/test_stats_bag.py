"""The bag of statistics of a real node, however its recording ends: in order, killed, or on a disk that is full."""

import contextlib
import resource
import signal
import threading
from types import SimpleNamespace

import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from lifecycle_msgs.msg import Transition
from radius_fps_interfaces.msg import FrameStats
from rclpy.serialization import deserialize_message
from rosbags.highlevel import AnyReader
from rosbags.rosbag2 import Reader
from scenarios import (
    PATIENCE,
    check_answers,
    exchange,
    malformed_clouds,
    next_diagnostics,
    random_points,
    wait_until,
    xyzi_cloud,
)

from radius_fps_ros.nodes import stats_bag
from radius_fps_ros.nodes.monitor import StreamMonitor
from radius_fps_ros.nodes.processes import NodeProcess
from radius_fps_ros.nodes.shared_memory import remove_ownerless_segments
from radius_fps_ros.nodes.whole_mcap import WholeBag

pytestmark = pytest.mark.ros

N_SAMPLES = 5
NAME = "/recorded/radius_fps_perception"
TOPIC = f"{NAME}/stats"


@contextlib.contextmanager
def recording(ros_node, folder, bag, program=None):
    """Yields (monitor, process) of an active node that records; the test may end it."""
    parameters = {"n_samples": N_SAMPLES, "features": "off", "stats_bag": str(bag)}
    with (
        (folder / "log").open("a") as log,
        NodeProcess(
            "perception_node", namespace="/recorded", parameters=parameters, output=log, program=program
        ) as process,
    ):
        monitor = StreamMonitor(ros_node, NAME, topic="/recorded/points", keep=100)
        process.bring_up(ros_node, NAME)
        assert monitor.wait_until_connected()
        yield monitor, process


def end(process, by):
    process.process.send_signal(by)
    assert process.process.wait(PATIENCE) == (0 if by != signal.SIGKILL else -signal.SIGKILL)
    if by == signal.SIGKILL:
        remove_ownerless_segments()


def clouds(count):
    return [xyzi_cloud(random_points(20, seed=k), stamp=(k, 0)) for k in range(count)]


def answered(monitor, count):
    """The statistics of ``count`` frames that the node answers one by one."""
    exchanges = exchange(monitor, clouds(count))
    check_answers(exchanges, N_SAMPLES)
    return [each.stats for each in exchanges]


def wait_until_recorded(ros_node, count):
    """Wait until as many frames stand in the bag; returns the diagnostics that say so."""
    seen = []

    def all_recorded():
        seen[:] = next_diagnostics(ros_node, NAME)
        return seen[1]["frames_recorded"] == str(count)

    wait_until(all_recorded)
    return seen


def recorded(bag):
    """The statistics in a bag or in its file, checked for their topic, type and times."""
    with Reader(bag) as reader:
        messages = [(time, deserialize_message(cdr, FrameStats)) for _, time, cdr in reader.messages()]
        for connection in reader.connections:
            assert (connection.topic, connection.msgtype) == (TOPIC, "radius_fps_interfaces/msg/FrameStats")
    for time, stats in messages:
        assert time == stats.published.sec * 10**9 + stats.published.nanosec
    return [stats for _, stats in messages]


def test_every_frame_is_recorded_and_each_activation_has_its_bag(ros_node, tmp_path):
    bag = tmp_path / "drives" / "stats"
    with recording(ros_node, tmp_path, bag) as (monitor, process):
        first = answered(monitor, 20)
        (refused,) = exchange(monitor, [malformed_clouds()["all NaN"][0]])
        first.append(refused.stats)
        assert process.change_state(ros_node, NAME, Transition.TRANSITION_DEACTIVATE)
        assert recorded(bag) == first
        assert process.change_state(ros_node, NAME, Transition.TRANSITION_ACTIVATE)
        assert monitor.wait_until_connected()
        second = answered(monitor, 3)
        status, values = wait_until_recorded(ros_node, 3)
        assert (status.level, values["stats_bag"]) == (DiagnosticStatus.OK, f"{bag}_1")
        (endpoint,) = ros_node.get_publishers_info_by_topic(TOPIC)
        for transition in (Transition.TRANSITION_DEACTIVATE, Transition.TRANSITION_ACTIVATE):
            assert process.change_state(ros_node, NAME, transition)
        end(process, signal.SIGINT)  # an activation without a frame leaves no bag
    assert recorded(bag) == first
    assert recorded(f"{bag}_1") == second
    assert sorted(path.name for path in bag.parent.iterdir()) == ["stats", "stats_1"]
    # A reader that knows neither ROS nor this package finds the type in the bag.
    with AnyReader([bag]) as reader:
        (connection,) = reader.connections
        assert connection.digest == str(endpoint.topic_type_hash)
        *_, last = [reader.deserialize(cdr, connection.msgtype) for _, _, cdr in reader.messages()]
        assert (last.frame, last.status, last.message) == (21, last.REFUSED, refused.stats.message)
        (qos,) = connection.ext.offered_qos_profiles
        assert (qos.depth, qos.reliability.name, qos.durability.name) == (5, "RELIABLE", "VOLATILE")
    log = (tmp_path / "log").read_text()
    assert f"{TOPIC} is recorded in {bag}_1\n" in log
    assert "Traceback" not in log


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_bag_is_readable_however_its_node_ends_and_the_next_start_leaves_it_alone(ros_node, tmp_path, by):
    bag, file = tmp_path / "stats", tmp_path / "stats" / "stats.mcap"
    (tmp_path / "stats_1").write_text("something else")
    with recording(ros_node, tmp_path, bag) as (monitor, process):
        frames = answered(monitor, 30)
        wait_until_recorded(ros_node, 30)
        assert recorded(file) == frames  # while the bag is open
        end(process, by)
    # Without metadata a bag is named by its file.
    assert (bag / "metadata.yaml").exists() == (by != signal.SIGKILL)
    assert recorded(file) == frames
    with recording(ros_node, tmp_path, bag) as (monitor, process):
        others = answered(monitor, 2)
        end(process, signal.SIGINT)
    assert recorded(file) == frames
    assert recorded(tmp_path / "stats_2") == others
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_a_disk_that_is_full_ends_the_recording_and_nothing_else(ros_node, tmp_path):
    bag, file = tmp_path / "stats", tmp_path / "stats" / "stats.mcap"
    with recording(ros_node, tmp_path, bag) as (monitor, process):
        frames = answered(monitor, 10)
        wait_until_recorded(ros_node, 10)
        # The process may write no file beyond the room of 20 frames more.
        room = file.stat().st_size * 3, resource.RLIM_INFINITY
        resource.prlimit(process.process.pid, resource.RLIMIT_FSIZE, room)
        frames += answered(monitor, 40)
        status, values = next_diagnostics(ros_node, NAME)
        kept = int(values["frames_recorded"])
        assert 20 < kept < 50
        sentence = f"{TOPIC} is no longer recorded: File too large; {bag} holds the {kept} frames before"
        assert (status.level, status.message) == (DiagnosticStatus.WARN, sentence)
        assert values["frames_answered"] == "50"
        assert recorded(file) == frames[:kept]
        # There is room again: the next activation records in the next bag.
        resource.prlimit(process.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        assert process.change_state(ros_node, NAME, Transition.TRANSITION_DEACTIVATE)
        assert process.change_state(ros_node, NAME, Transition.TRANSITION_ACTIVATE)
        assert monitor.wait_until_connected()
        others = answered(monitor, 2)
        end(process, signal.SIGTERM)
    assert recorded(file) == frames[:kept]
    assert recorded(tmp_path / "stats_1") == others
    log = (tmp_path / "log").read_text()
    assert log.count(sentence) == 1
    assert "Traceback" not in log


def test_a_folder_that_cannot_be_made_is_told_of_and_frames_are_answered(ros_node, tmp_path):
    (tmp_path / "file").touch()
    bag = tmp_path / "file" / "stats"
    with recording(ros_node, tmp_path, bag) as (monitor, process):
        answered(monitor, 2)
        status, values = next_diagnostics(ros_node, NAME)
        sentence = f"{TOPIC} is not recorded in {bag}: Not a directory"
        assert (status.level, status.message) == (DiagnosticStatus.WARN, sentence)
        assert values["frames_recorded"] == "0"
        end(process, signal.SIGTERM)
    log = (tmp_path / "log").read_text()
    assert log.count(sentence) == 1
    assert "Traceback" not in log


DEVICE_FAILS = """
import radius_fps_ros.nodes.perception_node as node
from radius_fps_ros.errors import BackendError
from radius_fps_ros.pipeline import FramePipeline
process = FramePipeline.process
def process_or_fail(self, message, settings, **options):
    if message.width == 13:
        raise BackendError("the CUDA device failed: injected")
    return process(self, message, settings, **options)
FramePipeline.process = process_or_fail
node.main()
"""


def test_the_frame_that_ended_the_node_is_the_last_in_the_bag(ros_node, tmp_path):
    with recording(ros_node, tmp_path, tmp_path / "stats", ("-c", DEVICE_FAILS)) as (monitor, process):
        frames = answered(monitor, 3)
        (failed,) = exchange(monitor, [xyzi_cloud(random_points(13))])
        assert process.process.wait(PATIENCE) == 1
    assert recorded(tmp_path / "stats") == [*frames, failed.stats]
    assert failed.stats.message == "the CUDA device failed: injected"


def test_a_disk_that_stalls_holds_up_no_frame_and_loses_none_that_wait(ros_node, tmp_path, monkeypatch):
    write, stalled, warned = WholeBag.write, threading.Event(), []

    def write_late(self, *message):
        stalled.wait()
        write(self, *message)

    monkeypatch.setattr(WholeBag, "write", write_late)
    monkeypatch.setattr(stats_bag, "WAITING", 10)
    logger = SimpleNamespace(info=warned.append, warning=warned.append, error=warned.append)
    bag = stats_bag.StatsBag(str(tmp_path / "stats"), TOPIC, logger)
    frames = [FrameStats(frame=k) for k in range(12)]
    bag.record(frames[0])
    wait_until(lambda: bag._queue.empty())  # it is being written
    for stats in frames[1:]:
        bag.record(stats)
    bag.close(0.01)
    assert warned == [
        f"{TOPIC} is recorded in {tmp_path}/stats",
        f"{TOPIC} is not recorded in {tmp_path}/stats: 10 frames wait for the disk",
        f"{tmp_path}/stats is not finished after 0.01 s: the disk is slow",
    ]
    stalled.set()
    bag.close(PATIENCE)
    assert recorded(tmp_path / "stats") == frames[:11]
    assert len(warned) == 3
