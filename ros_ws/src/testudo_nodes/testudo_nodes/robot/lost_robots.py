"""Receives which robots an operator declared lost."""

from collections.abc import Callable

from std_msgs.msg import String

from testudo_deploy.contract.lost_robot import LostRobot
from testudo_deploy.contract.messages import EnvelopeError, Vector
from testudo_deploy.launch.topic_names import LOST_TOPIC
from testudo_nodes.robot.subscriptions import Connections


def subscribe_lost(
    connections: Connections, declare: Callable[[str, Vector | None], bool], refuse: Callable[[Exception], None]
) -> None:
    """Subscribe to declarations.

    Args:
        connections: of the configuration of the policy's node.
        declare: takes the name of a peer and its place; see `PeerTracker.declare_lost`.
        refuse: receives the error of each message that cannot be read.
    """

    def on_lost(message: String) -> None:
        try:
            found = LostRobot.decode(message.data.encode())
        except EnvelopeError as error:
            refuse(error)
            return
        declare(found.robot, found.place_world)

    connections.subscribe(String, LOST_TOPIC, on_lost, "lost")
