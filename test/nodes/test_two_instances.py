"""Nodes side by side as they run on a vehicle: namespaces, remapped topics, a crash, a service call from outside.

test/launch checks the same through the launch files, where launch is installed.
"""

from contextlib import ExitStack

import pytest
from scenarios import (
    check_answers_again,
    check_certificate_for_another_process,
    check_side_by_side,
    monitors_of_two_sides,
    shared_memory_of,
    wait_until,
)

from radius_fps_ros.nodes.monitor import StreamMonitor
from radius_fps_ros.nodes.processes import NodeProcess, spinning_node
from radius_fps_ros.nodes.shared_memory import remove_ownerless_segments

pytestmark = pytest.mark.ros

N_SAMPLES = 50


@pytest.fixture(scope="module")
def vehicle(ros_node):
    """Two perception nodes, the second with remapped topics, and the Hausdorff node; all must end with exit code 0."""
    parameters = {"n_samples": N_SAMPLES, "features": "off"}
    remappings = ["points:=lidar/points", "~/sampled:=downsampled"]
    with ExitStack() as stack:
        left = stack.enter_context(NodeProcess("perception_node", namespace="/left", parameters=parameters))
        right = stack.enter_context(
            NodeProcess("perception_node", namespace="/right", parameters=parameters, remappings=remappings)
        )
        maps = stack.enter_context(NodeProcess("hausdorff_node", namespace="/vehicle"))
        monitors = stack.enter_context(monitors_of_two_sides(ros_node.executor))
        for process, side in ((left, "left"), (right, "right")):
            process.bring_up(ros_node, f"/{side}/radius_fps_perception")
        assert all(monitor.wait_until_connected() for monitor in monitors)
        yield monitors
        assert [process.stop() for process in (left, right, maps)] == [0, 0, 0]


def test_each_answers_its_own_clouds(vehicle):
    check_side_by_side(vehicle, N_SAMPLES)


def test_the_hausdorff_node_answers_another_process_beside_them(vehicle):
    check_certificate_for_another_process("/vehicle/radius_fps_hausdorff")


def test_after_a_crash_the_node_can_be_started_again(ros_node, tmp_path):
    name = "/crashing/radius_fps_perception"
    monitor = StreamMonitor(ros_node, name, topic="/crashing/points")
    for start in range(2):
        with NodeProcess("perception_node", namespace="/crashing", parameters={"n_samples": N_SAMPLES}) as process:
            with spinning_node("bring_up") as ros:  # ros_node still counts the killed process as present
                process.bring_up(ros, name)
            check_answers_again(monitor, N_SAMPLES, first_stamp=1000 * start)
            segments = shared_memory_of(process.process.pid)
            process.process.kill()  # a crash: nobody is told
            process.process.wait()
        assert segments
        wait_until(lambda: remove_ownerless_segments() >= 0 and not any(file.exists() for file in segments))  # noqa: B023
