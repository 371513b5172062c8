"""Start the perception node, configure and activate it."""

import os
from pathlib import Path

from ament_index_python.packages import get_package_share_directory
from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, EmitEvent, RegisterEventHandler, SetEnvironmentVariable
from launch.conditions import IfCondition
from launch.events import matches_action
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import LifecycleNode
from launch_ros.event_handlers import OnStateTransition
from launch_ros.events.lifecycle import ChangeState
from lifecycle_msgs.msg import Transition

SHARE = Path(get_package_share_directory("radius_fps_ros"))


def generate_launch_description() -> LaunchDescription:
    """Arguments, the node, and its way to the active state."""
    arguments = [
        DeclareLaunchArgument("points", default_value="points", description="Topic of the incoming PointCloud2."),
        DeclareLaunchArgument("namespace", default_value="", description="Namespace of the node."),
        DeclareLaunchArgument("name", default_value="radius_fps_perception", description="Name of the node."),
        DeclareLaunchArgument(
            "params_file",
            default_value=str(SHARE / "config" / "perception.yaml"),
            description="YAML file with the node's parameters.",
        ),
        DeclareLaunchArgument("use_sim_time", default_value="false", description="Take the time from /clock."),
        DeclareLaunchArgument(
            "autostart", default_value="true", description="Configure and activate at once; false leaves it to you."
        ),
        DeclareLaunchArgument("log_level", default_value="info", description="debug, info, warn, error or fatal."),
    ]
    node = LifecycleNode(
        package="radius_fps_ros",
        executable="perception_node",
        namespace=LaunchConfiguration("namespace"),
        name=LaunchConfiguration("name"),
        parameters=[LaunchConfiguration("params_file"), {"use_sim_time": LaunchConfiguration("use_sim_time")}],
        remappings=[("points", LaunchConfiguration("points"))],
        arguments=["--ros-args", "--log-level", LaunchConfiguration("log_level")],
        output="screen",
    )
    autostart = IfCondition(LaunchConfiguration("autostart"))
    configure = EmitEvent(
        event=ChangeState(lifecycle_node_matcher=matches_action(node), transition_id=Transition.TRANSITION_CONFIGURE),
        condition=autostart,
    )
    activate = RegisterEventHandler(
        OnStateTransition(
            target_lifecycle_node=node,
            start_state="configuring",
            goal_state="inactive",
            entities=[
                EmitEvent(
                    event=ChangeState(
                        lifecycle_node_matcher=matches_action(node), transition_id=Transition.TRANSITION_ACTIVATE
                    )
                )
            ],
        ),
        condition=autostart,
    )
    return LaunchDescription([*arguments, *_large_cloud_transport(), activate, node, configure])


def _large_cloud_transport() -> list[SetEnvironmentVariable]:
    # With Fast DDS's defaults every large best-effort cloud is lost; config/fastdds_shm.xml says why.
    if "FASTDDS_DEFAULT_PROFILES_FILE" in os.environ:
        return []
    return [SetEnvironmentVariable("FASTDDS_DEFAULT_PROFILES_FILE", str(SHARE / "config" / "fastdds_shm.xml"))]
