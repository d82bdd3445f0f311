"""Messages that tell where a body is without a velocity: motion capture, localisation on a map, and transforms.

Taken by their fields only, as in `wire`, which holds frames, quaternion order and stamps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from testudo_hardware.frames import PlanarTransform
from testudo_hardware.links.wire import WireError, read_axes, read_pose, read_stamp, read_tilt, read_yaw


@dataclass(frozen=True)
class PoseReading:
    """Where a body was at one moment; how fast it moved is not told."""

    stamp_s: float
    """Clock of the message; the caller brings it to the steady clock."""
    position_world: tuple[float, ...]
    """(D,) [m], in the frame that the reader was told to expect."""
    yaw: float
    """[rad], in the same frame."""
    tilt_rad: float = 0.0
    """Between the body's z axis and the vertical."""


@dataclass(frozen=True)
class TransformReading:
    """Where a frame stood in its parent frame at one moment."""

    stamp_s: float
    """Clock of the message."""
    placement: PlanarTransform
    """Of the child in the parent."""


def read_pose_stamped(message: Any, frame: str, dimension: int, where: str) -> PoseReading:
    """Read a `geometry_msgs/PoseStamped`; numbers of the position that are not finite are passed on.

    Args:
        message: with the fields of the message type.
        frame: in which the pose must stand.
        dimension: 2 or 3.
        where: names robot and message in errors.

    Raises:
        WireError: another frame, or a quaternion whose norm is not 1 within 1e-3.
    """
    _check_frame(message, frame, where)
    return _reading(message, message.pose, dimension, where)


def read_pose_with_covariance(message: Any, frame: str, dimension: int, where: str) -> PoseReading:
    """Read a `geometry_msgs/PoseWithCovarianceStamped`, as `amcl_pose` is; see `read_pose_stamped`.

    Raises:
        WireError: another frame, or a quaternion whose norm is not 1 within 1e-3.
    """
    _check_frame(message, frame, where)
    return _reading(message, message.pose.pose, dimension, where)


def read_named_pose(message: Any, robot: str, frame: str, dimension: int, where: str) -> PoseReading | None:
    """Read one body of a `motion_capture_tracking_interfaces/NamedPoseArray`; None if it was not seen.

    A body with one marker comes with a quaternion of NaN and is refused: where it faces is not known.

    Args:
        message: with the fields `header` and `poses`, each with `name` and `pose`.
        robot: the name of the body.
        frame: in which poses must stand.
        dimension: 2 or 3.
        where: names robot and message in errors.

    Raises:
        WireError: another frame, a body that stands twice, or a quaternion whose norm is not 1 within 1e-3.
    """
    _check_frame(message, frame, where)
    found = [body for body in message.poses if body.name == robot]
    if len(found) > 1:
        raise WireError(f"{where}: found {len(found)} bodies of the name {robot!r}, expected one")
    if not found:
        return None
    return _reading(message, found[0].pose, dimension, where)


def read_transform(message: Any, parent: str, child: str, dimension: int, where: str) -> TransformReading | None:
    """Read a `geometry_msgs/TransformStamped` of a `/tf` message; None if it is about other frames.

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
