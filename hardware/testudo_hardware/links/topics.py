"""Commands and measurements of one robot as messages of the topics in its link profile, both ways; pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from testudo_hardware.frames import PlanarTransform
from testudo_hardware.links import crazyswarm2
from testudo_hardware.links.link_profile import (
    NAMED_POSES,
    ODOMETRY,
    POSE_STAMPED,
    POSE_WITH_COVARIANCE,
    TWIST_STAMPED,
    VELOCITY_YAW_RATE,
    LinkError,
    LinkProfile,
)
from testudo_hardware.links.wire import (
    WORLD_FRAME,
    CommandReading,
    Measurement,
    OdometryReading,
    PoseReading,
    WireError,
    fill_command,
    fill_odometry,
    fill_pose,
    fill_stamp,
    fill_twist,
    read_command,
    read_named_pose,
    read_odometry,
    read_pose_stamped,
    read_pose_with_covariance,
    read_twist,
    read_yaw_rate,
)
from testudo_hardware.schema import VELOCITY_POINT
from testudo_hardware.spec import RobotSpec


@dataclass(frozen=True)
class CommandWire:
    """Commands of one robot as messages of one topic; pure."""

    robot: str
    spec: RobotSpec
    profile: LinkProfile

    def __post_init__(self) -> None:
        by_radio = self.profile.wire == "crazyswarm2" or self.profile.driver is not None
        if by_radio and self.spec.kind != VELOCITY_POINT:
            raise LinkError(
                f"{self.robot}: link {self.profile.name!r} carries commands of a {VELOCITY_POINT}, "
                f"found a {self.spec.kind}"
            )

    @property
    def topic(self) -> str:
        """Return the name of the topic, relative to the robot unless it begins with a slash."""
        return self.profile.command.topic.value

    @property
    def type(self) -> str:
        """Return the message type."""
        return self.profile.command_type

    @property
    def frame(self) -> str:
        """Return the frame in headers: a twist for a drone is always a velocity in the world."""
        if self.profile.wire == "twist" and self.spec.kind == VELOCITY_POINT:
            return WORLD_FRAME
        return self.profile.command_frame(self.robot)

    @property
    def needs_place(self) -> bool:
        """Return whether `encode` needs the current position set-point."""
        point = self.profile.command.set_point
        return point is not None and point.value != "velocity_world"

    @property
    def carries_yaw_rate(self) -> bool:
        """Return whether commands contain the yaw rate of a drone."""
        return VELOCITY_YAW_RATE in self.profile.takes and self.spec.kind == VELOCITY_POINT

    def encode(self, message: Any, reading: CommandReading, at: PlanarTransform | None = None) -> Any:
        """Write a command, stamped on the clock of the link, into an empty message and return it.

        Raises:
            WireError: ``at`` is needed and missing, a set-point is not finite, or the link does not carry the command.
        """
        if len(reading.command) != self.spec.dimension:
            raise WireError(
                f"{self.robot}: {self.topic}: found a command of {len(reading.command)} numbers, expected "
                f"{self.spec.dimension}: the wire carries {self.profile.takes[0]}"
            )
        if reading.yaw_rate != 0 and not self.carries_yaw_rate:  # also true for NaN
            raise WireError(
                f"{self.robot}: {self.topic}: found a yaw rate of {reading.yaw_rate} rad/s, the wire "
                f"carries {self.profile.takes[0]} only"
            )
        frame = self.frame
        if self.profile.command.set_point is None:
            if self.type == TWIST_STAMPED:
                return fill_command(message, self.robot, self.spec, reading, frame)
            return fill_twist(message, self.spec, reading.command, reading.yaw_rate)
        point = self.profile.command.set_point.value
        if point == "velocity_world":
            return crazyswarm2.fill_velocity_world(message, frame, reading, self._per_radian)
        if at is None:
            raise WireError(f"{self.robot}: {self.topic}: found no position, expected the current set-point")
        fill = crazyswarm2.fill_hover if point == "hover" else crazyswarm2.fill_full_state
        return fill(message, frame, reading, at)

    def decode(self, message: Any, received_s: float) -> CommandReading:
        """Read a command as the robot does, stamped on the clock of the link; a `Twist` gets the stamp ``received_s``.

        Raises:
            WireError: another frame, or a `Hover`, which does not contain the climb rate.
        """
        frame = self.frame
        if self.profile.command.set_point is None:
            if self.type == TWIST_STAMPED:
                return read_command(message, self.robot, self.spec, frame)
            return CommandReading(received_s, read_twist(message, self.spec), read_yaw_rate(message, self.spec))
        point = self.profile.command.set_point.value
        if point == "hover":
            raise WireError(f"{self.robot}: {self.topic}: found a Hover, which does not contain the climb rate")
        if point == "velocity_world":
            return crazyswarm2.read_velocity_world(message, frame, self._per_radian)
        return crazyswarm2.read_full_state(message, frame)

    @property
    def _per_radian(self) -> float:
        turns = self.profile.command.yaw_rate
        return 0.0 if turns is None else turns.per_radian


@dataclass(frozen=True)
class MeasurementWire:
    """Measurements of one robot as messages of one topic; pure."""

    robot: str
    spec: RobotSpec
    topic: str
    type: str
    frames: tuple[str, str]  # of the poses, and of the body, which only odometry names
    rate_hz: float  # expected rate of samples
    reliable: bool  # whether the publisher offers reliable delivery: never request more than is offered
    late_s: float = 0.0  # largest delay of stamps after the measurement: ages are rather too large than too small

    @staticmethod
    def odometry(robot: str, spec: RobotSpec, profile: LinkProfile) -> MeasurementWire:
        """Return the wire of a profile's odometry.

        Raises:
            LinkError: the profile has none.
        """
        part = profile.odometry_of(robot)
        reliable = part.reliability.value == "reliable"
        return MeasurementWire(robot, spec, part.topic.value, ODOMETRY, part.frames(robot), part.rate.value, reliable)

    @staticmethod
    def motion_capture(robot: str, spec: RobotSpec, profile: LinkProfile, frame: str) -> MeasurementWire:
        """Return the wire of a profile's poses in ``frame``.

        Raises:
            LinkError: the profile has none.
        """
        part = profile.pose_of(robot)
        on_arrival = part.stamped_on_arrival is not None and part.stamped_on_arrival.value
        return MeasurementWire(
            robot,
            spec,
            part.topic.value,
            part.type.value,
            (frame, ""),
            part.rate.value,
            part.reliability.value == "reliable",
            spec.link_delay_most_s if on_arrival else 0.0,
        )

    @staticmethod
    def amcl(robot: str, spec: RobotSpec, frame: str) -> MeasurementWire:
        """Return the wire of nav2's `amcl_pose`, which is latched and published when the robot has moved."""
        return MeasurementWire(robot, spec, "amcl_pose", POSE_WITH_COVARIANCE, (frame, ""), math.nan, reliable=True)

    def decode(self, message: Any) -> Measurement | None:
        """Read a message, stamped on the clock of the link; None if it belongs to another robot.

        Raises:
            WireError: another frame, or an invalid quaternion.
        """
        reading = self._read(message)
        if reading is None or not self.late_s:
            return reading
        return replace(reading, stamp_s=reading.stamp_s - self.late_s)

    def _read(self, message: Any) -> Measurement | None:
        frame, size, where = self.frames[0], self.spec.dimension, f"{self.robot}: {self.topic}"
        if self.type == ODOMETRY:
            return read_odometry(message, self.robot, self.spec, self.frames)
        if self.type == NAMED_POSES:
            return read_named_pose(message, self.robot, frame, size, where)
        read = {POSE_STAMPED: read_pose_stamped, POSE_WITH_COVARIANCE: read_pose_with_covariance}[self.type]
        return read(message, frame, size, where)

    def encode(self, message: Any, reading: Measurement) -> Any:
        """Write a measurement into an empty message and return it, as the robot or its simulation sends it.

        A wire with stamps of arrival gets the latest possible stamp.

        Raises:
            WireError: odometry on a wire of poses, a pose on one of odometry, or a wire of many robots' poses.
        """
        if self.type == ODOMETRY and isinstance(reading, OdometryReading):
            return fill_odometry(message, self.robot, self.spec, reading, self.frames)
        if self.type in (POSE_STAMPED, POSE_WITH_COVARIANCE) and isinstance(reading, PoseReading):
            fill_stamp(message.header.stamp, reading.stamp_s + self.late_s)
            message.header.frame_id = self.frames[0]
            pose = message.pose if self.type == POSE_STAMPED else message.pose.pose
            fill_pose(pose, reading.position_world, reading.yaw)
            return message
        raise WireError(
            f"{self.robot}: {self.topic}: found {type(reading).__name__}, which a {self.type} cannot contain"
        )
