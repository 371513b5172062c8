"""Publishes a stream to the perception node and matches every answer with its question."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass

from diagnostic_msgs.msg import DiagnosticArray
from radius_fps_interfaces.msg import FrameStats
from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header

from .stream import StreamFrame

Key = tuple[int, int, str]


@dataclass(eq=False)
class Exchange:
    """One published cloud and what came back; times are of one monotonic clock, in seconds."""

    key: Key
    cdr: bytes
    published: float
    sampled_at: float | None = None
    sampled: PointCloud2 | None = None
    features_at: float | None = None
    stats: FrameStats | None = None

    @property
    def answered(self) -> bool:
        """Both the sampled cloud and the statistics came back."""
        return self.sampled_at is not None and self.stats is not None

    @property
    def refused(self) -> bool:
        """The node refused the cloud, so no samples will come."""
        return self.stats is not None and self.stats.status == FrameStats.REFUSED

    @property
    def latency(self) -> float | None:
        """Milliseconds from before the cloud was published until its samples were received."""
        return None if self.sampled_at is None else (self.sampled_at - self.published) * 1e3


class StreamMonitor:
    """Publishes serialized clouds on ``points`` and listens to the perception node's answers.

    An answer belongs to the oldest unanswered cloud with its stamp and frame id, so that a stream may repeat itself.
    Only the newest ``keep`` exchanges hold their messages; of the features only the time of arrival is kept.
    """

    def __init__(
        self, node: Node, perception_name: str, topic: str = "points", keep: int = 20, features: bool = False
    ) -> None:
        """``perception_name`` is the node's fully qualified name; ``features``: listen to them as well."""
        self.exchanges: list[Exchange] = []
        self.unexpected = 0
        self._keep = keep
        self._lock = threading.Lock()
        self._await_sampled: dict[Key, deque[Exchange]] = {}
        self._await_stats: dict[Key, deque[Exchange]] = {}
        self._await_features: dict[Key, deque[Exchange]] = {}
        self._publisher = node.create_publisher(PointCloud2, topic, QoSProfile(depth=5))
        qos = QoSProfile(depth=50)
        self._features = features
        self._answers = [
            node.create_subscription(kind, f"{perception_name}/{topic}", receive, qos)
            for kind, topic, receive in (
                (PointCloud2, "sampled", self._on_sampled),
                (FrameStats, "stats", self._on_stats),
                *([(PointCloud2, "features", self._on_features)] if features else []),
            )
        ]
        self._perception = perception_name
        self._listening = threading.Event()
        self._diagnostics = node.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, qos)

    def wait_until_connected(self, timeout: float = 60.0) -> bool:
        """Wait until the node receives what is published and its answers are received; False when that takes longer.

        That this side knows the node is not enough: what is sent before the node knows this side is lost, and only the
        node can say that it does.
        """
        deadline = time.monotonic() + timeout
        self._listening.clear()  # what the node said before its latest activation does not count
        while time.monotonic() < deadline:
            known = self._publisher.get_subscription_count() and all(s.get_publisher_count() for s in self._answers)
            if known and self._listening.wait(0.02):
                return True
            time.sleep(0.02)
        return False

    def publish(self, frame: StreamFrame) -> None:
        """Publish a serialized cloud and remember it."""
        key = _key(deserialize_message(frame.cdr, Header))  # a PointCloud2 begins with its header
        with self._lock:
            exchange = Exchange(key, frame.cdr, time.monotonic())
            self.exchanges.append(exchange)
            self._await_sampled.setdefault(key, deque()).append(exchange)
            self._await_stats.setdefault(key, deque()).append(exchange)
            if self._features:
                self._await_features.setdefault(key, deque()).append(exchange)
            if len(self.exchanges) > self._keep:
                old = self.exchanges[-self._keep - 1]
                old.cdr, old.sampled = b"", None
        exchange.published = time.monotonic()
        self._publisher.publish(frame.cdr)

    def wait_for_answers(self, timeout: float) -> bool:
        """Wait until every published cloud is answered or refused; False when that takes longer."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            with self._lock:
                if all(exchange.answered or exchange.refused for exchange in self.exchanges):
                    return True
            time.sleep(0.02)
        return False

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        for status in message.status:
            if status.hardware_id == self._perception:
                publishers = {pair.key: pair.value for pair in status.values}.get("publishers", "0")
                if publishers.isdecimal() and int(publishers) > 0:
                    self._listening.set()

    def _on_sampled(self, message: PointCloud2) -> None:
        now = time.monotonic()
        with self._lock:
            exchange = self._next(self._await_sampled, message.header)
            if exchange is not None:
                exchange.sampled_at, exchange.sampled = now, message

    def _on_features(self, message: PointCloud2) -> None:
        now = time.monotonic()
        with self._lock:
            exchange = self._next(self._await_features, message.header)
            if exchange is not None:
                exchange.features_at = now

    def _on_stats(self, message: FrameStats) -> None:
        with self._lock:
            exchange = self._next(self._await_stats, message.header)
            if exchange is not None:
                exchange.stats = message
                if exchange.refused:
                    self._await_sampled[exchange.key].remove(exchange)

    def _next(self, waiting: dict[Key, deque[Exchange]], header: Header) -> Exchange | None:
        queue = waiting.get(_key(header))
        if not queue:
            self.unexpected += 1
            return None
        return queue.popleft()


def _key(header: Header) -> Key:
    return header.stamp.sec, header.stamp.nanosec, header.frame_id
