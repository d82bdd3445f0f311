"""ROS messages: plain values to messages and back, and message types by name.

`testudo_hardware.links.wire` holds the conventions of measurements and commands.
"""

import importlib
import json
import re
import struct
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from geometry_msgs.msg import TwistStamped
from nav_msgs.msg import Odometry
from rclpy.node import Node
from std_msgs.msg import String, UInt8MultiArray

from testudo_deploy.contract.messages import EnvelopeError
from testudo_deploy.monitoring.diagnostics import Status
from testudo_hardware.errors import TestudoError
from testudo_hardware.links.wire import CommandReading, OdometryReading, fill_command, fill_odometry
from testudo_hardware.spec import RobotSpec

_CDR = struct.Struct("<IIII")
_LITTLE_ENDIAN, _ORDER_MASK = 0x0100, 0xFFFF
"""CDR encapsulation: its first two bytes give the byte order; the others are options."""
_RULE = "=" * 80
_FIELD = re.compile(r"^\s*(?P<type>[A-Za-z]\w*(?:/\w+)?)(?:\[[^\]]*\])?\s+[a-z]\w*", re.MULTILINE)
_PLAIN = re.compile(r"bool|byte|char|u?int(8|16|32|64)|float(32|64)|w?string")


class DefinitionError(TestudoError):
    """A message type or its definition is not installed."""


def odometry_message(robot: str, spec: RobotSpec, reading: OdometryReading) -> Odometry:
    """Return odometry with the pose in the world frame and the twist in the body frame."""
    return fill_odometry(Odometry(), robot, spec, reading)


def command_message(robot: str, spec: RobotSpec, reading: CommandReading) -> TwistStamped:
    """Return a command, in the body frame for a wheeled robot and in the world frame for a drone."""
    return fill_command(TwistStamped(), robot, spec, reading)


def envelope_message(data: bytes) -> UInt8MultiArray:
    """Return an envelope of `testudo_deploy.contract.messages` as a message."""
    return UInt8MultiArray(data=array("B", data))


def envelope_bytes(message: UInt8MultiArray) -> bytes:
    """Return the envelope in a message."""
    return bytes(message.data)


def raw_envelope(data: bytes) -> bytes:
    """Return an envelope as a serialised `UInt8MultiArray`: as `envelope_message`, in a twentieth of the time.

    CDR, little endian: no dimensions, no offset, the length, the bytes (OMG DDSI-RTPS 10.2).
    """
    return _CDR.pack(_LITTLE_ENDIAN, 0, 0, len(data)) + data


def raw_envelope_bytes(raw: bytes) -> bytes:
    """Return the envelope in a serialised `UInt8MultiArray`.

    Raises:
        EnvelopeError: it has dimensions, a wrong length or another byte order.
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
    """Return a status as a diagnostics message."""
    values = [KeyValue(key=key, value=value) for key, value in status.values.items()]
    return DiagnosticStatus(
        level=bytes([status.level]),
        name=status.name,
        message=status.message,
        hardware_id=status.hardware_id,
        values=values,
    )


def diagnostics_message(message: DiagnosticStatus, node: Node) -> DiagnosticArray:
    """Return a status for the topic `/diagnostics`, stamped with the node's clock."""
    found = DiagnosticArray(status=[message])
    found.header.stamp = node.get_clock().now().to_msg()
    return found


def status_values(message: DiagnosticStatus) -> dict[str, str]:
    """Return the named values of a status."""
    return {pair.key: pair.value for pair in message.values}


def message_class(message_type: str) -> Any:
    """Return the Python class of a message type such as `nav_msgs/msg/Odometry`.

    Raises:
        DefinitionError: it is not installed.
    """
    package, kind, message = message_type.split("/")
    try:
        return getattr(importlib.import_module(f"{package}.{kind}"), message)
    except (ImportError, AttributeError) as error:
        raise DefinitionError(f"{message_type}: not installed; expected the ROS package {package}") from error


def message_definition(message_type: str) -> str:
    """Return the definition of a type such as `nav_msgs/msg/Odometry` with all types in it, in the form `ros2msg`.

    Raises:
        DefinitionError: the package or its definition is not installed.
    """
    parts, seen, waiting = [], {message_type}, [message_type]
    while waiting:
        name = waiting.pop(0)
        package, _, message = name.split("/")
        text = _share_file(package, f"msg/{message}.msg").read_text(encoding="utf-8")
        parts.append(text if not parts else f"{_RULE}\nMSG: {package}/{message}\n{text}")
        for found in _FIELD.finditer(text):
            used = found["type"]
            if _PLAIN.fullmatch(used):
                continue
            if used == "Header":
                used = "std_msgs/Header"
            if "/" not in used:
                used = f"{package}/{used}"
            full = used.replace("/", "/msg/")
            if full not in seen:
                seen.add(full)
                waiting.append(full)
    return "\n".join(part.rstrip("\n") for part in parts) + "\n"


def type_hash(message_type: str) -> str:
    """Return the hash `RIHS01_...` of a type; empty where this ROS distribution has none."""
    package, _, message = message_type.split("/")
    try:
        tables = json.loads(_share_file(package, f"msg/{message}.json").read_text(encoding="utf-8"))
    except DefinitionError:
        return ""
    entries = tables.get("type_hashes", [])
    return next((entry["hash_string"] for entry in entries if entry["type_name"] == message_type), "")


def _share_file(package: str, name: str) -> Path:
    # the ament index needs environment variables that wheels do not set; the layout is the same
    module = Path(importlib.import_module(package).__file__ or "")
    for folder in module.parents:
        file = folder / "share" / package / name
        if file.is_file():
            return file
    raise DefinitionError(
        f"{package}/{name}: no such definition beside {module.parent}; install the "
        f"ROS package {package} with its share folder"
    )
