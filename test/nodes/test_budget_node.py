"""The budget through a real node: a load that is injected, what gives way, and that it comes back."""

import re

import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from radius_fps_interfaces.msg import FrameStats
from rclpy.qos import QoSProfile
from rosgraph_msgs.msg import Clock
from scenarios import (
    active_node,
    check_answers,
    exchange,
    in_executor,
    next_diagnostics,
    random_points,
    set_parameters,
    wait_until,
    xyzi_cloud,
)

pytestmark = pytest.mark.ros

N_SAMPLES, MIN_SAMPLES = 256, 16
NAME = "/budget/radius_fps_perception"
USUAL, COSTLY_SAMPLES, COSTLY_FEATURES, LONG = 500, 501, 502, 503  # points, by which the load is told

LOADED = f"""
import time
import radius_fps_ros.frame_features as features, radius_fps_ros.nodes.perception_node as node
from radius_fps_ros.sampling import Sampler
sample, extract = Sampler.__call__, features.FeatureExtractor.__call__
def loaded_sample(self, points, n_samples, *rest):
    time.sleep({{ {COSTLY_SAMPLES}: 1e-3 * n_samples, {LONG}: 1.0 }}.get(len(points), 0.0))
    return sample(self, points, n_samples, *rest)
def loaded_extract(self, cloud, rows, samples):
    time.sleep(0.25 if len(cloud) == {COSTLY_FEATURES} else 0.0)
    return extract(self, cloud, rows, samples)
Sampler.__call__, features.FeatureExtractor.__call__ = loaded_sample, loaded_extract
node.main()
"""


@pytest.fixture(scope="module")
def running(ros_node, tmp_path_factory):
    """A monitor of an active node whose load depends on the size of the clouds, and the path of its log."""
    path = tmp_path_factory.mktemp("budget") / "log"
    parameters = {"n_samples": N_SAMPLES, "min_samples": MIN_SAMPLES, "features": "on", "backend": "cpu"}
    parameters |= {"budget_ms": 150.0, "use_sim_time": True}
    with active_node(ros_node, "/budget", path, parameters, ("-c", LOADED)) as (monitor, _):
        yield monitor, path


def frames(monitor, size, count):
    """The statistics of ``count`` frames of ``size`` points, each answered with exactly the samples it was granted."""
    statistics = []
    for k in range(count):
        (each,) = exchange(monitor, [xyzi_cloud(random_points(size, seed=k))])
        check_answers([each], each.stats.samples_granted)
        assert each.stats.samples_requested == N_SAMPLES
        statistics.append(each.stats)
    return statistics


def until(monitor, size, condition, limit=150):
    """Send frames of ``size`` points until one's statistics fulfil ``condition``; returns them."""
    for _ in range(limit):
        (stats,) = frames(monitor, size, 1)
        if condition(stats):
            return stats
    raise AssertionError(f"it did not happen within {limit} frames")


def is_full(stats):
    return (stats.samples_granted, stats.features_every, stats.message) == (N_SAMPLES, 1, "")


def check_over_budget(ros_node, log, sentence):
    """The diagnostics and the log name what gives way."""
    status, values = next_diagnostics(ros_node, NAME)
    assert status.level == DiagnosticStatus.WARN
    assert "over budget: " in status.message
    assert sentence in status.message
    assert float(values["full_frame_ms"]) > 150
    assert int(values["frames_degraded"]) > 0
    assert re.search(f"over budget: .*{sentence}", log.read_text())
    return values


def check_recovered(ros_node, monitor, log, times):
    """After the load has fallen everything is complete again, and stays so, and nobody warns of the budget."""
    until(monitor, USUAL, is_full)
    status, values = next_diagnostics(ros_node, NAME)
    assert "over budget" not in status.message
    assert (values["samples_granted"], values["features_every"]) == (str(N_SAMPLES), "1")
    assert log.read_text().count("within the budget again") == times


def test_features_give_way_and_come_back(running, ros_node):
    monitor, log = running
    until(monitor, USUAL, is_full)
    until(monitor, COSTLY_FEATURES, lambda stats: stats.features_every > 1)
    thinned = frames(monitor, COSTLY_FEATURES, 9)
    for stats in thinned:
        assert stats.samples == N_SAMPLES, "samples are never touched"
        assert stats.features_every >= 2
        assert stats.message.startswith(f"features for one frame in {stats.features_every}, because a frame with them")
    with_features = [stats for stats in thinned if stats.feature_channels]
    assert 0 < len(with_features) < 6
    assert all(("backbone" in stats.stage_names) == (stats.feature_channels > 0) for stats in thinned)
    assert thinned[-1].frames_degraded > thinned[0].frames_degraded > 0
    check_over_budget(ros_node, log, "features for one frame in ")
    check_recovered(ros_node, monitor, log, times=1)


def test_samples_give_way_and_come_back(running, ros_node):
    monitor, log = running
    assert set_parameters(ros_node, NAME, over_budget="samples") == (True, "")
    before = log.read_text().count("within the budget again")
    until(monitor, COSTLY_SAMPLES, lambda stats: stats.samples_granted < N_SAMPLES)
    for stats in frames(monitor, COSTLY_SAMPLES, 3):
        assert MIN_SAMPLES <= stats.samples == stats.samples_granted < N_SAMPLES
        assert stats.features_every == 1
        assert stats.feature_channels == 64
        assert stats.message.startswith(f"{stats.samples} of {N_SAMPLES} samples, because all would take up to ")
        assert stats.full_milliseconds > 150
    values = check_over_budget(ros_node, log, f"of {N_SAMPLES} samples, because")
    assert MIN_SAMPLES <= int(values["samples_granted"]) < N_SAMPLES
    # More than all samples together can make up for: as few as allowed, late, and told.
    assert set_parameters(ros_node, NAME, min_samples=N_SAMPLES - 1) == (True, "")
    stats = until(monitor, COSTLY_SAMPLES, lambda stats: stats.samples_granted == N_SAMPLES - 1)
    assert stats.status == FrameStats.DEADLINE_MISSED
    assert "even so a frame takes about" in stats.message
    check_recovered(ros_node, monitor, log, times=before + 1)


def test_nothing_gives_way_where_that_is_asked_for(running, ros_node):
    monitor, _ = running
    successful, reason = set_parameters(ros_node, NAME, over_budget="points")
    assert not successful
    assert reason == "parameter over_budget must be one of none, features, samples, not 'points'"
    assert set_parameters(ros_node, NAME, over_budget="none") == (True, "")
    for stats in frames(monitor, COSTLY_SAMPLES, 8):
        assert (stats.samples_granted, stats.features_every, stats.message) == (N_SAMPLES, 1, "")
        assert stats.status == FrameStats.DEADLINE_MISSED
    until(monitor, USUAL, lambda stats: stats.status == FrameStats.ANSWERED)


def seconds(stamp):
    return stamp.sec + stamp.nanosec * 1e-9


def test_a_simulated_clock_that_jumps_back(running, ros_node):
    monitor, _ = running
    assert set_parameters(ros_node, NAME, over_budget="none") == (True, "")
    publisher = ros_node.create_publisher(Clock, "/clock", QoSProfile(depth=10))

    def set_clock(second):
        clock = Clock()
        clock.clock.sec = second
        publisher.publish(clock)

    def answered_at(second):
        set_clock(second)
        (stats,) = frames(monitor, USUAL, 1)
        return seconds(stats.received) == seconds(stats.published) == second and stats.total_milliseconds > 0

    wait_until(lambda: publisher.get_subscription_count() == 1)
    for second in (100, 200, 5, 6):
        wait_until(lambda second=second: answered_at(second))
    # Back while a frame is in work: it is not published before it was received.
    for _ in range(10):
        wait_until(lambda: answered_at(300))
        timer = ros_node.create_timer(0.3, lambda: set_clock(7))
        (each,) = exchange(monitor, [xyzi_cloud(random_points(LONG))])
        ros_node.destroy_timer(timer)
        assert seconds(each.stats.received) <= seconds(each.stats.published)
        if seconds(each.stats.received) == 300:
            break  # on a slow machine the clock may be back before the frame is there
    assert seconds(each.stats.published) == 300
    wait_until(lambda: answered_at(8))
    _, values = next_diagnostics(ros_node, NAME)
    assert float(values["rate_hz"]) > 0
    assert 0 < float(values["latency_ms_p50"]) <= float(values["latency_ms_p99"])
    in_executor(ros_node.executor, ros_node.destroy_publisher, publisher)
