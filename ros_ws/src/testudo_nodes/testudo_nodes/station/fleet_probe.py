"""Listens to a fleet for some seconds and returns what `testudo_deploy.doctor.live_checks` needs; sends nothing."""

import statistics
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from rclpy.qos import DurabilityPolicy, ReliabilityPolicy

from testudo_deploy.doctor.live_facts import Endpoint, LiveFacts, Stream
from testudo_deploy.fleet.fleet import Fleet
from testudo_deploy.fleet.pose_source import SensedTopic, sensed_topics
from testudo_deploy.launch.topic_names import TOOL_NODES
from testudo_deploy.station.fleet_status import FleetStatus
from testudo_nodes.common.messages import message_class
from testudo_nodes.common.qos import SHOWN
from testudo_nodes.station.operator_listener import fleet_listener

_DISCOVERY_S = 1.0  # before rates are counted


def hear_fleet(fleet: Fleet, seconds: float, domain_id: int, *, local: bool) -> LiveFacts:
    """Listen for ``seconds`` [s], after a second in which ROS finds the nodes.

    Raises:
        TestudoError: ROS 2 refuses to start, or a message type of a link is not installed.
    """
    status = FleetStatus(fleet.names)
    with fleet_listener("doctor", status, domain_id, local=local) as listener:
        meters = {
            topic.absolute: _Meter(listener.node, topic) for robot in fleet.robots for topic in sensed_topics(robot)
        }
        listener.listen(_DISCOVERY_S)
        for meter in meters.values():
            meter.restart()
        begin_s = time.monotonic()
        listener.listen(seconds)
        heard_s = time.monotonic() - begin_s
        streams = {name: meter.stream(heard_s) for name, meter in meters.items()}
        return LiveFacts(domain_id, _endpoints(listener.node), streams, status.robots(time.monotonic()))


class _Meter:
    """Counts the messages of one pose source and compares their stamps with this machine's wall clock."""

    def __init__(self, node: Any, topic: SensedTopic) -> None:
        self._count, self._lags_s = 0, list[float]()
        profile = SHOWN["odom" if topic.kind == "odom" else "pose"]
        node.create_subscription(message_class(topic.type), topic.absolute, self._take, profile)

    def restart(self) -> None:
        self._count = 0
        self._lags_s.clear()

    def stream(self, seconds: float) -> Stream:
        return Stream(self._count, seconds, statistics.median(self._lags_s) if self._lags_s else None)

    def _take(self, message: Any) -> None:
        self._count += 1
        stamp = message.header.stamp
        self._lags_s.append(time.time() - (stamp.sec + 1e-9 * stamp.nanosec))


def _endpoints(node: Any) -> tuple[Endpoint, ...]:
    """Return all publishers and subscriptions in the domain without those of tools such as this one."""
    topics: Sequence[str] = [name for name, _ in node.get_topic_names_and_types()]
    found: list[Endpoint] = []
    for topic in topics:
        for publishes, ask in (
            (True, node.get_publishers_info_by_topic),
            (False, node.get_subscriptions_info_by_topic),
        ):
            found += map(partial(_endpoint, topic, publishes=publishes), ask(topic))
    return tuple(one for one in found if TOOL_NODES not in one.node)


def _endpoint(topic: str, info: Any, *, publishes: bool) -> Endpoint:
    return Endpoint(
        topic,
        f"{info.node_namespace.rstrip('/')}/{info.node_name}",
        info.topic_type,
        publishes,
        info.qos_profile.reliability == ReliabilityPolicy.RELIABLE,
        info.qos_profile.durability == DurabilityPolicy.TRANSIENT_LOCAL,
    )
