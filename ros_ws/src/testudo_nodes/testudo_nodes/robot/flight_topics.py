"""The flight of one robot on ROS: what its vehicle says, and what is asked of it, by topics or by Crazyswarm2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rclpy.node import Node
from std_msgs.msg import UInt8MultiArray

from testudo_deploy.contract.messages import EnvelopeError
from testudo_deploy.fleet.fleet import FleetRobot
from testudo_deploy.guard.flight_guard import FlightGuard, GuardPhase
from testudo_deploy.guard.flight_messages import FlightOrder, FlightRequestMessage, VehicleMessage
from testudo_hardware.links.crazyswarm2_flight import CALLS, STATUS, read_status
from testudo_hardware.links.flight_link import FlightRequest, VehicleState
from testudo_nodes.common.clock import Tempo
from testudo_nodes.common.message_conversions import envelope_bytes, envelope_message
from testudo_nodes.common.message_definitions import message_class
from testudo_nodes.common.node_runner import WARN_EVERY_S, flag_parameter
from testudo_nodes.common.qos import OFFERED, REQUESTED

Take = Callable[[VehicleState, float], None]


def speaks_topics(node: Node, robot: FleetRobot) -> bool:
    """Return whether a vehicle is reached by topics: as its link says, or because the plant stands in for it."""
    stands_in = flag_parameter(node, "plant_flies", default=False, description="the plant stands in for the vehicle")
    return stands_in or robot.link.profile.flight.wire.value == "topics"


def hear_vehicle(
    listen: Callable[..., None],
    now_s: Callable[[], float],
    robot: FleetRobot,
    take: Take,
    refuse: Callable[[Exception], None],
    *,
    topics: bool,
) -> None:
    """Hear what a vehicle says of itself.

    Args:
        listen: subscribes: type, topic, callback, and the name of a quality of service.
        now_s: the clock of the node.
        robot: whose vehicle.
        take: is given each state, and when it came.
        refuse: is given why a message cannot be read.
        topics: see `speaks_topics`.
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
        listen(UInt8MultiArray, "vehicle_state", on_message, "vehicle_state")
    else:
        listen(message_class(STATUS), robot.link.topics["battery_state"], on_status, "vehicle_state")


class GuardFlight:
    """The flight of a robot, in its guard's node."""

    def __init__(self, node: Node, tempo: Tempo, robot: FleetRobot) -> None:
        """Connect.

        Raises:
            TestudoError: a message or service type is not installed.
        """
        self._node, self._tempo, self._name = node, tempo, robot.name
        self.pure = FlightGuard()
        self._sequence = round(1000 * tempo.now_s())  # grows over the lives of the guard
        self._wake: Callable[[], None] = _nothing
        topics = speaks_topics(node, robot)
        self._requests = tempo.publisher(UInt8MultiArray, "flight_request", OFFERED["flight_request"])
        self._clients = (
            {}
            if topics
            else {
                act: node.create_client(message_class(call.type), f"/{robot.name}/{call.name}")
                for act, call in CALLS.items()
            }
        )

        def listen(kind: type, topic: str, callback: Callable[[Any], None], quality: str) -> None:
            tempo.listen(kind, topic, callback, REQUESTED[quality])

        listen(UInt8MultiArray, "flight_order", self._on_order, "flight_order")
        hear_vehicle(listen, tempo.now_s, robot, self.pure.hear_vehicle, self._refuse, topics=topics)

    def begin(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` when an order came, which may change whether set-points leave."""
        self._wake = wake

    def step(self, *, stopped: bool, blind: bool) -> None:
        """Go on, and ask the vehicle what is to be asked; who is blind does not take off."""
        stays = blind and self.pure.phase is GuardPhase.GROUND
        self.ask(self.pure.step(self._tempo.now_s(), stopped=stopped or stays))

    def close(self, spin: Callable[[], bool]) -> None:
        """Land what flies, and stay until its planner has it.

        Args:
            spin: lets callbacks and timers run for a moment; False once there is no more time.
        """
        self.ask(self.pure.close(self._tempo.now_s()))
        while not self.pure.ended and spin():
            pass
        self.ask(self.pure.farewell(self._tempo.now_s()))

    def ask(self, requests: tuple[FlightRequest, ...]) -> None:
        """Ask the vehicle; the record has it in any case."""
        for request in requests:
            self._sequence += 1
            message = FlightRequestMessage.of(self._name, self._sequence, self._tempo.now_s(), request)
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
            self.pure.hear_order(order, self._tempo.now_s())
            self._wake()

    def _refuse(self, error: Exception) -> None:
        self._node.get_logger().warning(str(error), throttle_duration_sec=WARN_EVERY_S)


def _nothing() -> None:
    pass
