"""Who publishes the commands of a robot, by the graph of ROS: the guard stops on a node that may not."""

from collections.abc import Sequence
from dataclasses import dataclass

from rclpy.node import Node

from testudo_deploy.launch.fleet_topics import foreign_publishers

_LOOK_S = 0.1  # period of the check
_NAMELESS = "_NODE_NAME_UNKNOWN_"  # a publisher whose node is not discovered yet; one that stays so is not a ROS node


@dataclass(frozen=True)
class CommandTopic:
    """A topic of commands, and the nodes that may publish on it."""

    name: str  # absolute
    own: str  # absolute name of the node that may publish
    allowed: Sequence[str] = ()  # names without namespace of further ones, from the link profile


class CommandPublishers:
    """Looks for nodes that publish commands to a robot or to its guard, and may not."""

    def __init__(self, node: Node, topics: Sequence[CommandTopic]) -> None:
        """See `found`."""
        self._node = node
        self._topics = topics
        self._seen: tuple[str, ...] = ()
        self._look_s = -float("inf")

    def found(self, real_s: float) -> list[str] | None:
        """Return the foreign nodes with their topics; None where it is not yet time to look again.

        A nameless publisher counts from the second look on. ``real_s`` is time of the steady clock, also in lock-step:
        nodes start and end in real time.
        """
        if real_s - self._look_s < _LOOK_S:
            return None
        self._look_s = real_s
        before, self._seen = self._seen, self._foreign()
        return [name for name in self._seen if _NAMELESS not in name or name in before]

    def _foreign(self) -> tuple[str, ...]:
        return tuple(
            f"{name} on {topic.name}"
            for topic in self._topics
            for name in foreign_publishers(self._publishers(topic.name), topic.own, topic.allowed)
        )

    def _publishers(self, topic: str) -> list[str]:
        ends = self._node.get_publishers_info_by_topic(topic)
        return [f"{end.node_namespace.rstrip('/')}/{end.node_name}" for end in ends]
