"""Start the Hausdorff node."""

from launch import LaunchDescription
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

from radius_fps_ros.nodes.launching import (
    RESPAWN_DELAY,
    clean_shared_memory_after,
    large_cloud_transport,
    node_arguments,
)


def generate_launch_description() -> LaunchDescription:
    """Arguments and the node."""
    node = Node(
        package="radius_fps_ros",
        executable="hausdorff_node",
        namespace=LaunchConfiguration("namespace"),
        name=LaunchConfiguration("name"),
        parameters=[LaunchConfiguration("params_file"), {"use_sim_time": LaunchConfiguration("use_sim_time")}],
        arguments=["--ros-args", "--log-level", LaunchConfiguration("log_level")],
        respawn=LaunchConfiguration("respawn"),
        respawn_delay=RESPAWN_DELAY,
        output="screen",
    )
    arguments = node_arguments("radius_fps_hausdorff", "hausdorff.yaml")
    return LaunchDescription([*arguments, *large_cloud_transport(), clean_shared_memory_after(node), node])
