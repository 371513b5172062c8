"""The programs that are installed: each listens to signals before it imports its node, which takes a while."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from .stopping import stop_signal


def perception_node() -> None:
    """Run the perception node as a process."""
    _begin("perception_node", interfaces=True)
    from .perception_node import main

    main()


def hausdorff_node() -> None:
    """Run the Hausdorff node as a process."""
    _begin("hausdorff_node", interfaces=True)
    from .hausdorff_node import main

    main()


def replay_node() -> None:
    """Run the replay node as a process."""
    _begin("replay_node", interfaces=False)
    from .replay_node import main

    main()


def _begin(program: str, *, interfaces: bool) -> None:
    """Listen to signals; end with one sentence and exit code 2 where what a wheel cannot bring is missing."""
    stop_signal()
    if find_spec("rclpy") is None:
        missing = "ROS 2: source its setup file"
    elif interfaces and find_spec("radius_fps_interfaces") is None:
        missing = "radius_fps_interfaces: build it with colcon and source the workspace"
    else:
        return
    print(f"{program} needs {missing}, or run `make setup` and use .venv", file=sys.stderr)
    sys.exit(2)
