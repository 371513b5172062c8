"""Start the Hausdorff node."""

from pathlib import Path

from ament_index_python.packages import get_package_share_directory
from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

SHARE = Path(get_package_share_directory("radius_fps_ros"))


def generate_launch_description() -> LaunchDescription:
    """Arguments and the node."""
    return LaunchDescription(
        [
            DeclareLaunchArgument("namespace", default_value="", description="Namespace of the node."),
            DeclareLaunchArgument("name", default_value="radius_fps_hausdorff", description="Name of the node."),
            DeclareLaunchArgument(
                "params_file",
                default_value=str(SHARE / "config" / "hausdorff.yaml"),
                description="YAML file with the node's parameters.",
            ),
            DeclareLaunchArgument("log_level", default_value="info", description="debug, info, warn, error or fatal."),
            Node(
                package="radius_fps_ros",
                executable="hausdorff_node",
                namespace=LaunchConfiguration("namespace"),
                name=LaunchConfiguration("name"),
                parameters=[LaunchConfiguration("params_file")],
                arguments=["--ros-args", "--log-level", LaunchConfiguration("log_level")],
                output="screen",
            ),
        ]
    )
