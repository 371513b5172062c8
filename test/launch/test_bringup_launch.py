"""Everything at once, as on a vehicle: two perception nodes, one Hausdorff node, a bag, remapped topics, a crash."""

import os
import signal
import sys
import tempfile
import unittest
from contextlib import ExitStack
from pathlib import Path

import pytest

for package in ("launch_testing", "launch_ros"):
    pytest.importorskip(package, reason=f"{package} is not installed (a ROS distribution has it)")

import launch_testing.actions
import launch_testing.markers
from launch import LaunchDescription
from launch_ros.actions import SetRemap
from rclpy.serialization import serialize_message

from radius_fps_ros.nodes.processes import spinning_node

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "nodes")]
from launched import PATIENCE, included, process_of, use_own_domain
from scenarios import (
    check_answers_again,
    check_certificate_for_another_process,
    check_clouds_of_a_replay,
    check_side_by_side,
    monitors_of_two_sides,
    random_points,
    shared_memory_of,
    wait_until,
    write_bag,
    xyzi_cloud,
)

N_SAMPLES = 50
FOLDER = tempfile.TemporaryDirectory()  # removed when the tests end
RECORDED = [xyzi_cloud(random_points(120, seed=k), stamp=(k, 0)) for k in range(4)]


@pytest.mark.launch_test
@launch_testing.markers.keep_alive
def generate_test_description():
    use_own_domain()
    folder = Path(FOLDER.name)
    bag = write_bag(folder / "bag", ["/front"], [serialize_message(cloud) for cloud in RECORDED])
    parameters = folder / "perception.yaml"
    parameters.write_text(f"/**: {{ros__parameters: {{n_samples: {N_SAMPLES}, features: 'off'}}}}\n")
    common = {"perception_params": str(parameters)}
    vehicle = [
        included("bringup", namespace="left", respawn="true", **common),
        included(
            "bringup",
            SetRemap("~/sampled", "downsampled"),
            namespace="right",
            points="lidar/points",
            hausdorff="false",
            **common,
        ),
        included(
            "bringup",
            namespace="played",
            hausdorff="false",
            bag=str(bag),
            topic="/front",
            loop="true",
            player="radius_fps",
            **common,
        ),
    ]
    return LaunchDescription([PATIENCE, *vehicle, launch_testing.actions.ReadyToTest()])


class TestVehicle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stack = ExitStack()
        cls.node = cls.stack.enter_context(spinning_node("observer"))
        cls.monitors = cls.stack.enter_context(monitors_of_two_sides(cls.node.executor))
        assert all(monitor.wait_until_connected(timeout=120) for monitor in cls.monitors), "a node was not activated"

    @classmethod
    def tearDownClass(cls):
        cls.stack.close()

    def test_1_each_answers_its_own_clouds(self):
        check_side_by_side(self.monitors, N_SAMPLES)

    def test_2_the_replay_reaches_its_perception_node(self):
        check_clouds_of_a_replay(self.node, "/played/radius_fps_perception", RECORDED)

    def test_3_the_hausdorff_node_answers_another_process(self):
        check_certificate_for_another_process("/left/radius_fps_hausdorff")

    def test_4_a_killed_node_is_started_and_activated_again(self):
        pid = process_of("perception_node", "/left")
        segments = shared_memory_of(pid)
        os.kill(pid, signal.SIGKILL)
        check_answers_again(self.monitors[0], N_SAMPLES)
        assert segments
        wait_until(lambda: not any(segment.exists() for segment in segments))


@launch_testing.post_shutdown_test()
class TestAfterShutdown(unittest.TestCase):
    def test_exit_code(self, proc_info):
        launch_testing.asserts.assertExitCodes(proc_info)
