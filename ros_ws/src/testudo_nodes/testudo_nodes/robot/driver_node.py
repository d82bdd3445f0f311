"""The driver of a Crazyflie without Crazyswarm2: the guard's commands to the radio, its logs to odometry and battery.

The logic is in `testudo_hardware.links.crazyflie`; needs `cflib`, which the extra `crazyflie` installs.
"""

import sys
import time
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import TwistStamped
from nav_msgs.msg import Odometry
from rclpy.node import Node
from rclpy.task import Future
from sensor_msgs.msg import BatteryState
from std_msgs.msg import UInt8MultiArray

from testudo_deploy.contract.messages import EnvelopeError
from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.guard.flight_messages import FlightRequestMessage, VehicleMessage
from testudo_deploy.launch.topic_names import DIAGNOSTICS_TOPIC
from testudo_deploy.monitoring.diagnostics import Level, Status, diagnostic_text
from testudo_hardware.errors import TestudoError
from testudo_hardware.links.crazyflie.radio_link import CrazyflieRadio
from testudo_hardware.links.crazyflie.vehicle_messages import RadioSample
from testudo_hardware.links.flight_link import FlightAct, VehicleState
from testudo_hardware.links.topics import CommandWire, MeasurementWire
from testudo_hardware.links.wire import WireError
from testudo_nodes.common.clock import backend_of, clock_of, secure
from testudo_nodes.common.messages import (
    diagnostics_message,
    envelope_bytes,
    envelope_message,
    message_class,
    status_message,
)
from testudo_nodes.common.node_runner import WARN_EVERY_S, CpuMeter, report_status, run, text_parameter
from testudo_nodes.common.qos import OFFERED, REQUESTED, measured

_STATUS_S = 0.1
_OLDEST_REQUEST_S = 1.0


class DriverNode(Node):
    """The driver of one drone, in its namespace."""

    def __init__(self, _stop: Future) -> None:
        """Connect the radio, check the drone, and then create the topics.

        Raises:
            TestudoError: the fleet is refused, or the drone is not reached or has a wrong configuration.
        """
        super().__init__("driver")
        self.failed = False
        self._node_clock = clock_of(self)
        self.priority = self._node_clock.priority
        fleet = load_fleet(text_parameter(self, "fleet", "the fleet file"))
        secure(self, self._node_clock, fleet, backend_of(self))
        text_parameter(self, "policy", "the policy file, which is not used")
        name = text_parameter(self, "robot", "the name of this robot in the fleet file")
        self._robot = fleet.robot(name)
        link = self._robot.link
        if link.profile.driver is None:
            raise TestudoError(
                f"{name}: found link {link.profile.name!r}, which has its own driver, expected crazyflie_radio"
            )
        self._wire = CommandWire(name, self._robot.spec, link.profile)
        self._measured = MeasurementWire.odometry(name, self._robot.spec, link.profile)
        self._request: FlightRequestMessage | None = None
        self._reported, self._holds = ("", ""), ""
        self._odometry = self._node_clock.publisher(Odometry, link.topics["odom"], measured(reliable=True))
        self._radio = CrazyflieRadio(name, self._robot.spec, link.uri, on_sample=self._on_sample)
        self._radio.open()
        self._connect()
        self._cpu = CpuMeter()

    def close(self) -> None:
        """Land the drone if it flies."""
        self._radio.close()
        report_status("driver", {"robot": self._robot.name, "cpu_share": self._cpu.share()})

    def _connect(self) -> None:
        clock, topics = self._node_clock, self._robot.link.topics
        self._battery = clock.publisher(BatteryState, topics["battery_state"], OFFERED["battery_state"])
        self._vehicle = clock.publisher(UInt8MultiArray, "vehicle_state", OFFERED["vehicle_state"])
        self._diagnostics = clock.publisher(DiagnosticArray, DIAGNOSTICS_TOPIC, OFFERED["diagnostics"])
        clock.subscribe(message_class(self._wire.type), topics["cmd_vel"], self._on_command, REQUESTED["cmd_vel"])
        clock.subscribe(UInt8MultiArray, "flight_request", self._on_request, REQUESTED["flight_request"])
        pose, form = self._robot.pose, self._robot.link.profile.pose
        if pose is not None and form is not None and pose.source == "mocap":
            kind = message_class(form.type.value)
            clock.subscribe(kind, topics["pose"], self._on_poses, REQUESTED["pose"])
        clock.every(_STATUS_S, self._publish_status)

    def _on_sample(self, sample: RadioSample) -> None:
        """Publish the measured pose; called from a thread of `cflib`."""
        self._odometry.publish(self._measured.encode(Odometry(), sample.odometry))

    def _on_command(self, message: TwistStamped) -> None:
        try:
            self._radio.send(self._wire.decode(message, self._node_clock.now_s()))
        except WireError as error:
            self.get_logger().warning(str(error), throttle_duration_sec=WARN_EVERY_S)
        if self._radio.holds != self._holds:  # the guard must know immediately that commands are not followed
            self._publish_vehicle()

    def _on_request(self, message: UInt8MultiArray) -> None:
        try:
            found = FlightRequestMessage.decode(envelope_bytes(message))
            if found.robot != self._robot.name or found == self._request:
                return
            self._request = found  # a restarted guard may repeat a number, but never the stamp
            if time.monotonic() - found.stamp_s > _OLDEST_REQUEST_S and found.request.act != FlightAct.EMERGENCY:
                self.get_logger().warning(f"{found.robot}: {found.act}: more than {_OLDEST_REQUEST_S:g} s old, refused")
                return
            self._radio.ask(found.request)
        except (EnvelopeError, WireError) as error:
            self.get_logger().warning(str(error), throttle_duration_sec=WARN_EVERY_S)

    def _on_poses(self, message: Any) -> None:
        """Send the pose of motion capture to the estimator of the drone."""
        for body in message.poses:
            if body.name == self._robot.name:
                at, turn = body.pose.position, body.pose.orientation
                self._radio.send_pose((at.x, at.y, at.z), (turn.x, turn.y, turn.z, turn.w))

    def _publish_vehicle(self) -> VehicleState | None:
        """Publish the state of the drone, and return it; None before the first one."""
        vehicle = self._radio.vehicle
        if vehicle is not None:
            self._holds = vehicle.holds
            self._vehicle.publish(envelope_message(VehicleMessage.of(self._robot.name, vehicle).encode()))
        return vehicle

    def _publish_status(self) -> None:
        """Publish the state of drone and radio."""
        standing, vehicle = self._radio.standing, self._publish_vehicle()
        if vehicle is not None and vehicle.battery_v is not None:
            self._battery.publish(BatteryState(voltage=float(vehicle.battery_v), present=True))
        values = {
            "code": standing.code,
            "phase": str(standing.phase),
            "refusal": standing.refusal,
            "samples": diagnostic_text(self._radio.samples),
        }
        level = Level.ERROR if standing.code else Level.OK
        status = Status(level, f"{self._robot.name}: driver", self._robot.name, standing.sentence, values)
        self._diagnostics.publish(diagnostics_message(status_message(status), self))
        if (standing.code, standing.refusal) != self._reported:
            self._reported = (standing.code, standing.refusal)
            for text in filter(None, (standing.code and standing.sentence, standing.refusal)):
                self.get_logger().warning(text)


def main() -> None:
    """Run the node until a signal comes."""
    sys.exit(run(DriverNode))


if __name__ == "__main__":
    main()
