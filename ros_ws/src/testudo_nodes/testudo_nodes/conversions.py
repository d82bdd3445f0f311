"""Plain values to ROS messages; `testudo_hardware.links.wire` holds the conventions and reads them."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus, KeyValue
from geometry_msgs.msg import TwistStamped
from nav_msgs.msg import Odometry
from std_msgs.msg import String, UInt8MultiArray

from testudo_deploy.diagnostics import Status
from testudo_hardware.links.wire import CommandReading, OdometryReading, fill_command, fill_odometry
from testudo_hardware.spec import RobotSpec


def odometry_message(robot: str, spec: RobotSpec, reading: OdometryReading) -> Odometry:
    """Return a pose in the world with the twist in the body."""
    return fill_odometry(Odometry(), robot, spec, reading)


def command_message(robot: str, spec: RobotSpec, reading: CommandReading) -> TwistStamped:
    """Return a command, in the body for a wheeled robot and in the world for a drone."""
    return fill_command(TwistStamped(), robot, spec, reading)


def envelope_message(data: bytes) -> UInt8MultiArray:
    """Return an envelope of `testudo_deploy.messages` as a message."""
    return UInt8MultiArray(data=array("B", data))


def envelope_bytes(message: UInt8MultiArray) -> bytes:
    """Return the envelope that a message carries."""
    return bytes(message.data)


def event_message(values: Mapping[str, Any]) -> String:
    """Return an event as a line of JSON."""
    return String(data=json.dumps(values))


def status_message(status: Status) -> DiagnosticStatus:
    """Return a status as diagnostics carry it."""
    values = [KeyValue(key=key, value=value) for key, value in status.values.items()]
    return DiagnosticStatus(
        level=bytes([status.level]),
        name=status.name,
        message=status.message,
        hardware_id=status.hardware_id,
        values=values,
    )


def status_values(message: DiagnosticStatus) -> dict[str, str]:
    """Return the named values of a status."""
    return {pair.key: pair.value for pair in message.values}
