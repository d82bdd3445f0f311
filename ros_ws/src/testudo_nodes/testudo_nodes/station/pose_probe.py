"""Listens for the present place of one robot, by its pose source; sends nothing."""

from typing import Any

from testudo_deploy.fleet.fleet import FleetRobot
from testudo_deploy.fleet.pose_source import sensed_topics
from testudo_hardware.errors import TestudoError
from testudo_hardware.links.wire import Measurement
from testudo_nodes.common.node_runner import both_clocks
from testudo_nodes.common.qos import REQUESTED
from testudo_nodes.robot.subscriptions import PoseSubscription
from testudo_nodes.station.operator_listener import StatusIgnored, fleet_listener


def hear_place(robot: FleetRobot, wait_s: float, domain_id: int, *, local: bool = False) -> tuple[float, float]:
    """Return the newest place (2,) [m] of a robot in the fleet's frame, heard within ``wait_s`` [s].

    Raises:
        TestudoError: no pose came, or ROS 2 is not within reach.
    """
    found: list[tuple[float, ...]] = []
    refused: list[str] = []

    def take(reading: Measurement, _: float) -> None:
        found.append(reading.position_world)

    with fleet_listener("calibrate", StatusIgnored(), domain_id, local=local) as listener:
        node: Any = listener.node

        def subscribe(kind: type, topic: str, callback: Any, quality: str) -> None:
            name = topic if topic.startswith("/") else f"/{robot.name}/{topic}"
            node.create_subscription(kind, name, callback, REQUESTED[quality])

        source = PoseSubscription(lambda: both_clocks(node), robot)
        source.begin(subscribe, take, lambda error: refused.append(str(error)))
        listener.listen(wait_s, lambda: bool(found))
    if not found:
        names = " and ".join(topic.absolute for topic in sensed_topics(robot))
        why = f" ({refused[-1]})" if refused else ""
        raise TestudoError(
            f"{robot.name}: found no pose on {names} in ROS domain {domain_id} within {wait_s:g} s{why}, expected one; "
            "is its driver up? `testudo doctor FLEET` names what is missing"
        )
    return found[-1][0], found[-1][1]
