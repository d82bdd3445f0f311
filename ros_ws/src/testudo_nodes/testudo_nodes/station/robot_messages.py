"""The newest messages of one robot for a viewer, stored serialised and decoded for each picture."""

from collections.abc import Callable
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus
from nav_msgs.msg import Odometry
from rclpy.serialization import deserialize_message
from std_msgs.msg import UInt8MultiArray

from testudo_deploy.contract.messages import EnvelopeError, PeerMessage, TickRecord
from testudo_deploy.fleet.fleet import FleetRobot
from testudo_deploy.fleet.pose_source import recorded_pose, shared_odometry
from testudo_deploy.station.robot_markers import RobotView
from testudo_hardware.links.wire import OdometryReading, WireError, read_odometry
from testudo_nodes.common.messages import envelope_bytes, status_values

TYPES = {"odom": Odometry, "tick": UInt8MultiArray, "peer_state": UInt8MultiArray, "mode": DiagnosticStatus}
"""Type of message by kind."""


class RobotMessages:
    """The newest message of each topic of one robot."""

    def __init__(self, robot: FleetRobot, warn: Callable[[str], object]) -> None:
        """Begin without any; ``warn`` takes a sentence about a message that cannot be used."""
        self._robot, self._warn = robot, warn
        self._newest: dict[str, tuple[float, bytes]] = {}
        self.topics = {kind: f"/{robot.name}/{kind}" for kind in TYPES}
        """By kind; odometry only if it is in the frame of the fleet."""
        shared = shared_odometry(robot)
        if shared is None:
            self.topics.pop("odom")
        else:
            self.topics["odom"], self._frames = shared

    def take(self, kind: str, received_s: float, data: bytes) -> None:
        """Take a serialised message."""
        self._newest[kind] = (received_s, data)

    def view(self, now_s: float) -> RobotView:
        """Return the data of the robot at ``now_s`` [s]."""
        name, spec = self._robot.name, self._robot.spec
        envelope, record_age_s = self._read("tick", now_s)
        record = _decoded(TickRecord, envelope)
        peer = _decoded(PeerMessage, self._read("peer_state", now_s)[0])
        reading, pose_age_s = self._odometry(now_s)
        if reading is None and record is not None:
            reading = recorded_pose(record, now_s - record_age_s)
            pose_age_s = float("inf") if reading is None else now_s - reading.stamp_s
        position, yaw = (None, 0.0) if reading is None else (reading.position_world, reading.yaw)
        mode = self._mode(now_s)
        return RobotView(
            name,
            spec,
            position,
            yaw,
            pose_age_s,
            record,
            record_age_s,
            peer,
            mode.get("mode", ""),
            mode.get("code", ""),
        )

    def _odometry(self, now_s: float) -> tuple[OdometryReading | None, float]:
        """Return the newest odometry and its age [s]; None if there is none in the shared frame."""
        message, age_s = self._read("odom", now_s)
        if message is None:
            return None, age_s
        try:
            reading = read_odometry(message, self._robot.name, self._robot.spec, self._frames)
        except WireError as error:
            self._warn(str(error))
            return None, float("inf")
        return reading, age_s

    def _mode(self, now_s: float) -> dict[str, str]:
        message, _ = self._read("mode", now_s)
        return {} if message is None else status_values(message)

    def _read(self, topic: str, now_s: float) -> tuple[Any, float]:
        """Return the newest message and its age [s]; None and infinity without one."""
        if topic not in self._newest:
            return None, float("inf")
        received_s, data = self._newest[topic]
        return deserialize_message(data, TYPES[topic]), now_s - received_s


def _decoded(kind: type, envelope: UInt8MultiArray | None) -> Any:
    """Return the decoded envelope of a message; None without a message, or if it cannot be read."""
    try:
        return None if envelope is None else kind.decode(envelope_bytes(envelope))
    except EnvelopeError:
        return None
