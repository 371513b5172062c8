"""Start the perception node and the Hausdorff node; on request play a bag and show the clouds in RViz."""

from pathlib import Path

from ament_index_python.packages import PackageNotFoundError, get_package_prefix, get_package_share_directory
from launch import Action, Condition, LaunchContext, LaunchDescription
from launch.actions import GroupAction, IncludeLaunchDescription, OpaqueFunction
from launch.conditions import IfCondition
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration as value
from launch.substitutions import NotEqualsSubstitution
from launch.utilities.type_utils import get_typed_value
from launch_ros.actions import Node

from radius_fps_ros.errors import RadiusFpsError
from radius_fps_ros.nodes.launching import (
    REPLAY_TYPES,
    argument,
    choose_player,
    large_cloud_transport,
    replay_arguments,
)

SHARE = Path(get_package_share_directory("radius_fps_ros"))
PERCEPTION = "radius_fps_perception"
PLAYS = NotEqualsSubstitution(value("bag"), "")


def generate_launch_description() -> LaunchDescription:
    """Arguments and the parts, each with the arguments it knows."""
    config = SHARE / "config"
    replay = [entry for entry in replay_arguments() if entry.name != "points"]
    arguments = [
        argument("namespace", "", "Namespace of all nodes."),
        argument("points", "points", "Topic of the incoming PointCloud2, and the name under which topic is played."),
        argument("perception_params", str(config / "perception.yaml"), "YAML file of the perception node."),
        argument("hausdorff_params", str(config / "hausdorff.yaml"), "YAML file of the Hausdorff node."),
        argument("hausdorff", "true", "Start the Hausdorff node, too."),
        argument("autostart", "true", "Configure and activate the perception node at once."),
        argument("respawn", "false", "Start a node again when its process has ended."),
        argument("use_sim_time", "false", "Take the time from /clock; with a bag say clock:=true, too."),
        argument("log_level", "info", "debug, info, warn, error or fatal."),
        argument("bag", "", "Play this bag: folder, metadata.yaml, .db3 or .mcap file."),
        *replay,
        argument("rviz", "false", "Show the clouds in RViz."),
        argument("rviz_config", str(SHARE / "rviz" / "perception.rviz"), "RViz configuration."),
        argument("frame", "lidar", "RViz's fixed frame: the frame id of the clouds, or a frame of tf."),
    ]
    common = ("namespace", "respawn", "use_sim_time", "log_level")
    parts = [
        _part("perception", *common, "points", "autostart", params_file="perception_params"),
        _part("hausdorff", *common, params_file="hausdorff_params", condition=IfCondition(value("hausdorff"))),
        _part(
            "replay",
            *("bag", "namespace", "points"),
            *(entry.name for entry in replay),
            condition=IfCondition(PLAYS),
        ),
    ]
    check = OpaqueFunction(function=_check)
    return LaunchDescription([*arguments, *large_cloud_transport(), check, *parts, _rviz()])


def _check(context: LaunchContext) -> None:
    """Fail while nothing is started yet: launch does not end the processes that run when an action fails."""
    IfCondition(value("hausdorff")).evaluate(context)
    if IfCondition(PLAYS).evaluate(context):
        choose_player(value("player").perform(context))
        for name, kind in REPLAY_TYPES.items():
            try:
                get_typed_value(value(name).perform(context), kind)
            except ValueError as error:
                raise RadiusFpsError(f"{name}:={value(name).perform(context)} cannot be used: {error}") from error
    if IfCondition(value("rviz")).evaluate(context):
        try:
            get_package_prefix("rviz2")
        except PackageNotFoundError as error:
            raise RadiusFpsError("rviz:=true needs the package rviz2, which is not installed") from error


def _part(name: str, *passed: str, params_file: str | None = None, condition: Condition | None = None) -> Action:
    """One of the other launch files with the arguments it knows, which it must not leave behind for the next one.

    It is included by a function: else launch would offer the part's own ``name`` and ``params_file`` as arguments of
    this file, where they would reach both nodes or none.
    """
    arguments = {entry: value(entry) for entry in passed}
    if params_file is not None:
        arguments |= {"params_file": value(params_file), "name": f"radius_fps_{name}"}
    source = PythonLaunchDescriptionSource(str(SHARE / "launch" / f"{name}.launch.py"))
    include = IncludeLaunchDescription(source, launch_arguments=arguments.items())
    return OpaqueFunction(function=lambda context: [GroupAction([include], scoped=True)], condition=condition)


def _rviz() -> Action:
    # The configuration names topics as they are without a namespace.
    outputs = [f"{PERCEPTION}/{topic}" for topic in ("sampled", "features")]
    return Node(
        package="rviz2",
        executable="rviz2",
        name="rviz",
        namespace=value("namespace"),
        arguments=["--display-config", value("rviz_config"), "--fixed-frame", value("frame")],
        remappings=[("/points", value("points")), *((f"/{topic}", topic) for topic in outputs)],
        parameters=[{"use_sim_time": value("use_sim_time")}],
        condition=IfCondition(value("rviz")),
    )
