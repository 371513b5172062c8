"""The launch file brings the perception node up; the checks are those of the process tests."""

import os
import sys
import threading
import unittest
from pathlib import Path

import pytest

for package in ("launch_testing", "launch_ros"):
    pytest.importorskip(package, reason=f"{package} is not installed (a ROS distribution has it)")

import launch_testing.actions
import launch_testing.markers
import rclpy
from ament_index_python.packages import get_package_share_directory
from launch import LaunchDescription
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
from rclpy.executors import SingleThreadedExecutor

from radius_fps_ros.nodes.monitor import StreamMonitor
from radius_fps_ros.nodes.processes import use_large_cloud_transport

sys.path.insert(0, str(Path(__file__).parent.parent / "nodes"))
from scenarios import check_answers, exchange, malformed_clouds, random_points, xyzi_cloud

PERCEPTION = "/launched/radius_fps_perception"


@pytest.mark.launch_test
@launch_testing.markers.keep_alive
def generate_test_description():
    os.environ["ROS_DOMAIN_ID"] = str(1 + os.getpid() % 100)
    os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    use_large_cloud_transport()
    file = Path(get_package_share_directory("radius_fps_ros")) / "launch" / "perception.launch.py"
    arguments = {"namespace": "launched", "points": "lidar/points"}.items()
    include = IncludeLaunchDescription(PythonLaunchDescriptionSource(str(file)), launch_arguments=arguments)
    return LaunchDescription([include, launch_testing.actions.ReadyToTest()])


class TestLaunched(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        rclpy.init()
        cls.node = rclpy.create_node("observer")
        cls.executor = SingleThreadedExecutor()
        cls.executor.add_node(cls.node)
        threading.Thread(target=cls.executor.spin, daemon=True).start()
        cls.monitor = StreamMonitor(cls.node, PERCEPTION, topic="/launched/lidar/points")
        assert cls.monitor.wait_until_connected(timeout=120), "the launch file did not activate the node"

    @classmethod
    def tearDownClass(cls):
        cls.executor.shutdown(timeout_sec=1.0)
        cls.node.destroy_node()
        rclpy.try_shutdown()

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
