"""Flight of one robot on ROS: states of its vehicle and requests to it, by topics or by services of Crazyswarm2."""

from collections.abc import Callable
from typing import Any

from rclpy.node import Node
from std_msgs.msg import UInt8MultiArray

from testudo_deploy.contract.messages import EnvelopeError
from testudo_deploy.fleet.fleet import FleetRobot
from testudo_deploy.guard.flight_guard import FlightGuard, GuardPhase
from testudo_deploy.guard.flight_messages import FlightOrder, FlightRequestMessage, VehicleMessage
from testudo_hardware.links.crazyswarm2 import CALLS, STATUS, read_status
from testudo_hardware.links.flight_link import FlightRequest, VehicleState
from testudo_nodes.common.clock import NodeClock
from testudo_nodes.common.messages import envelope_bytes, envelope_message, message_class
from testudo_nodes.common.node_runner import WARN_EVERY_S, parameter
from testudo_nodes.common.qos import OFFERED, REQUESTED
from testudo_nodes.robot.subscriptions import Subscribe

Take = Callable[[VehicleState, float], None]


def uses_topics(node: Node, robot: FleetRobot) -> bool:
    """Return whether a vehicle is reached by topics: by its link, or because the plant simulates it."""
    simulated = parameter(node, "plant_flies", False, "the plant simulates the vehicle")
    flight = robot.link.profile.flight
    return simulated or (flight is not None and flight.wire.value == "topics")


def subscribe_vehicle(
    subscribe: Subscribe,
    now_s: Callable[[], float],
    robot: FleetRobot,
    take: Take,
    refuse: Callable[[Exception], None],
    *,
    topics: bool,
) -> None:
    """Subscribe to the state of a vehicle.

    Args:
        subscribe: makes a subscription.
        now_s: the clock of the node.
        robot: the robot of the vehicle.
        take: receives each state, and its time of arrival [s].
        refuse: receives the error of each message that cannot be read.
        topics: see `uses_topics`.
    """

    def on_message(message: UInt8MultiArray) -> None:
        try:
            found = VehicleMessage.decode(envelope_bytes(message))
        except EnvelopeError as error:
            refuse(error)
            return
        if found.robot == robot.name:
            take(found.state, now_s())

    def on_status(message: Any) -> None:
        received_s = now_s()
        take(read_status(message, received_s), received_s)

    if topics:
        subscribe(UInt8MultiArray, "vehicle_state", on_message, "vehicle_state")
    else:
        subscribe(message_class(STATUS), robot.link.topics["battery_state"], on_status, "vehicle_state")


class GuardFlight:
    """Flight of a robot, in the node of its guard; `FlightGuard` decides."""

    def __init__(self, node: Node, clock: NodeClock, robot: FleetRobot) -> None:
        """Create the topics and service clients.

        Raises:
            TestudoError: a message or service type is not installed.
        """
        self._node, self._clock, self._name = node, clock, robot.name
        self.guard = FlightGuard()
        self._sequence = round(1000 * clock.now_s())  # also grows over restarts of the guard
        self._on_order_taken: Callable[[], None] = lambda: None
        topics = uses_topics(node, robot)
        self._requests = clock.publisher(UInt8MultiArray, "flight_request", OFFERED["flight_request"])
        self._clients = (
            {}
            if topics
            else {
                act: node.create_client(message_class(call.type), f"/{robot.name}/{call.name}")
                for act, call in CALLS.items()
            }
        )

        def subscribe(kind: type, topic: str, callback: Callable[[Any], None], quality: str) -> None:
            clock.subscribe(kind, topic, callback, REQUESTED[quality])

        subscribe(UInt8MultiArray, "flight_order", self._on_order, "flight_order")
        subscribe_vehicle(subscribe, clock.now_s, robot, self.guard.hear_vehicle, self._refuse, topics=topics)

    def begin(self, on_order: Callable[[], None]) -> None:
        """Call ``on_order`` after each order, which may change whether set-points are sent."""
        self._on_order_taken = on_order

    def step(self, *, stopped: bool, has_pose: bool) -> None:
        """Advance the flight guard and send its requests; a robot without a pose does not take off."""
        stays = not has_pose and self.guard.phase is GuardPhase.GROUND
        self.send(self.guard.step(self._clock.now_s(), stopped=stopped or stays))

    def close(self, spin: Callable[[], bool]) -> None:
        """Land a flying vehicle, and wait until its own planner controls the landing.

        Args:
            spin: runs callbacks and timers for a moment; False when the time is over.
        """
        self.send(self.guard.close(self._clock.now_s()))
        while not self.guard.ended and spin():
            pass
        self.send(self.guard.last_requests(self._clock.now_s()))

    def send(self, requests: tuple[FlightRequest, ...]) -> None:
        """Send requests to the vehicle, and publish them for the recorder in any case."""
        for request in requests:
            self._sequence += 1
            message = FlightRequestMessage.of(self._name, self._sequence, self._clock.now_s(), request)
            self._requests.publish(envelope_message(message.encode()))
            client = self._clients.get(request.act)
            if client is None:
                continue
            call = CALLS[request.act]
            if not client.service_is_ready():
                self._node.get_logger().error(
                    f"{self._name}: service {call.name} of Crazyswarm2 does not answer",
                    throttle_duration_sec=WARN_EVERY_S,
                )
            filled = client.srv_type.Request()
            call.fill(filled, request)
            client.call_async(filled)

    def _on_order(self, message: UInt8MultiArray) -> None:
        try:
            order = FlightOrder.decode(envelope_bytes(message))
        except EnvelopeError as error:
            self._refuse(error)
            return
        if order.robot == self._name:
            self.guard.hear_order(order, self._clock.now_s())
            self._on_order_taken()

    def _refuse(self, error: Exception) -> None:
        self._node.get_logger().warning(str(error), throttle_duration_sec=WARN_EVERY_S)
