"""What the launch files share."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import launch.logging
from launch import Action, LaunchContext
from launch.actions import DeclareLaunchArgument, RegisterEventHandler, SetEnvironmentVariable
from launch.event_handlers import OnProcessExit, OnProcessStart
from launch.events.process import ProcessExited, ProcessStarted
from launch_ros.actions import LifecycleNode, Node
from lifecycle_msgs.msg import Transition

from ..errors import RadiusFpsError
from ..share import share_file
from .processes import NodeProcessError, request_transition, spinning_node
from .shared_memory import remove_ownerless_segments

REPLAY_TYPES = {"rate": float, "loop": bool, "clock": bool, "wait": float}  # of the arguments that are not text
PLAYERS = ("auto", "rosbag2", "radius_fps")
RESPAWN_DELAY = 2.0  # s
STARTING = 0.3  # s


def argument(name: str, default: str, description: str, choices: Sequence[str] | None = None) -> DeclareLaunchArgument:
    """A launch argument; all of this package's have a default and a description."""
    return DeclareLaunchArgument(name, default_value=default, description=description, choices=choices)


def node_arguments(name: str, params_file: str) -> list[DeclareLaunchArgument]:
    """The arguments that the launch files of single nodes have in common."""
    return [
        argument("namespace", "", "Namespace of the node."),
        argument("name", name, "Name of the node."),
        argument("params_file", str(share_file("config", params_file)), "YAML file with the node's parameters."),
        argument("use_sim_time", "false", "Take the time from /clock."),
        argument("respawn", "false", f"Start the node again {RESPAWN_DELAY:g} s after its process has ended."),
        argument("log_level", "info", "debug, info, warn, error or fatal."),
    ]


def replay_arguments() -> list[DeclareLaunchArgument]:
    """The arguments of replay.launch.py, without the bag."""
    return [
        argument("topic", "", "The only recorded topic to play; empty: all (radius_fps: all PointCloud2)."),
        argument("points", "", "Name under which to publish that topic; empty: as recorded."),
        argument("rate", "1.0", "How many times as fast as recorded."),
        argument("loop", "false", "Begin again at the end."),
        argument("clock", "false", "Publish the bag's time on /clock."),
        argument("wait", "2.0", "Seconds to wait for a subscriber before the first cloud (rosbag2: in any case)."),
        argument("player", "auto", "auto: rosbag2 where `ros2 bag` is present, else radius_fps.", PLAYERS),
    ]


def large_cloud_transport() -> list[Action]:
    """Make Fast DDS carry large clouds, unless the user has chosen a profile; config/fastdds_shm.xml says why."""
    if "FASTDDS_DEFAULT_PROFILES_FILE" in os.environ:
        return []
    return [SetEnvironmentVariable("FASTDDS_DEFAULT_PROFILES_FILE", str(share_file("config", "fastdds_shm.xml")))]


def bring_up_whenever_started(node: LifecycleNode, condition: Any = None) -> Action:
    """Configure and activate a managed node each time its process starts, the respawned one as well.

    launch's own ``ChangeState`` event would not do: its client still knows the life-cycle service of a process that
    was killed, sends the request there, and waits for ever.
    """

    def start(event: ProcessStarted, context: LaunchContext) -> None:
        loop = context.asyncio_loop
        done = loop.create_future()

        def work() -> None:
            _bring_up(node.node_name, event.pid, context)
            with suppress(RuntimeError):  # launch has ended
                loop.call_soon_threadsafe(done.set_result, None)

        # Of no pool, whose threads the end of the process waits for: in the main thread SIGINT is a KeyboardInterrupt,
        # after which the pool may not know its thread.
        threading.Thread(target=work, name="bring up", daemon=True).start()
        context.add_completion_future(done)

    return RegisterEventHandler(OnProcessStart(target_action=node, on_start=start), condition=condition)


def _bring_up(node_name: str, pid: int, context: LaunchContext) -> None:
    def check(missing: str) -> None:
        if context.is_shutdown or not Path(f"/proc/{pid}").exists():
            raise NodeProcessError(f"{node_name} ended and {missing}")

    logger = launch.logging.get_logger(node_name)
    # The node takes longer than this to start. ROS holds the interpreter lock while it starts in here: launch, which is
    # busy starting others now, would take a SIGINT late, in the middle of its work, and lose what it was doing.
    time.sleep(STARTING)
    try:
        check("was not brought up")
        with spinning_node("radius_fps_bring_up") as ros:
            for transition, word in (
                (Transition.TRANSITION_CONFIGURE, "configured"),
                (Transition.TRANSITION_ACTIVATE, "activated"),
            ):
                if not request_transition(ros, node_name, transition, check):
                    logger.error(f"{node_name} could not be {word}; its log says why")
                    return
    except NodeProcessError as error:
        logger.info(str(error))
    except Exception as error:
        logger.error(f"{node_name} could not be brought up: {error}")


def clean_shared_memory_after(node: Node) -> Action:
    """Remove what the node's process leaves in shared memory when it is killed."""

    def clean(event: ProcessExited, context: LaunchContext) -> None:
        if event.returncode != 0:
            remove_ownerless_segments()

    return RegisterEventHandler(OnProcessExit(target_action=node, on_exit=clean))


def choose_player(wanted: str) -> str:
    """``rosbag2`` where ``ros2 bag`` is present and ``wanted`` is not ``radius_fps``, else ``radius_fps``.

    Raises:
        RadiusFpsError: ``rosbag2`` is wanted and not present.
    """
    present = shutil.which("ros2") is not None and find_spec("ros2bag") is not None
    if wanted == "rosbag2" and not present:
        raise RadiusFpsError("player:=rosbag2 needs the command `ros2 bag`, which is not installed")
    return "radius_fps" if wanted == "radius_fps" or not present else "rosbag2"
