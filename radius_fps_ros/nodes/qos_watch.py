"""Notices nodes on the other side whose quality of service keeps messages from coming through, and names the fix."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

from rclpy.event_handler import PublisherEventCallbacks, SubscriptionEventCallbacks
from rclpy.node import Node
from rclpy.qos import QoSCompatibility, qos_check_compatible, qos_policy_name_from_kind
from rclpy.topic_endpoint_info import TopicEndpointInfo

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
        self._present: dict[str, str] = {}  # sentence: its topic

    def publisher_events(self, topic: str) -> PublisherEventCallbacks:
        """Callbacks for a publisher of ``topic``."""
        name = self._node.resolve_topic_name(topic)
        return PublisherEventCallbacks(
            incompatible_qos=lambda event: self._notice(SUBSCRIBER_FIXES, OTHER_SUBSCRIBER, name, event)
        )

    def subscription_events(self, topic: str, matched: Callable[[], None]) -> SubscriptionEventCallbacks:
        """Callbacks for a subscription of ``topic``; ``matched`` is called when a publisher comes or goes."""
        name = self._node.resolve_topic_name(topic)
        return SubscriptionEventCallbacks(
            incompatible_qos=lambda event: self._notice(PUBLISHER_FIXES, OTHER_PUBLISHER, name, event),
            matched=lambda event: matched(),
        )

    def sentences(self) -> list[str]:
        """One sentence for each kind of mismatch whose topic still has one."""
        self._present = {sentence: topic for sentence, topic in self._present.items() if self._exists(topic)}
        return list(self._present)

    def _notice(self, fixes: dict[str, str], other: str, topic: str, event: Any) -> None:
        policy = qos_policy_name_from_kind(event.last_policy_kind).lower().replace("_", " ")
        sentence = fixes.get(policy, other).format(topic=topic, policy=policy)
        self._present[sentence] = topic
        if sentence not in self._warned:
            self._warned.add(sentence)
            self._node.get_logger().warning(sentence)

    def _exists(self, topic: str) -> bool:
        # Discovered profiles on both sides: in one made here, durations that are not set do not compare as infinite.
        publishers = self._node.get_publishers_info_by_topic(topic)
        subscriptions = self._node.get_subscriptions_info_by_topic(topic)
        return any(
            qos_check_compatible(one.qos_profile, other.qos_profile)[0] == QoSCompatibility.ERROR
            for one, other in product(publishers, subscriptions)
            if self._is_own(one) or self._is_own(other)
        )

    def _is_own(self, endpoint: TopicEndpointInfo) -> bool:
        return (endpoint.node_namespace, endpoint.node_name) == (self._node.get_namespace(), self._node.get_name())
