"""Start the perception node, configure and activate it."""

from launch import LaunchDescription
from launch.conditions import IfCondition
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import LifecycleNode

from radius_fps_ros.nodes.launching import (
    RESPAWN_DELAY,
    argument,
    bring_up_whenever_started,
    clean_shared_memory_after,
    large_cloud_transport,
    node_arguments,
)


def generate_launch_description() -> LaunchDescription:
    """Arguments, the node, and its way to the active state."""
    arguments = [
        *node_arguments("radius_fps_perception", "perception.yaml"),
        argument("points", "points", "Topic of the incoming PointCloud2."),
        argument("autostart", "true", "Configure and activate at once; false leaves it to you."),
    ]
    node = LifecycleNode(
        package="radius_fps_ros",
        executable="perception_node",
        namespace=LaunchConfiguration("namespace"),
        name=LaunchConfiguration("name"),
        parameters=[LaunchConfiguration("params_file"), {"use_sim_time": LaunchConfiguration("use_sim_time")}],
        remappings=[("points", LaunchConfiguration("points"))],
        arguments=["--ros-args", "--log-level", LaunchConfiguration("log_level")],
        respawn=LaunchConfiguration("respawn"),
        respawn_delay=RESPAWN_DELAY,
        output="screen",
    )
    autostart = bring_up_whenever_started(node, IfCondition(LaunchConfiguration("autostart")))
    return LaunchDescription([*arguments, *large_cloud_transport(), autostart, clean_shared_memory_after(node), node])
