"""The launch file brings the perception node up; the checks are those of the process tests."""

import sys
import unittest
from contextlib import ExitStack
from pathlib import Path

import pytest

for package in ("launch_testing", "launch_ros"):
    pytest.importorskip(package, reason=f"{package} is not installed (a ROS distribution has it)")

import launch_testing.actions
import launch_testing.markers
from launch import LaunchDescription

from radius_fps_ros.nodes.monitor import StreamMonitor
from radius_fps_ros.nodes.processes import spinning_node

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "nodes")]
from launched import PATIENCE, included, use_own_domain
from scenarios import check_answers, exchange, malformed_clouds, random_points, xyzi_cloud

PERCEPTION = "/launched/radius_fps_perception"


@pytest.mark.launch_test
@launch_testing.markers.keep_alive
def generate_test_description():
    use_own_domain()
    perception = included("perception", namespace="launched", points="lidar/points")
    return LaunchDescription([PATIENCE, perception, launch_testing.actions.ReadyToTest()])


class TestLaunched(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stack = ExitStack()
        node = cls.stack.enter_context(spinning_node("observer"))
        cls.monitor = StreamMonitor(node, PERCEPTION, topic="/launched/lidar/points")
        assert cls.monitor.wait_until_connected(timeout=120), "the launch file did not activate the node"

    @classmethod
    def tearDownClass(cls):
        cls.stack.close()

    def test_it_answers(self):
        check_answers(exchange(self.monitor, [xyzi_cloud(random_points(5000))]), n_samples=4096)

    def test_it_refuses_what_is_malformed(self):
        for message, words in malformed_clouds().values():
            (bad,) = exchange(self.monitor, [message])
            assert words in bad.stats.message


@launch_testing.post_shutdown_test()
class TestAfterShutdown(unittest.TestCase):
    def test_exit_code(self, proc_info):
        launch_testing.asserts.assertExitCodes(proc_info)
