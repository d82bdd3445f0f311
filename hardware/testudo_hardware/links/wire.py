"""Standard ROS messages to plain values and back: frames, quaternion order, stamps.

Messages are accessed by their fields only, so that messages of rclpy and of rosbags work, and ROS is not imported. An
odometry pose is in the world, its twist in the body (REP-105). A command is a body twist for a robot on the ground and
a velocity in the world for a drone; the frame of its header says which. The motion model of a holonomic base uses the
world frame: `body_forward_command` and `world_command` convert.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testudo_hardware.errors import TestudoError
from testudo_hardware.frames import PlanarTransform, quaternion_xyzw_from_yaw, turned, yaw_from_quaternion_xyzw
from testudo_hardware.schema import DIFFERENTIAL_DRIVE, HOLONOMIC, VELOCITY_POINT
from testudo_hardware.spec import RobotSpec

WORLD_FRAME = "world"
_NANO = 1_000_000_000


class WireError(TestudoError):
    """A message cannot be read: wrong frame, or an invalid quaternion."""


@dataclass(frozen=True)
class OdometryReading:
    """An odometry message, in the command channels of the robot."""

    stamp_s: float  # steady clock of the measurement
    position_world: tuple[float, ...]  # (D,) [m], in the world or in the frame given to the reader
    yaw: float  # [rad], in the same frame
    velocity: tuple[float, ...]
    """(D,): (forward [m/s], turn rate [rad/s]) in the body, or (x, y, z) [m/s] in the same frame as the position."""
    tilt_rad: float = 0.0  # between the body's z axis and the vertical
    quaternion_xyzw: tuple[float, ...] | None = None
    """Body to world, of a robot that tilts, where the writer knows it; None: upright."""


@dataclass(frozen=True)
class CommandReading:
    """A command message."""

    stamp_s: float  # steady clock at sending
    command: tuple[float, ...]
    """(D,): (forward [m/s], turn rate [rad/s]), or a velocity [m/s] in the frame of `command_frame`."""
    yaw_rate: float = 0.0
    """[rad/s] of a drone, counter-clockwise seen from above; 0 if it holds its heading or ``command`` contains it."""


def body_frame(robot: str) -> str:
    """Return the name of the frame that is fixed to a robot."""
    return f"{robot}/base_link"


def command_frame(robot: str, spec: RobotSpec) -> str:
    """Return the frame of a robot's command messages."""
    return WORLD_FRAME if spec.kind == VELOCITY_POINT else body_frame(robot)


def body_forward_command(spec: RobotSpec, command: Sequence[float], yaw: float) -> tuple[float, ...]:
    """Return a command (D,) of the motion model in the frame of its message; ``yaw`` [rad] of the robot."""
    return turned(command, -yaw) if spec.kind == HOLONOMIC else tuple(command)


def world_command(spec: RobotSpec, command: Sequence[float], yaw: float) -> tuple[float, ...]:
    """Return the command (D,) of a message in the channels of the motion model; inverse of `body_forward_command`."""
    return turned(command, yaw) if spec.kind == HOLONOMIC else tuple(command)


def fill_odometry(
    message: Any, robot: str, spec: RobotSpec, reading: OdometryReading, frames: tuple[str, str] | None = None
) -> Any:
    """Write a reading into an empty `nav_msgs/Odometry` and return it; ``frames`` as in `read_odometry`."""
    fill_stamp(message.header.stamp, reading.stamp_s)
    message.header.frame_id, message.child_frame_id = frames or (WORLD_FRAME, body_frame(robot))
    fill_pose(message.pose.pose, reading.position_world, reading.yaw)
    if reading.quaternion_xyzw is not None:
        turn = message.pose.pose.orientation
        turn.x, turn.y, turn.z, turn.w = map(float, reading.quaternion_xyzw)
    twist = message.twist.twist
    if spec.kind == DIFFERENTIAL_DRIVE:
        twist.linear.x, twist.angular.z = map(float, reading.velocity)
    else:
        fill_axes(twist.linear, turned(reading.velocity, -reading.yaw))
    return message


def read_odometry(message: Any, robot: str, spec: RobotSpec, frames: tuple[str, str] | None = None) -> OdometryReading:
    """Read a `nav_msgs/Odometry`; values that are not finite are returned, to be refused later.

    ``frames`` of pose and body default to `WORLD_FRAME` and `body_frame`.

    Raises:
        WireError: another frame, or a quaternion whose norm is not 1 within 1e-3.
    """
    found, expected = (message.header.frame_id, message.child_frame_id), frames or (WORLD_FRAME, body_frame(robot))
    if found != expected:
        raise WireError(f"{robot}: odometry: found frames {found}, expected {expected}")
    position, yaw = read_pose(message.pose.pose, spec.dimension, f"{robot}: odometry")
    twist = message.twist.twist
    if spec.kind == DIFFERENTIAL_DRIVE:
        velocity: tuple[float, ...] = (twist.linear.x, twist.angular.z)
    else:
        velocity = turned(read_axes(twist.linear, spec.dimension), yaw)
    tilt_rad = read_tilt(message.pose.pose.orientation)
    return OdometryReading(read_stamp(message.header.stamp), position, yaw, velocity, tilt_rad)


def fill_command(message: Any, robot: str, spec: RobotSpec, reading: CommandReading, frame: str | None = None) -> Any:
    """Write a command into an empty `geometry_msgs/TwistStamped` and return it; ``frame`` as in `read_command`."""
    fill_stamp(message.header.stamp, reading.stamp_s)
    message.header.frame_id = frame or command_frame(robot, spec)
    fill_twist(message.twist, spec, reading.command, reading.yaw_rate)
    return message


def read_command(message: Any, robot: str, spec: RobotSpec, frame: str | None = None) -> CommandReading:
    """Read a `geometry_msgs/TwistStamped`; values that are not finite are returned.

    ``frame`` of the header defaults to `command_frame`.

    Raises:
        WireError: another frame.
    """
    expected = frame or command_frame(robot, spec)
    if message.header.frame_id != expected:
        raise WireError(f"{robot}: command: found frame {message.header.frame_id!r}, expected {expected!r}")
    return CommandReading(
        read_stamp(message.header.stamp), read_twist(message.twist, spec), read_yaw_rate(message.twist, spec)
    )


def fill_twist(twist: Any, spec: RobotSpec, command: Sequence[float], yaw_rate: float = 0.0) -> Any:
    """Write a command (D,) into an empty `geometry_msgs/Twist`, which has neither stamp nor frame, and return it.

    Raises:
        WireError: a yaw rate [rad/s] for a robot that is not a drone.
    """
    if spec.kind == VELOCITY_POINT:
        fill_axes(twist.linear, command)
        twist.angular.z = float(yaw_rate)
        return twist
    if yaw_rate != 0:  # also true for NaN
        raise WireError(f"{spec.name}: found a yaw rate of {yaw_rate} rad/s beside the command of a {spec.kind}")
    if spec.kind == DIFFERENTIAL_DRIVE:
        twist.linear.x, twist.angular.z = map(float, command)
    else:
        fill_axes(twist.linear, command)
    return twist


def read_twist(twist: Any, spec: RobotSpec) -> tuple[float, ...]:
    """Return the command (D,) of a `geometry_msgs/Twist`; values that are not finite are returned."""
    if spec.kind == DIFFERENTIAL_DRIVE:
        return (twist.linear.x, twist.angular.z)
    return read_axes(twist.linear, spec.dimension)


def read_yaw_rate(twist: Any, spec: RobotSpec) -> float:
    """Return the yaw rate [rad/s] beside the velocity of a drone, unchecked; 0 for other robots."""
    return float(twist.angular.z) if spec.kind == VELOCITY_POINT else 0.0


def fill_pose(pose: Any, position: Sequence[float], yaw: float) -> Any:
    """Write a position (D,) [m] and a yaw [rad] into an empty `geometry_msgs/Pose` and return it."""
    fill_axes(pose.position, position)
    turn = pose.orientation
    turn.x, turn.y, turn.z, turn.w = quaternion_xyzw_from_yaw(yaw)
    return pose


def read_pose(pose: Any, dimension: int, where: str) -> tuple[tuple[float, ...], float]:
    """Return position (dimension,) [m] and yaw [rad] of a `geometry_msgs/Pose`.

    Raises:
        WireError: a quaternion whose norm is not 1 within 1e-3; ``where`` names the message.
    """
    return read_axes(pose.position, dimension), read_yaw(pose.orientation, where)


def read_yaw(quaternion: Any, where: str) -> float:
    """Return the yaw [rad] of a `geometry_msgs/Quaternion`.

    Raises:
        WireError: its norm is not 1 within 1e-3; ``where`` names the message.
    """
    try:
        return yaw_from_quaternion_xyzw(quaternion.x, quaternion.y, quaternion.z, quaternion.w)
    except ValueError as error:
        raise WireError(f"{where}: {error}") from error


def read_tilt(quaternion: Any) -> float:
    """Return the angle [rad] between the z axis of a unit `geometry_msgs/Quaternion` and the vertical."""
    return 2 * math.asin(min(1.0, math.hypot(quaternion.x, quaternion.y)))


def fill_stamp(stamp: Any, time_s: float) -> None:
    """Write a time [s] into a `builtin_interfaces/Time` or `Duration`."""
    stamp.sec, stamp.nanosec = divmod(round(time_s * _NANO), _NANO)


def read_stamp(stamp: Any) -> float:
    """Return the time [s] of a `builtin_interfaces/Time`."""
    return stamp.sec + stamp.nanosec / _NANO


def convert_clock_s(stamp_s: float, its_now_s: float, other_now_s: float) -> float:
    """Return a stamp of one clock on another, both read at the same moment: ROS time to steady time, or back.

    A clock that jumps between the stamp and this call makes only this stamp wrong, by the jump.
    """
    return stamp_s + (other_now_s - its_now_s)  # exact if both are the same clock


def fill_axes(vector: Any, values: Sequence[float]) -> None:
    """Write a vector (D,) into the fields x, y, z of a message."""
    for axis, value in zip("xyz", values, strict=False):
        setattr(vector, axis, float(value))


def read_axes(vector: Any, dimension: int) -> tuple[float, ...]:
    """Return the fields x, y, z of a message as a vector (dimension,)."""
    return (vector.x, vector.y, vector.z)[:dimension]


@dataclass(frozen=True)
class PoseReading:
    """Pose of a body at one moment, without velocity."""

    stamp_s: float  # clock of the message; the caller converts it to the steady clock
    position_world: tuple[float, ...]  # (D,) [m], in the frame given to the reader
    yaw: float  # [rad], in the same frame
    tilt_rad: float = 0.0  # between the body's z axis and the vertical


@dataclass(frozen=True)
class TransformReading:
    """Pose of a frame in its parent frame at one moment."""

    stamp_s: float  # clock of the message
    placement: PlanarTransform  # of the child in the parent


Measurement = OdometryReading | PoseReading


def read_pose_stamped(message: Any, frame: str, dimension: int, where: str) -> PoseReading:
    """Read a `geometry_msgs/PoseStamped` in ``frame``; positions that are not finite are returned.

    ``dimension`` is 2 or 3; ``where`` names robot and message in errors.

    Raises:
        WireError: another frame, or a quaternion whose norm is not 1 within 1e-3.
    """
    _check_frame(message, frame, where)
    return _reading(message, message.pose, dimension, where)


def read_pose_with_covariance(message: Any, frame: str, dimension: int, where: str) -> PoseReading:
    """Read a `geometry_msgs/PoseWithCovarianceStamped` such as `amcl_pose`; see `read_pose_stamped`."""
    _check_frame(message, frame, where)
    return _reading(message, message.pose.pose, dimension, where)


def read_named_pose(message: Any, robot: str, frame: str, dimension: int, where: str) -> PoseReading | None:
    """Read the body ``robot`` of a `motion_capture_tracking_interfaces/NamedPoseArray`; None if it was not seen.

    A body with one marker has a quaternion of NaN and is refused: its heading is unknown. See `read_pose_stamped`.

    Raises:
        WireError: another frame, a body that occurs twice, or a quaternion whose norm is not 1 within 1e-3.
    """
    _check_frame(message, frame, where)
    found = [body for body in message.poses if body.name == robot]
    if len(found) > 1:
        raise WireError(f"{where}: found {len(found)} bodies of the name {robot!r}, expected one")
    return _reading(message, found[0].pose, dimension, where) if found else None


def fill_named_poses(message: Any, body: Callable[[], Any], frame: str, poses: Mapping[str, PoseReading]) -> Any:
    """Write the poses of bodies at one moment into an empty `NamedPoseArray` and return it.

    ``body`` makes an empty `NamedPose`; ``poses`` is by name, all of one stamp.
    """
    message.header.frame_id = frame
    bodies: list[Any] = []
    for name, reading in poses.items():
        fill_stamp(message.header.stamp, reading.stamp_s)
        named = body()
        named.name = name
        fill_pose(named.pose, reading.position_world, reading.yaw)
        bodies.append(named)
    message.poses = bodies
    return message


def fill_transform(message: Any, parent: str, child: str, reading: TransformReading) -> Any:
    """Write a pose of a frame into an empty `geometry_msgs/TransformStamped` and return it."""
    fill_stamp(message.header.stamp, reading.stamp_s)
    message.header.frame_id, message.child_frame_id = parent, child
    fill_axes(message.transform.translation, reading.placement.position)
    turn = message.transform.rotation
    turn.x, turn.y, turn.z, turn.w = quaternion_xyzw_from_yaw(reading.placement.yaw)
    return message


def read_transform(message: Any, parent: str, child: str, dimension: int, where: str) -> TransformReading | None:
    """Read a `geometry_msgs/TransformStamped` of a `/tf` message; None for other frames.

    Raises:
        WireError: a quaternion whose norm is not 1 within 1e-3.
    """
    if (message.header.frame_id, message.child_frame_id) != (parent, child):
        return None
    shift = read_axes(message.transform.translation, dimension)
    yaw = read_yaw(message.transform.rotation, where)
    return TransformReading(read_stamp(message.header.stamp), PlanarTransform(shift, yaw))


def _reading(message: Any, pose: Any, dimension: int, where: str) -> PoseReading:
    position, yaw = read_pose(pose, dimension, where)
    return PoseReading(read_stamp(message.header.stamp), position, yaw, read_tilt(pose.orientation))


def _check_frame(message: Any, frame: str, where: str) -> None:
    if message.header.frame_id != frame:
        raise WireError(f"{where}: found frame {message.header.frame_id!r}, expected {frame!r}")
