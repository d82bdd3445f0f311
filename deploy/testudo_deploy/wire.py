"""Standard ROS messages to plain values and back: frames, quaternion order, stamps in one place.

Messages are taken by their fields only, so that those of rclpy and of rosbags both do, and ROS is
not imported here. An odometry pose stands in the world, its twist in the body (REP-105). A command
is a body twist for a robot on the ground and a velocity in the world for a drone; its frame says which.
The motion model of a holonomic base speaks of the world: `travelling_command` and `world_command` turn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from testudo_hardware.errors import TestudoError
from testudo_hardware.frames import quaternion_xyzw_from_yaw, yaw_from_quaternion_xyzw
from testudo_hardware.schema import DIFFERENTIAL_DRIVE, HOLONOMIC, VELOCITY_POINT
from testudo_hardware.spec import RobotSpec

WORLD_FRAME = "world"
_NANO = 1_000_000_000


class WireError(TestudoError):
    """A message cannot be read: wrong frame, or a quaternion that is none."""


@dataclass(frozen=True)
class OdometryReading:
    """What an odometry message says, in the command channels of the robot."""

    stamp_s: float
    """Steady clock of the measurement."""
    position_world: tuple[float, ...]
    """(D,) [m]."""
    yaw: float
    """[rad]."""
    velocity: tuple[float, ...]
    """(D,): (forward [m/s], turn rate [rad/s]) in the body, or (x, y, z) [m/s] in the world."""


@dataclass(frozen=True)
class CommandReading:
    """What a command message says."""

    stamp_s: float
    """Steady clock at sending."""
    command: tuple[float, ...]
    """(D,): (forward [m/s], turn rate [rad/s]), or a velocity [m/s] in the frame of `command_frame`."""


def body_frame(robot: str) -> str:
    """Return the name of the frame that is fixed to a robot."""
    return f"{robot}/base_link"


def command_frame(robot: str, spec: RobotSpec) -> str:
    """Return the frame in which commands of a robot travel."""
    return WORLD_FRAME if spec.kind == VELOCITY_POINT else body_frame(robot)


def travelling_command(spec: RobotSpec, command: Sequence[float], yaw: float) -> tuple[float, ...]:
    """Return a command (D,) of the motion model in the frame in which it travels.

    Args:
        spec: the robot.
        command: in the channels of its motion model.
        yaw: where the robot believes that it faces [rad].
    """
    return _turned(tuple(command), -yaw) if spec.kind == HOLONOMIC else tuple(command)


def world_command(spec: RobotSpec, command: Sequence[float], yaw: float) -> tuple[float, ...]:
    """Return a command (D,) that travelled in the channels of the motion model, of a robot that faces ``yaw`` [rad]."""
    return _turned(tuple(command), yaw) if spec.kind == HOLONOMIC else tuple(command)


def fill_odometry(message: Any, robot: str, spec: RobotSpec, reading: OdometryReading) -> Any:
    """Write a reading into an empty `nav_msgs/Odometry` and return it."""
    _fill_stamp(message.header.stamp, reading.stamp_s)
    message.header.frame_id, message.child_frame_id = WORLD_FRAME, body_frame(robot)
    _fill_axes(message.pose.pose.position, reading.position_world)
    turn = message.pose.pose.orientation
    turn.x, turn.y, turn.z, turn.w = quaternion_xyzw_from_yaw(reading.yaw)
    twist = message.twist.twist
    if spec.kind == DIFFERENTIAL_DRIVE:
        twist.linear.x, twist.angular.z = map(float, reading.velocity)
    else:
        _fill_axes(twist.linear, _turned(reading.velocity, -reading.yaw))
    return message


def read_odometry(message: Any, robot: str, spec: RobotSpec) -> OdometryReading:
    """Read a `nav_msgs/Odometry`; numbers that are not finite are passed on, to be refused later.

    Raises:
        WireError: another frame, or a quaternion whose norm is not 1 within 1e-3.
    """
    frames = (message.header.frame_id, message.child_frame_id)
    if frames != (WORLD_FRAME, body_frame(robot)):
        raise WireError(
            f"{robot}: odometry: found frames {frames}, expected {(WORLD_FRAME, body_frame(robot))}"
        )
    turn = message.pose.pose.orientation
    try:
        yaw = yaw_from_quaternion_xyzw(turn.x, turn.y, turn.z, turn.w)
    except ValueError as error:
        raise WireError(f"{robot}: odometry: {error}") from error
    twist = message.twist.twist
    if spec.kind == DIFFERENTIAL_DRIVE:
        velocity: tuple[float, ...] = (twist.linear.x, twist.angular.z)
    else:
        velocity = _turned(_axes(twist.linear, spec.dimension), yaw)
    position = _axes(message.pose.pose.position, spec.dimension)
    return OdometryReading(_stamp_s(message.header.stamp), position, yaw, velocity)


def fill_command(message: Any, robot: str, spec: RobotSpec, reading: CommandReading) -> Any:
    """Write a command into an empty `geometry_msgs/TwistStamped` and return it."""
    _fill_stamp(message.header.stamp, reading.stamp_s)
    message.header.frame_id = command_frame(robot, spec)
    if spec.kind == DIFFERENTIAL_DRIVE:
        message.twist.linear.x, message.twist.angular.z = map(float, reading.command)
    else:
        _fill_axes(message.twist.linear, reading.command)
    return message


def read_command(message: Any, robot: str, spec: RobotSpec) -> CommandReading:
    """Read a `geometry_msgs/TwistStamped`; numbers that are not finite are passed on.

    Raises:
        WireError: another frame.
    """
    expected = command_frame(robot, spec)
    if message.header.frame_id != expected:
        raise WireError(
            f"{robot}: command: found frame {message.header.frame_id!r}, expected {expected!r}"
        )
    twist = message.twist
    command = (
        (twist.linear.x, twist.angular.z)
        if spec.kind == DIFFERENTIAL_DRIVE
        else _axes(twist.linear, spec.dimension)
    )
    return CommandReading(_stamp_s(message.header.stamp), command)


def _fill_stamp(stamp: Any, time_s: float) -> None:
    stamp.sec, stamp.nanosec = divmod(round(time_s * _NANO), _NANO)


def _stamp_s(stamp: Any) -> float:
    return stamp.sec + stamp.nanosec / _NANO


def _fill_axes(vector: Any, values: Sequence[float]) -> None:
    for axis, value in zip("xyz", values, strict=False):
        setattr(vector, axis, float(value))


def _axes(vector: Any, dimension: int) -> tuple[float, ...]:
    return (vector.x, vector.y, vector.z)[:dimension]


def _turned(vector: tuple[float, ...], yaw: float) -> tuple[float, ...]:
    """Return the vector turned by ``yaw`` [rad] about z: body to world for yaw, back for -yaw."""
    cosine, sine = math.cos(yaw), math.sin(yaw)
    x, y, *up = vector
    return (cosine * x - sine * y, sine * x + cosine * y, *up)
