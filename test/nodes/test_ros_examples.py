"""The examples with ROS, as processes beside the nodes that they talk to."""

import queue
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import trimesh
from radius_fps_interfaces.srv import CertifyHausdorff
from scenarios import PATIENCE, in_executor, wait_until, xyzi_cloud
from sensor_msgs.msg import PointCloud2

from radius_fps_ros.clouds import decode_cloud
from radius_fps_ros.nodes.processes import NodeProcess

pytestmark = pytest.mark.ros

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PERCEPTION = "/radius_fps_perception"


@contextmanager
def example(name, *arguments):
    """A running example and a queue of the lines it prints; it must end in order at SIGINT."""
    command = [sys.executable, "-u", EXAMPLES / name, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    lines = queue.Queue()
    reader = threading.Thread(target=lambda: [lines.put(line) for line in process.stdout], daemon=True)
    reader.start()
    try:
        yield process, lines
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
        reader.join(5)
        process.stdout.close()


@pytest.fixture(scope="module")
def perception(ros_node):
    parameters = {"features": "on", "backbone_config": "light", "n_samples": 64, "backend": "cpu"}
    with NodeProcess("perception_node", parameters=parameters) as node:
        node.bring_up(ros_node, PERCEPTION)
        yield node


def publish_until(ros_node, condition, timeout=PATIENCE):
    """Publish clouds of 200 points until ``condition()`` holds: what is sent before discovery ends is lost."""
    publisher = ros_node.create_publisher(PointCloud2, "/points", 5)
    points = np.random.default_rng(0).uniform(-20, 20, size=(200, 3)).astype(np.float32)
    points[:, 2] /= 10
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "no answer came"
        publisher.publish(xyzi_cloud(points))
        time.sleep(0.2)
    in_executor(ros_node.executor, ros_node.destroy_publisher, publisher)


def test_read_features(ros_node, perception):
    with example("read_features.py") as (_, lines):
        publish_until(ros_node, lambda: not lines.empty())
        assert lines.get() == "64 samples with 64 channels\n"


def test_colour_by_feature_norm(ros_node, perception):
    features, coloured = [], []
    subscriptions = [
        ros_node.create_subscription(PointCloud2, topic, seen.append, 5)
        for topic, seen in ((f"{PERCEPTION}/features", features), ("/feature_norm", coloured))
    ]
    with example("colour_by_feature_norm.py"):
        publish_until(ros_node, lambda: coloured and features)
    for subscription in subscriptions:
        in_executor(ros_node.executor, ros_node.destroy_subscription, subscription)
    expected, found = decode_cloud(features[0]).records, decode_cloud(coloured[0]).records
    assert coloured[0].header.frame_id == "lidar"
    np.testing.assert_array_equal(found["x"], expected["x"])  # every cloud that is sent is the same
    np.testing.assert_allclose(found["intensity"], np.linalg.norm(expected["features"], axis=1), rtol=1e-5)
    assert found["intensity"].max() > 0


def certify(*arguments, program=EXAMPLES / "certify_from_node.py"):
    return subprocess.run([sys.executable, program, *arguments], capture_output=True, text=True, timeout=240)


def test_certify_from_node(ros_node, tmp_path):
    for name, scale in (("full", 1.0), ("decimated", 0.98)):
        trimesh.creation.icosphere(2, radius=scale).export(tmp_path / f"{name}.ply")
    with NodeProcess("hausdorff_node", parameters={"allowed_roots": [str(tmp_path)]}):
        client = ros_node.create_client(CertifyHausdorff, "/radius_fps_hausdorff/certify")
        wait_until(client.service_is_ready, 120.0)
        in_executor(ros_node.executor, ros_node.destroy_client, client)
        done = certify(tmp_path / "full.ply", tmp_path / "decimated.ply")
        refused = certify(tmp_path / "full.ply", tmp_path / "nothing.ply")
    assert done.returncode == 0, done.stderr
    *message, lower, upper = done.stdout.split()
    assert 0.0 < float(lower) <= 0.02 + 1e-6
    assert float(upper) <= 0.05
    assert message
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert "nothing.ply" in refused.stderr


def test_certify_from_node_says_how_it_is_called():
    done = certify()
    assert (done.returncode, done.stderr) == (1, "usage: python certify_from_node.py FULL DECIMATED\n")


def test_certify_from_node_does_not_wait_for_ever_for_a_node(ros_environment, tmp_path):
    text = (EXAMPLES / "certify_from_node.py").read_text()
    impatient = tmp_path / "impatient.py"
    impatient.write_text(text.replace("timeout_sec=30)", "timeout_sec=1)"))
    assert impatient.read_text() != text
    done = certify("full.ply", "decimated.ply", program=impatient)
    assert done.returncode == 1
    assert "radius_fps_hausdorff does not answer" in done.stderr
