"""Plain values to ROS messages; `testudo_hardware.links.wire` holds the conventions and reads them."""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Mapping
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from geometry_msgs.msg import TwistStamped
from nav_msgs.msg import Odometry
from rclpy.node import Node
from std_msgs.msg import String, UInt8MultiArray

from testudo_deploy.contract.messages import EnvelopeError
from testudo_deploy.monitoring.diagnostics import Status
from testudo_hardware.links.wire import CommandReading, OdometryReading, fill_command, fill_odometry
from testudo_hardware.spec import RobotSpec

_CDR = struct.Struct("<IIII")
_LITTLE_ENDIAN, _ORDER_MASK = 0x0100, 0xFFFF
"""Encapsulation of CDR, its first two bytes; the others are options."""


def odometry_message(robot: str, spec: RobotSpec, reading: OdometryReading) -> Odometry:
    """Return a pose in the world with the twist in the body."""
    return fill_odometry(Odometry(), robot, spec, reading)


def command_message(robot: str, spec: RobotSpec, reading: CommandReading) -> TwistStamped:
    """Return a command, in the body for a wheeled robot and in the world for a drone."""
    return fill_command(TwistStamped(), robot, spec, reading)


def envelope_message(data: bytes) -> UInt8MultiArray:
    """Return an envelope of `testudo_deploy.contract.messages` as a message."""
    return UInt8MultiArray(data=array("B", data))


def envelope_bytes(message: UInt8MultiArray) -> bytes:
    """Return the envelope that a message carries."""
    return bytes(message.data)


def raw_envelope(data: bytes) -> bytes:
    """Return an envelope as a serialised `UInt8MultiArray`: as `envelope_message`, in a twentieth of the time.

    CDR, little endian: no dimensions, no offset, the length, the bytes (OMG DDSI-RTPS 10.2).
    """
    return _CDR.pack(_LITTLE_ENDIAN, 0, 0, len(data)) + data


def raw_envelope_bytes(raw: bytes) -> bytes:
    """Return the envelope in a serialised `UInt8MultiArray`.

    Raises:
        EnvelopeError: it has dimensions, or is of another length than it says, or in another byte order.
    """
    if len(raw) >= _CDR.size:
        order, dimensions, _, length = _CDR.unpack_from(raw)
        data = raw[_CDR.size : _CDR.size + length]
        if order & _ORDER_MASK == _LITTLE_ENDIAN and not dimensions and len(data) == length:
            return data
    raise EnvelopeError("envelope: not a std_msgs/msg/UInt8MultiArray without dimensions")


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


def diagnostics_message(message: DiagnosticStatus, node: Node) -> DiagnosticArray:
    """Return a status as the topic `/diagnostics` takes it, stamped by a node's clock."""
    found = DiagnosticArray(status=[message])
    found.header.stamp = node.get_clock().now().to_msg()
    return found


def status_values(message: DiagnosticStatus) -> dict[str, str]:
    """Return the named values of a status."""
    return {pair.key: pair.value for pair in message.values}
