"""The plant as a vehicle that flies: requests of the guard in, its state out, on the topics of one drone."""

from __future__ import annotations

from typing import Any

from rclpy.node import Node
from sensor_msgs.msg import BatteryState
from std_msgs.msg import UInt8MultiArray

from testudo_deploy.contract.messages import EnvelopeError
from testudo_deploy.fleet.fleet import FleetRobot
from testudo_deploy.guard.flight_messages import FlightRequestMessage, VehicleMessage
from testudo_nodes.common.clock import RealTime
from testudo_nodes.common.message_conversions import envelope_bytes, envelope_message
from testudo_nodes.common.node_runner import WARN_EVERY_S
from testudo_nodes.common.qos import OFFERED, REQUESTED
from testudo_nodes.plant.lock_step_server import LockStepServer
from testudo_plant.plant import Plant

_PERIOD_S = 0.1


class VehicleInterface:
    """What a drone of the plant hears and says beside set-points and odometry."""

    def __init__(self, node: Node, tempo: RealTime | LockStepServer, plant: Plant, robot: FleetRobot) -> None:
        self._node, self._plant, self._name = node, plant, robot.name
        self._heard = -1
        self._next_s = 0.0
        self._asks = robot.has_flight_phases
        self._battery = tempo.publisher(BatteryState, f"/{robot.name}/battery_state", OFFERED["battery_state"])
        if self._asks:
            self._state = tempo.publisher(UInt8MultiArray, f"/{robot.name}/vehicle_state", OFFERED["vehicle_state"])
            tempo.listen(
                UInt8MultiArray, f"/{robot.name}/flight_request", self._on_request, REQUESTED["flight_request"]
            )

    def publish(self, now_s: float) -> None:
        """Send what is due."""
        if now_s < self._next_s:
            return
        self._next_s = now_s + _PERIOD_S
        state = self._plant.vehicle(self._name)
        charge = self._plant.charge(self._name)
        self._battery.publish(BatteryState(voltage=float(state.battery_v or "nan"), percentage=charge, present=True))
        if self._asks:
            self._state.publish(envelope_message(VehicleMessage.of(self._name, state).encode()))

    def _on_request(self, message: Any) -> None:
        try:
            heard = FlightRequestMessage.decode(envelope_bytes(message))
        except EnvelopeError as error:
            self._node.get_logger().warning(str(error), throttle_duration_sec=WARN_EVERY_S)
            return
        if heard.robot == self._name and heard.sequence > self._heard:  # one that comes again is the same request
            self._heard = heard.sequence
            self._plant.ask(self._name, heard.request)
