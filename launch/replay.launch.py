"""Play the clouds of a bag: by `ros2 bag play` where it is present, else by this package's replay node."""

from launch import Action, LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, ExecuteProcess, OpaqueFunction
from launch.substitutions import LaunchConfiguration
from launch.utilities.type_utils import get_typed_value
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue
from launch_ros.utilities import make_namespace_absolute, prefix_namespace

from radius_fps_ros.nodes.launching import (
    REPLAY_TYPES,
    argument,
    choose_player,
    large_cloud_transport,
    replay_arguments,
)


def generate_launch_description() -> LaunchDescription:
    """Arguments and the player; the launch ends with the bag."""
    arguments = [
        DeclareLaunchArgument("bag", description="Folder, metadata.yaml, .db3 or .mcap file of the bag."),
        *replay_arguments(),
        argument("namespace", "", "Namespace of the player and of a relative name in points."),
    ]
    return LaunchDescription([*arguments, *large_cloud_transport(), OpaqueFunction(function=_player)])


def _player(context: LaunchContext) -> list[Action]:
    def text(name: str) -> str:
        return LaunchConfiguration(name).perform(context)

    topic, points = text("topic"), text("points")
    if topic:
        topic = f"/{topic.lstrip('/')}"
    if choose_player(text("player")) == "rosbag2":
        command = ["ros2", "bag", "play", text("bag"), "--rate", text("rate"), "--delay", text("wait")]
        for flag in ("loop", "clock"):
            if get_typed_value(text(flag), bool):
                command.append(f"--{flag}")
        if topic:
            command += ["--topics", topic]
        if topic and points:
            pushed = context.launch_configurations.get("ros_namespace")
            base = make_namespace_absolute(prefix_namespace(pushed, text("namespace")) or "")
            command += ["--remap", f"{topic}:={prefix_namespace(base, points)}"]
        return [ExecuteProcess(cmd=command, output="screen")]
    types = {"bag": str, "topic": str, **REPLAY_TYPES}
    return [
        Node(
            package="radius_fps_ros",
            executable="replay_node",
            namespace=text("namespace"),
            parameters=[
                {name: ParameterValue(LaunchConfiguration(name), value_type=kind) for name, kind in types.items()}
            ],
            remappings=[(topic, points)] if topic and points else None,
            output="screen",
        )
    ]
