"""What the launch tests share: the environment, and the launch files as parts of a test's description."""

import os
from pathlib import Path

from ament_index_python.packages import get_package_share_directory
from launch.actions import GroupAction, IncludeLaunchDescription, SetLaunchConfiguration
from launch.launch_description_sources import PythonLaunchDescriptionSource

from radius_fps_ros.nodes.processes import use_large_cloud_transport

# launch's 5 s from SIGINT to SIGTERM can pass on a busy machine while five processes end, and the exit code is checked.
PATIENCE = SetLaunchConfiguration("sigterm_timeout", "60")


def use_own_domain():
    """Nobody else's nodes are seen, and large clouds travel through shared memory; launched processes inherit it."""
    os.environ["ROS_DOMAIN_ID"] = str(1 + os.getpid() % 100)
    os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    use_large_cloud_transport()


def included(name, *before, **arguments):
    """A launch file of the package with its arguments, in a scope of its own."""
    file = Path(get_package_share_directory("radius_fps_ros")) / "launch" / f"{name}.launch.py"
    source = PythonLaunchDescriptionSource(str(file))
    return GroupAction([*before, IncludeLaunchDescription(source, launch_arguments=arguments.items())])


def process_of(executable, namespace):
    """The process id of a node that this process has launched."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (folder / "cmdline").read_text().split("\0")
            status = dict(line.split(":\t", 1) for line in (folder / "status").read_text().splitlines())
        except OSError:
            continue  # it ended meanwhile
        launched = int(status["PPid"]) == os.getpid()
        if launched and f"__ns:={namespace}" in arguments and any(word.endswith(executable) for word in arguments):
            return int(folder.name)
    raise AssertionError(f"there is no {executable} in {namespace}")
