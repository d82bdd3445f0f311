"""Topics of which a viewer needs the newest message only: taken when a picture is made, not when they arrive.

A fleet of eight sends a thousand messages a second; calling Python for each would take a core from the robots. These
subscriptions keep one message each, in a node that no executor spins, and cost what the pictures cost.
"""

from collections.abc import Callable
from typing import Any

from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.subscription import Subscription


class PolledTopics:
    """Subscriptions of a node that nothing spins."""

    def __init__(self, node: Node) -> None:
        """Take the node."""
        self._node = node
        self._taken: list[tuple[Subscription[Any], Callable[[Any], None]]] = []

    def add(
        self, kind: type, topic: str, profile: QoSProfile, take: Callable[[Any], None], *, raw: bool = False
    ) -> None:
        """Subscribe; `poll` gives ``take`` the message, its bytes if ``raw``."""
        subscription = self._node.create_subscription(kind, topic, take, profile, raw=raw)
        self._taken.append((subscription, take))

    def poll(self) -> None:
        """Take what has arrived since the last call, of each topic the newest as far as its profile keeps it."""
        for subscription, take in self._taken:
            with subscription.handle:  # as rclpy's executors do
                found = subscription.handle.take_message(subscription.msg_type, subscription.raw)
            if found is not None:
                take(found[0])
