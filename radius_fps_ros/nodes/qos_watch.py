"""Notices nodes on the other side whose quality of service keeps messages from coming through, and names the fix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rclpy.event_handler import PublisherEventCallbacks, SubscriptionEventCallbacks
from rclpy.node import Node
from rclpy.qos import QoSCompatibility, QoSProfile, qos_check_compatible, qos_policy_name_from_kind

# What nearly always is the cause; other policies get a general sentence.
PUBLISHER_FIXES = {
    "reliability": "a publisher of {topic} is best effort but input_reliability is reliable, so nothing of it is "
    "received: start this node with input_reliability:=best_effort, or publish reliably"
}
SUBSCRIBER_FIXES = {
    "durability": "a subscriber of {topic} asks for transient local durability but this node publishes volatile, so it "
    "receives nothing: subscribe with volatile durability"
}
OTHER_PUBLISHER = "a publisher of {topic} offers less {policy} than asked for: publish with the default {policy}"
OTHER_SUBSCRIBER = "a subscriber of {topic} asks for more {policy} than is offered: subscribe with the default {policy}"


class QosWatch:
    """Logs each kind of mismatch once, when the middleware reports it, and lists those that still exist."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._warned: set[str] = set()
        self._present: dict[str, Callable[[], bool]] = {}

    def publisher_events(self, topic: str, offered: QoSProfile) -> PublisherEventCallbacks:
        """Callbacks for a publisher of ``topic`` with the profile ``offered``."""
        name = self._node.resolve_topic_name(topic)

        def mismatch_exists() -> bool:
            others = self._node.get_subscriptions_info_by_topic(name)
            return any(_mismatch(offered, other.qos_profile) for other in others)

        def notice(event: Any) -> None:
            self._notice(SUBSCRIBER_FIXES, OTHER_SUBSCRIBER, name, event, mismatch_exists)

        return PublisherEventCallbacks(incompatible_qos=notice)

    def subscription_events(self, topic: str, requested: QoSProfile) -> SubscriptionEventCallbacks:
        """Callbacks for a subscription of ``topic`` with the profile ``requested``."""
        name = self._node.resolve_topic_name(topic)

        def mismatch_exists() -> bool:
            others = self._node.get_publishers_info_by_topic(name)
            return any(_mismatch(other.qos_profile, requested) for other in others)

        def notice(event: Any) -> None:
            self._notice(PUBLISHER_FIXES, OTHER_PUBLISHER, name, event, mismatch_exists)

        return SubscriptionEventCallbacks(incompatible_qos=notice)

    def sentences(self) -> list[str]:
        """One sentence for each kind of mismatch that still exists."""
        self._present = {sentence: exists for sentence, exists in self._present.items() if exists()}
        return list(self._present)

    def _notice(
        self, fixes: dict[str, str], other: str, topic: str, event: Any, mismatch_exists: Callable[[], bool]
    ) -> None:
        policy = qos_policy_name_from_kind(event.last_policy_kind).lower().replace("_", " ")
        sentence = fixes.get(policy, other).format(topic=topic, policy=policy)
        self._present[sentence] = mismatch_exists
        if sentence not in self._warned:
            self._warned.add(sentence)
            self._node.get_logger().warning(sentence)


def _mismatch(offered: QoSProfile, requested: QoSProfile) -> bool:
    return bool(qos_check_compatible(offered, requested)[0] == QoSCompatibility.ERROR)
