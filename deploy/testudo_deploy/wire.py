"""Standard ROS messages to plain values and back, see `testudo_hardware.links`, which holds the conventions."""

from __future__ import annotations

from testudo_hardware.links.wire import (
    WORLD_FRAME,
    CommandReading,
    OdometryReading,
    WireError,
    body_frame,
    command_frame,
    fill_command,
    fill_odometry,
    read_command,
    read_odometry,
    travelling_command,
    world_command,
)

__all__ = [
    "WORLD_FRAME",
    "CommandReading",
    "OdometryReading",
    "WireError",
    "body_frame",
    "command_frame",
    "fill_command",
    "fill_odometry",
    "read_command",
    "read_odometry",
    "travelling_command",
    "world_command",
]
