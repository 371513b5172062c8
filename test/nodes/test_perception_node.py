"""The perception node as a real process, talked to over real middleware."""

import signal
from pathlib import Path

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from lifecycle_msgs.msg import Transition
from radius_fps_interfaces.msg import FrameStats
from scenarios import (
    PATIENCE,
    active_node,
    check_answers,
    exchange,
    malformed_clouds,
    next_diagnostics,
    random_points,
    set_parameters,
    wait_until,
    xyzi_cloud,
)
from sensor_msgs.msg import PointCloud2

from radius_fps_ros.clouds import Cloud, decode_cloud, encode_cloud
from radius_fps_ros.clouds.synthetic import StreetScene, street_scan
from radius_fps_ros.frame_features import FeatureExtractor
from radius_fps_ros.nodes.messages import cloud_message
from radius_fps_ros.nodes.monitor import StreamMonitor
from radius_fps_ros.nodes.processes import NodeProcess
from radius_fps_ros.sampling import farthest_point_sampling
from radius_fps_ros.sparse import load_config

pytestmark = pytest.mark.ros

N_SAMPLES = 64
ROOT = Path(__file__).resolve().parents[2]


def start(namespace, ros_node, log, parameters=None):
    process = NodeProcess("perception_node", namespace=namespace, parameters=parameters, output=log)
    return process, f"{namespace}/radius_fps_perception"


@pytest.fixture(scope="module")
def running(ros_node, tmp_path_factory):
    """An active node and a monitor connected to it; it must end with exit code 0."""
    log = tmp_path_factory.mktemp("perception") / "log"
    with active_node(ros_node, "/main", log, {"n_samples": N_SAMPLES}) as (monitor, process):
        yield monitor, "/main/radius_fps_perception", process


def test_every_frame_is_answered_with_its_own_points(running):
    monitor, _, _ = running
    scans = [encode_cloud(Cloud.of_records(StreetScene().frame(k))) for k in range(3)]
    frames = [cloud_message(scan, xyzi_cloud(random_points(1), stamp=(k, 5)).header) for k, scan in enumerate(scans)]
    exchanges = exchange(monitor, [*frames, xyzi_cloud(random_points(1000), frame_id="another")])
    check_answers(exchanges, N_SAMPLES)
    assert all(each.stats.coverage_radius > 0 and each.stats.total_milliseconds > 0 for each in exchanges)
    assert list(exchanges[0].stats.stage_names) == ["decode", "crop", "sample", "encode", "publish"]


@pytest.mark.parametrize("case", malformed_clouds())
def test_a_malformed_frame_is_refused_in_one_sentence(running, case):
    monitor, _, _ = running
    message, words = malformed_clouds()[case]
    bad, good = exchange(monitor, [message, xyzi_cloud(random_points(200))])
    assert bad.stats.status == FrameStats.REFUSED
    assert words in bad.stats.message
    assert "\n" not in bad.stats.message
    assert bad.sampled is None
    check_answers([good], N_SAMPLES)
    assert good.stats.frames_refused == bad.stats.frames_refused


def test_refused_frames_show_in_the_diagnostics(running, ros_node):
    monitor, name, _ = running
    bad, _ = exchange(monitor, [malformed_clouds()["all NaN"][0], xyzi_cloud(random_points(100))])
    status, values = next_diagnostics(ros_node, name)
    assert status.level == DiagnosticStatus.WARN
    assert int(values["frames_refused"]) == bad.stats.frames_refused >= 1
    assert "none of the cloud's 50 points is finite" in status.message
    assert float(values["latency_ms_p50"]) <= float(values["latency_ms_p99"])
    assert values["backend"] in ("cpu", "cuda")


def test_points_that_are_not_finite_are_never_sampled(running):
    monitor, _, _ = running
    points = random_points(500)
    points[::3] = np.nan
    points[1::7, 2] = np.inf
    check_answers(exchange(monitor, [xyzi_cloud(points)]), N_SAMPLES)


def test_more_samples_than_points_gives_all_distinct_points(running):
    monitor, _, _ = running
    points = np.concatenate([random_points(20), random_points(20)])
    (each,) = exchange(monitor, [xyzi_cloud(points)])
    check_answers([each], N_SAMPLES)
    assert each.stats.samples == 20
    assert "only 20 distinct" in each.stats.message


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"n_samples": 0}, "n_samples"),
        ({"n_samples": "many"}, "parameter n_samples must be an integer from 1 to 1000000, not 'many'"),
        ({"n_samples": 2.5}, "n_samples must be an integer"),
        ({"range_max": float("nan")}, "range_max"),
        ({"range_min": 5.0, "range_max": 1.0}, "range_min=5 must not be above range_max=1"),
        ({"roi_min": [1.0, 2.0]}, "roi_min must be a list of 3 numbers"),
        ({"roi_min": [1.0, 1.0, 1.0], "roi_max": [0.0, 2.0, 2.0]}, "roi_min"),
        ({"backend": "cuda"}, "read-only parameter: backend"),
    ],
)
def test_a_bad_parameter_is_refused_at_run_time(running, ros_node, values, words):
    monitor, name, _ = running
    successful, reason = set_parameters(ros_node, name, **values)
    assert not successful
    assert words in reason
    check_answers(exchange(monitor, [xyzi_cloud(random_points(300))]), N_SAMPLES)


def test_parameters_change_between_frames(running, ros_node):
    monitor, name, _ = running
    points = random_points(2000) * 10
    try:
        assert set_parameters(
            ros_node, name, n_samples=7, range_min=2, range_max=15.0, roi_min=[0.0, -50.0, -50.0]
        ) == (
            True,
            "",
        )
        (each,) = exchange(monitor, [xyzi_cloud(points)])
        distance = np.linalg.norm(points.astype(np.float64), axis=1)
        inside = (distance >= 2) & (distance <= 15) & (points[:, 0] >= 0)
        assert each.stats.points_used == inside.sum()
        assert each.stats.samples == 7
        successful, _ = set_parameters(ros_node, name, range_min=1000.0, range_max=2000.0)
        assert successful
        (nothing,) = exchange(monitor, [xyzi_cloud(points)])
        assert nothing.stats.message == "none of the cloud's 2000 finite points lies in the region of interest"
    finally:
        set_parameters(ros_node, name, n_samples=N_SAMPLES, range_min=0.0, range_max=1e6, roi_min=[])
    check_answers(exchange(monitor, [xyzi_cloud(points)]), N_SAMPLES)


def test_features_at_the_samples(ros_node, tmp_path):
    parameters = {"n_samples": 200, "features": "on", "backend": "cpu", "voxel_features": True, "seed": 3}
    with (tmp_path / "log").open("w+") as log:
        process, name = start("/featured", ros_node, log, parameters)
        with process:
            heard = {"features": [], "voxel_features": []}
            for topic, seen in heard.items():
                ros_node.create_subscription(PointCloud2, f"{name}/{topic}", seen.append, 10)
            monitor = StreamMonitor(ros_node, name, topic="/featured/points")
            process.bring_up(ros_node, name)
            assert monitor.wait_until_connected()
            scan = cloud_message(
                encode_cloud(Cloud.of_records(street_scan(20_000))), xyzi_cloud(random_points(1)).header
            )
            no_intensity = xyzi_cloud(random_points(100), fields=xyzi_cloud(random_points(1)).fields[:3])
            (good,), (bad,) = exchange(monitor, [scan]), exchange(monitor, [no_intensity])
            check_answers([good], 200)
            wait_until(lambda: all(heard.values()))
            text = (tmp_path / "log").read_text()
            assert process.stop() == 0
    features, voxels = (heard[topic][0] for topic in heard)
    assert features.header == scan.header == voxels.header
    assert [(f.name, f.count) for f in features.fields] == [("x", 1), ("y", 1), ("z", 1), ("features", 64)]
    cloud, records = decode_cloud(scan), decode_cloud(features).records
    extractor = FeatureExtractor(load_config(ROOT / "config" / "backbone_light.yaml"), seed=3, backend="cpu")
    expected = extractor(cloud, None, farthest_point_sampling(cloud.xyz, 200).indices)
    np.testing.assert_array_equal(decode_cloud(features).xyz, decode_cloud(good.sampled).xyz)
    np.testing.assert_array_equal(records["features"], expected.records()["features"])
    assert np.abs(records["features"]).max() > 0
    assert len(decode_cloud(voxels)) == len(expected.last_stage())
    assert good.stats.feature_channels == 64
    assert good.stats.voxels == expected.voxels
    assert good.stats.weights == "seeded random weights (seed 3), not trained"
    assert good.stats.weights in text
    assert {"voxelize", "backbone", "gather"} < set(good.stats.stage_names)
    assert bad.sampled is not None, "samples need no intensity"
    assert bad.stats.message.startswith("no features: the cloud has no field intensity")
    assert bad.stats.feature_channels == 0


FAULTY = """
import radius_fps_ros.frame_features as features, radius_fps_ros.nodes.perception_node as node
from radius_fps_ros.errors import BackendError
from radius_fps_ros.pipeline import FramePipeline
process, extract = FramePipeline.process, features.FeatureExtractor.__call__
def process_or_fail(self, message, settings, **options):
    if message.width == 13:
        raise RuntimeError("a line\\nand another")
    if message.width == 19:
        raise MemoryError("no room for 19 points")
    return process(self, message, settings, **options)
def extract_or_fail(self, cloud, rows, samples):
    if len(cloud) == 17:
        raise RuntimeError("no network")
    if len(cloud) == 23:
        raise BackendError("the CUDA device failed")
    return extract(self, cloud, rows, samples)
FramePipeline.process, features.FeatureExtractor.__call__ = process_or_fail, extract_or_fail
node.main()
"""


def test_an_internal_error_costs_one_frame_and_not_the_node(ros_node, tmp_path):
    with (tmp_path / "log").open("w+") as log:
        parameters = {"features": "on", "backend": "cpu", "n_samples": 5}
        process = NodeProcess(
            "perception_node", namespace="/faulty", parameters=parameters, output=log, program=("-c", FAULTY)
        )
        name = "/faulty/radius_fps_perception"
        with process:
            monitor = StreamMonitor(ros_node, name, topic="/faulty/points")
            process.bring_up(ros_node, name)
            assert monitor.wait_until_connected()
            clouds = [xyzi_cloud(random_points(count)) for count in (20, 13, 17, 19, 20)]
            first, failed, featureless, too_large, last = exchange(monitor, clouds)
            check_answers([first, featureless, last], 5)
            assert too_large.stats.status == FrameStats.REFUSED
            assert too_large.stats.message == "out of memory: no room for 19 points"
            assert last.stats.frames_refused == 2
            assert failed.stats.status == FrameStats.REFUSED
            assert failed.stats.message == "internal error: RuntimeError('a line\\nand another')"
            assert featureless.stats.message == "no features: internal error: RuntimeError('no network')"
            assert last.stats.feature_channels == 64
            # A device that is lost under the features: the samples are out already, and the node ends.
            (lost,) = exchange(monitor, [xyzi_cloud(random_points(23))])
            check_answers([lost], 5)
            assert lost.stats.message == "no features: the CUDA device failed"
            assert process.process.wait(PATIENCE) == 1
        text = (tmp_path / "log").read_text()
    assert text.count("Traceback") == 2, "both in the log, and nothing else"


def test_ros_arguments_that_cannot_be_used_are_one_sentence(ros_environment, tmp_path):
    with (tmp_path / "log").open("w+") as log:
        with NodeProcess("perception_node", remappings=["no rule"], output=log) as node:
            assert node.process.wait(PATIENCE) == 2
        text = (tmp_path / "log").read_text()
    # rcl's own line comes first
    assert text.splitlines()[-1].startswith("the ROS arguments cannot be used: ")
    assert "Traceback" not in text


@pytest.mark.parametrize("fault", ["no home", "a file where the log's folder should be"])
def test_a_log_that_ros_cannot_write_is_one_sentence(ros_environment, tmp_path, monkeypatch, fault):
    for name in ("HOME", "ROS_HOME", "ROS_LOG_DIR"):
        monkeypatch.delenv(name, raising=False)
    if fault != "no home":
        (tmp_path / "file").touch()
        monkeypatch.setenv("ROS_LOG_DIR", str(tmp_path / "file"))
    with (tmp_path / "log").open("w+") as log:
        with NodeProcess("perception_node", output=log) as node:
            assert node.process.wait(PATIENCE) == 2
        text = (tmp_path / "log").read_text()
    assert text.startswith("ROS cannot write its log; set ROS_LOG_DIR to a folder where it can: ")
    assert len(text.splitlines()) == 1


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_life_cycle_and_orderly_end(ros_node, tmp_path, stop):
    with (tmp_path / "log").open("w+") as log:
        process, name = start("/cycle", ros_node, log, {"n_samples": N_SAMPLES})
        with process:
            monitor = StreamMonitor(ros_node, name, topic="/cycle/points")
            process.bring_up(ros_node, name)
            assert monitor.wait_until_connected()
            check_answers(exchange(monitor, [xyzi_cloud(random_points(100))]), N_SAMPLES)
            for transition in (
                Transition.TRANSITION_DEACTIVATE,
                Transition.TRANSITION_CLEANUP,
                Transition.TRANSITION_CONFIGURE,
                Transition.TRANSITION_ACTIVATE,
            ):
                assert process.change_state(ros_node, name, transition)
            assert monitor.wait_until_connected()
            (again,) = exchange(monitor, [xyzi_cloud(random_points(100, seed=1))])
            check_answers([again], N_SAMPLES)
            assert again.stats.frame == 1, "counts begin anew with each activation"
            process.process.send_signal(stop)
            assert process.process.wait(PATIENCE) == 0


def test_it_starts_by_itself_when_asked_to(ros_node, tmp_path):
    with (tmp_path / "log").open("w+") as log:
        process, name = start("/alone", ros_node, log, {"n_samples": N_SAMPLES, "autostart": True})
        with process:
            status, values = next_diagnostics(ros_node, name)
            assert (status.message, values["publishers"]) == ("nobody publishes /alone/points", "0")
            assert "active, waiting for clouds on /alone/points" in (tmp_path / "log").read_text()
            monitor = StreamMonitor(ros_node, name, topic="/alone/points")
            assert monitor.wait_until_connected()
            check_answers(exchange(monitor, [xyzi_cloud(random_points(100))]), N_SAMPLES)
            assert process.stop() == 0


def test_a_bad_parameter_at_the_start_refuses_to_configure_and_the_node_stays_up(ros_node, tmp_path):
    with (tmp_path / "log").open("w+") as log:
        process, name = start("/wrong", ros_node, log, {"n_samples": -5, "range_max": "far"})
        with process:
            assert not process.change_state(ros_node, name, Transition.TRANSITION_CONFIGURE)
            log.flush()
            text = (tmp_path / "log").read_text()
            assert "parameter n_samples must be an integer from 1 to 1000000, not -5" in text
            assert "parameter range_max must be a number from 0 to 1000000, not 'far'" in text
            assert "Traceback" not in text
            assert set_parameters(ros_node, name, n_samples=5)[0]
            assert not process.change_state(ros_node, name, Transition.TRANSITION_CONFIGURE)
            assert set_parameters(ros_node, name, range_max=50)[0]
            assert process.change_state(ros_node, name, Transition.TRANSITION_CONFIGURE)
            assert process.stop() == 0
