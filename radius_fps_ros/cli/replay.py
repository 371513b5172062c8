"""``radius-fps replay``: a bag's clouds on ROS."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ..errors import InputError
from .options import FINITE


@click.command(
    context_settings={"ignore_unknown_options": True},
    epilog="Example: radius-fps replay drive.mcap --topic /lidar_top --rate 0.5 --ros-args -r /lidar_top:=/points",
)
@click.argument("bag", type=click.Path(path_type=Path))
@click.option("--topic", help="Publish only this topic; without it all PointCloud2 topics.")
@click.option("--rate", type=FINITE, default=1.0, show_default=True, help="How many times as fast as recorded.")
@click.option("--loop", is_flag=True, help="Begin again at the end, until Ctrl-C.")
@click.option("--clock", is_flag=True, help="Publish the bag's time on /clock, for nodes with use_sim_time.")
@click.option(
    "--wait",
    type=FINITE,
    default=2.0,
    show_default=True,
    help="Seconds to wait for a subscriber before the first cloud.",
)
@click.argument("ros_arguments", nargs=-1, type=click.UNPROCESSED)
def command(
    bag: Path, topic: str | None, rate: float, loop: bool, clock: bool, wait: float, ros_arguments: tuple[str, ...]
) -> None:
    """Publish the clouds of BAG on ROS 2, raw, at their recorded pace.

    BAG is a folder, a metadata.yaml, a .db3 or an .mcap file. Everything after --ros-args goes to ROS.
    """
    if ros_arguments and ros_arguments[0] != "--ros-args":
        raise InputError(f"unknown argument {ros_arguments[0]!r}; see radius-fps replay --help")
    try:
        str(bag).encode()
    except UnicodeEncodeError:
        raise InputError(f"{str(bag)!r} is not a name in UTF-8, which a ROS parameter must be") from None
    try:
        from rclpy.parameter import Parameter
    except ImportError:
        raise InputError("replay needs ROS 2: source its setup file, or run `make setup` and use .venv") from None
    from ..nodes.processes import use_large_cloud_transport
    from ..nodes.replay_node import ReplayNode
    from ..nodes.run import run_node

    use_large_cloud_transport()
    given = {"bag": str(bag), "topic": topic or "", "rate": rate, "loop": loop, "clock": clock, "wait": wait}
    overrides = [Parameter(name, value=value) for name, value in given.items()]
    sys.exit(run_node(lambda: ReplayNode(parameter_overrides=overrides), list(ros_arguments)))
