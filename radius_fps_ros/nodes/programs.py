"""The programs that are installed: each listens to signals before it imports its node, which takes a while."""

from __future__ import annotations

from .stopping import stop_signal


def perception_node() -> None:
    """Run the perception node as a process."""
    stop_signal()
    from .perception_node import main

    main()


def hausdorff_node() -> None:
    """Run the Hausdorff node as a process."""
    stop_signal()
    from .hausdorff_node import main

    main()


def replay_node() -> None:
    """Run the replay node as a process."""
    stop_signal()
    from .replay_node import main

    main()
