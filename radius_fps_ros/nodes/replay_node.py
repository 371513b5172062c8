"""Publishes the clouds of a bag at their recorded pace, raw and undecoded."""

from __future__ import annotations

import itertools
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from rclpy.clock import Clock as SteadyClock
from rclpy.clock import ClockType
from rclpy.duration import Duration
from rclpy.exceptions import InvalidTopicNameException
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import QoSProfile
from rclpy.time import Time
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import PointCloud2

from ..clouds.bags import open_bag
from ..errors import InputError
from .parameters import ParameterSet, ParameterSpec
from .run import run_node
from .stopping import request_stop
from .stream import StreamFrame, bag_frames, play

NODE_NAME = "radius_fps_replay"
OTHERS_WAIT = 0.5  # s that the other topics' subscribers may come after the first one
LAST_CLOUDS_TIMEOUT = 5.0  # s that reliable subscribers may take to acknowledge the last clouds
POLL = 0.02  # s
CLOCK_RATE = 40.0  # Hz, that of `ros2 bag play --clock`
SPECS = (
    ParameterSpec("bag", "", "Folder, metadata.yaml, .db3 or .mcap file of the bag.", read_only=True),
    ParameterSpec("topic", "", "The only topic to publish; empty: all PointCloud2 topics.", read_only=True),
    ParameterSpec("rate", 1.0, "How many times as fast as recorded.", low=0.001, high=1000.0, read_only=True),
    ParameterSpec("loop", False, "Begin again at the end.", read_only=True),
    ParameterSpec("clock", False, "Publish the bag's time on /clock while playing.", read_only=True),
    ParameterSpec(
        "wait",
        2.0,
        "How long to wait for a subscriber before the first cloud [s].",
        low=0.0,
        high=3600.0,
        read_only=True,
    ),
)


class BagClock:
    """Publishes on /clock where in the bag the playing is: before each cloud, and `CLOCK_RATE` times a second between.

    The time runs at the rate of the playing, and jumps back when the bag begins again, as with ``ros2 bag play``.
    """

    def __init__(self, node: Node, first: int, rate: float) -> None:
        """``first``: the bag's first time [ns]."""
        self._first, self._rate = first, rate
        self._lock = threading.Lock()
        self._publisher = node.create_publisher(Clock, "/clock", QoSProfile(depth=10))
        self.begin()
        node.create_timer(1 / CLOCK_RATE, self.publish, clock=SteadyClock(clock_type=ClockType.STEADY_TIME))

    def begin(self) -> None:
        """The bag begins now."""
        with self._lock:
            self._begun = time.monotonic()

    def publish(self) -> None:
        """Publish the time that it is now in the bag."""
        with self._lock:
            now = self._first + round((time.monotonic() - self._begun) * self._rate * 1e9)
            self._publisher.publish(Clock(clock=Time(nanoseconds=now).to_msg()))


class ReplayNode(Node):
    """Plays a bag in a thread of its own and ends with the last cloud; topics keep their recorded, remappable names.

    ``exit_code`` is 0, or 2 when the bag could not be played; the log says why.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(NODE_NAME, **options)
        self.exit_code = 0
        self._params = ParameterSet(self, SPECS)
        self._clock: BagClock | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="replay", daemon=True)
        self._thread.start()

    def stop_work(self) -> None:
        """Stop playing."""
        self._stop.set()
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        try:
            for sentence in self._params.refused.values():
                raise InputError(sentence)
            self._play()
        except InputError as error:
            self.exit_code = 2
            self.get_logger().error(str(error))
        except Exception:
            self.exit_code = 1
            self.get_logger().error(f"replay failed:\n{traceback.format_exc()}")
        finally:
            request_stop()

    def _play(self) -> None:
        values = self._params.values
        if not values["bag"]:
            raise InputError("parameter bag must name a bag to play")
        bag, topic = Path(values["bag"]), values["topic"] or None
        with open_bag(bag, topic) as opened:
            topics = list(opened.counts)
        try:
            clouds = {name: self.create_publisher(PointCloud2, name, QoSProfile(depth=5)) for name in topics}
        except InvalidTopicNameException as error:
            raise InputError(
                f"{bag} has a topic whose name ROS 2 does not allow: {str(error).splitlines()[0]}"
            ) from None

        def publish(frame: StreamFrame) -> None:
            if self._clock is not None:
                self._clock.publish()
            clouds[frame.topic].publish(frame.cdr)

        first = next(bag_frames(bag, topic), None)  # before the wait: a bag that cannot be read is said at once
        if first:
            self._wait_for_subscribers(list(clouds.values()), values["wait"])
            if values["clock"]:
                self._clock = BagClock(self, first.recorded, values["rate"])
        for _ in itertools.count() if values["loop"] else range(1):
            if self._clock is not None:
                self._clock.begin()
            count = play(bag_frames(bag, topic), publish, rate=values["rate"], stop=self._stop)
            self.get_logger().info(f"published {count} clouds of {', '.join(topics)} from {bag}")
            if self._stop.is_set():
                return
        self._wait_for_acknowledgements(list(clouds.values()))

    def _wait_for_subscribers(self, publishers: list[Publisher], seconds: float) -> None:
        """Wait until every topic has a subscriber, or `OTHERS_WAIT` after the first one has, at most ``seconds``."""
        deadline = time.monotonic() + seconds
        somebody = False
        while time.monotonic() < deadline and not self._stop.wait(POLL):
            counts = [publisher.get_subscription_count() for publisher in publishers]
            if all(counts):
                return
            if any(counts) and not somebody:
                somebody = True
                deadline = min(deadline, time.monotonic() + OTHERS_WAIT)

    def _wait_for_acknowledgements(self, publishers: list[Publisher]) -> None:
        # A subscriber may learn of this node after this node learned of it; what was sent between is sent again, unless
        # the process is gone by then.
        deadline = time.monotonic() + LAST_CLOUDS_TIMEOUT
        for publisher in publishers:
            while not publisher.wait_for_all_acked(Duration(seconds=POLL)):
                if self._stop.is_set():
                    return
                if time.monotonic() > deadline:
                    self.get_logger().warning(
                        f"a subscriber of {publisher.topic_name} did not acknowledge the last clouds "
                        f"within {LAST_CLOUDS_TIMEOUT:g} s"
                    )
                    return


def main() -> None:
    """Run the replay node as a process."""
    sys.exit(run_node(ReplayNode))


if __name__ == "__main__":
    main()
