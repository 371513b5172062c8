"""Real ROS 2 processes on a domain of their own."""

import os
import threading

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed")

import rclpy
from rclpy.executors import SingleThreadedExecutor

from radius_fps_ros.nodes.processes import use_large_cloud_transport
from radius_fps_ros.nodes.shared_memory import remove_ownerless_segments


@pytest.fixture(scope="session")
def ros_environment():
    """Nobody else's nodes are seen, and large clouds travel through shared memory; child processes inherit it."""
    os.environ["ROS_DOMAIN_ID"] = str(1 + os.getpid() % 100)
    os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    use_large_cloud_transport()
    yield
    remove_ownerless_segments()  # of processes that tests killed: 128 MiB each


@pytest.fixture(scope="module")
def ros_node(ros_environment):
    """A node of the test's own, spinning in a thread; what it has made is destroyed by `scenarios.in_executor`."""
    rclpy.init()
    node = rclpy.create_node("observer")
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    spinner = threading.Thread(target=executor.spin, daemon=True)
    spinner.start()
    yield node
    executor.shutdown(timeout_sec=1.0)
    spinner.join(2.0)
    node.destroy_node()
    rclpy.try_shutdown()
