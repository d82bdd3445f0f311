"""What Crazyswarm2 publishes and serves for drones of the plant: their poses in one message, services and status.

The message types are those of Crazyswarm2 and its motion capture, which have to be installed.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from rclpy.node import Node

from testudo_deploy.fleet.fleet import FleetRobot
from testudo_deploy.fleet.pose_source import SensedTopic
from testudo_hardware.errors import TestudoError
from testudo_hardware.links import crazyflie_server
from testudo_hardware.links.crazyswarm2 import STATUS
from testudo_hardware.links.link_profile import NAMED_POSES
from testudo_hardware.links.wire import PoseReading, WireError, fill_named_poses
from testudo_nodes.common.clock import RealTimeClock
from testudo_nodes.common.messages import message_class
from testudo_nodes.common.node_runner import WARN_EVERY_S
from testudo_nodes.common.qos import OFFERED, measured
from testudo_nodes.plant.lock_step_server import LockStepServer
from testudo_plant.plant.plant import Plant

PlantClock = RealTimeClock | LockStepServer
_NAMED_POSE = NAMED_POSES.removesuffix("Array")


class SharedPoses:
    """The topics on which motion capture sends the poses of all robots, one message for each of its frames."""

    def __init__(self, clock: PlantClock) -> None:
        self._clock = clock
        self._publishers: dict[str, Any] = {}
        self._frames: dict[str, str] = {}
        self._seen: dict[tuple[str, float], dict[str, PoseReading]] = {}
        """Poses by robot, of each topic and moment."""

    def open(self, topic: SensedTopic) -> None:
        """Create a topic, if no robot before has it.

        Raises:
            TestudoError: the message type is not installed.
        """
        if topic.absolute not in self._publishers:
            quality = measured(reliable=topic.wire.reliable)
            self._publishers[topic.absolute] = self._clock.publisher(message_class(topic.type), topic.absolute, quality)
            self._frames[topic.absolute] = topic.wire.frames[0]

    def add(self, robot: str, topic: SensedTopic, reading: PoseReading) -> None:
        """Take the pose of one robot, for the next `publish`."""
        self._seen.setdefault((topic.absolute, round(reading.stamp_s, 6)), {})[robot] = reading

    def publish(self) -> None:
        """Publish the poses that came since the last time; a body whose pose comes later is in a later message."""
        kind, body = NAMED_POSES, _NAMED_POSE
        for (topic, _), poses in sorted(self._seen.items()):
            message = message_class(kind)()
            self._publishers[topic].publish(fill_named_poses(message, message_class(body), self._frames[topic], poses))
        self._seen.clear()


class CrazyflieServerTopics:
    """Services and status of one drone, as those of crazyflie_server."""

    def __init__(self, node: Node, clock: PlantClock, plant: Plant, robot: FleetRobot, status_s: float) -> None:
        """Create them; a status comes every ``status_s`` [s].

        Raises:
            TestudoError: a message or service type is not installed, or the run is in lock-step.
        """
        if clock.in_lock_step:
            raise TestudoError(
                f"{robot.name}: link: found {robot.link.name!r} emulated in lock-step, expected real time: services "
                "have no part in its rounds"
            )
        self._node, self._plant, self._name, self._status_s = node, plant, robot.name, status_s
        self._status_type, self._next_s = message_class(STATUS), 0.0
        topic = f"/{robot.name}/{robot.link.topics['battery_state']}"
        self._status = clock.publisher(self._status_type, topic, OFFERED["battery_state"])
        for service, kind in crazyflie_server.SERVICES.items():
            node.create_service(message_class(kind), f"/{robot.name}/{service}", partial(self.serve, service))

    def publish(self, now_s: float) -> None:
        """Publish the status if it is due."""
        if now_s < self._next_s:
            return
        self._next_s = now_s + self._status_s
        state = self._plant.vehicle(self._name, tells_planner=True)
        self._status.publish(crazyflie_server.fill_status(self._status_type(), state))

    def serve(self, service: str, request: Any, response: Any) -> Any:
        """Pass a request on to the drone; the answer is empty, as that of the server."""
        try:
            asked = crazyflie_server.read_call(service, request)
        except WireError as error:
            self._node.get_logger().warning(str(error), throttle_duration_sec=WARN_EVERY_S)
            return response
        if asked is not None:
            self._plant.ask(self._name, asked)
        return response


def serve_all(node: Node, drones: list[CrazyflieServerTopics]) -> None:
    """Create the services that reach every drone of the server.

    Raises:
        TestudoError: a service type is not installed.
    """

    def answer(service: str, request: Any, response: Any) -> Any:
        for drone in drones:
            drone.serve(service, request, response)
        return response

    if drones:
        for service, kind in crazyflie_server.SERVICES.items():
            callback: Callable[[Any, Any], Any] = partial(answer, service)
            node.create_service(message_class(kind), f"/{crazyflie_server.ALL}/{service}", callback)
