"""`RobotLink`: commands to one robot and measurements from it, whatever lies between.

`TopicLink` speaks the topics of a link profile: commands as Twist, TwistStamped or a set-point of Crazyswarm2,
measurements as odometry, PoseStamped, amcl_pose or the poses of motion_capture_tracking. `DirectLink` calls Python.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from testudo_hardware.frames import Placement
from testudo_hardware.links import crazyswarm2
from testudo_hardware.links.poses import (
    PoseReading,
    read_named_pose,
    read_pose_stamped,
    read_pose_with_covariance,
)
from testudo_hardware.links.profile import (
    NAMED_POSES,
    ODOMETRY,
    POSE_STAMPED,
    POSE_WITH_COVARIANCE,
    TWIST_STAMPED,
    LinkError,
    LinkProfile,
)
from testudo_hardware.links.wire import (
    CommandReading,
    OdometryReading,
    WireError,
    fill_command,
    fill_twist,
    other_clock_s,
    read_odometry,
)
from testudo_hardware.schema import VELOCITY_POINT
from testudo_hardware.spec import RobotSpec

Measurement = OdometryReading | PoseReading


class RobotLink(Protocol):
    """Commands to one robot and measurements from it."""

    def send(self, reading: CommandReading, at: Placement | None = None) -> None:
        """Send a command; ``at`` is the set-point so far, for wires whose command is a place.

        Raises:
            WireError: the command cannot be carried; nothing was sent.
        """

    def take(self, sample: Any) -> Measurement | None:
        """Return what a sample says, stamped on the steady clock; None if it is not about this robot.

        Raises:
            WireError: it cannot be read.
        """


@dataclass(frozen=True)
class CommandWire:
    """Commands of one robot as messages of one topic; pure."""

    robot: str
    spec: RobotSpec
    profile: LinkProfile

    def __post_init__(self) -> None:
        if self.profile.wire == "crazyswarm2" and self.spec.kind != VELOCITY_POINT:
            raise LinkError(f"{self.robot}: link {self.profile.name!r} carries commands of a {VELOCITY_POINT}, "
                            f"found a {self.spec.kind}")

    @property
    def topic(self) -> str:
        """Return the name of the topic, relative to the robot unless it begins with a slash."""
        return self.profile.command.topic.value

    @property
    def type(self) -> str:
        """Return the message type."""
        return self.profile.command_type

    @property
    def needs_place(self) -> bool:
        """Return whether `encode` needs the set-point so far."""
        point = self.profile.command.set_point
        return point is not None and point.value != "velocity_world"

    def encode(self, message: Any, reading: CommandReading, at: Placement | None = None) -> Any:
        """Write a command, stamped on the clock of the link, into an empty message and return it.

        Raises:
            WireError: the wire needs ``at`` and it is missing, or a set-point is not finite.
        """
        frame = self.profile.command_frame(self.robot)
        if self.profile.command.set_point is None:
            if self.type == TWIST_STAMPED:
                return fill_command(message, self.robot, self.spec, reading, frame)
            return fill_twist(message, self.spec, reading.command)
        point = self.profile.command.set_point.value
        if point == "velocity_world":
            return crazyswarm2.fill_velocity_world(message, frame, reading)
        if at is None:
            raise WireError(f"{self.robot}: {self.topic}: found no place, expected the set-point so far")
        fill = crazyswarm2.fill_hover if point == "hover" else crazyswarm2.fill_full_state
        return fill(message, frame, reading, at)


@dataclass(frozen=True)
class MeasurementWire:
    """Measurements of one robot as messages of one topic; pure."""

    robot: str
    spec: RobotSpec
    topic: str
    type: str
    frames: tuple[str, str]
    """In which poses stand, and of the body; only odometry names the second."""
    rate_hz: float
    """How often a sample is expected."""
    reliable: bool
    """Whether the publisher offers it reliable: never ask for more than is offered."""

    @staticmethod
    def odometry(robot: str, spec: RobotSpec, profile: LinkProfile) -> MeasurementWire:
        """Return the wire of a profile's odometry.

        Raises:
            LinkError: the profile has none.
        """
        part = profile.odometry
        if part is None:
            raise LinkError(f"{robot}: link {profile.name!r} has no odometry, expected a pose from elsewhere")
        return MeasurementWire(robot, spec, part.topic.value, ODOMETRY, part.frames(robot), part.rate.value,
                               part.reliability.value == "reliable")

    @staticmethod
    def motion_capture(robot: str, spec: RobotSpec, profile: LinkProfile, frame: str) -> MeasurementWire:
        """Return the wire of a profile's poses, which must stand in ``frame``.

        Raises:
            LinkError: the profile has none.
        """
        part = profile.pose
        if part is None:
            raise LinkError(f"{robot}: link {profile.name!r} has no [pose], expected the topic of motion capture")
        return MeasurementWire(robot, spec, part.topic.value, part.type.value, (frame, ""), part.rate.value,
                               part.reliability.value == "reliable")

    @staticmethod
    def amcl(robot: str, spec: RobotSpec, frame: str) -> MeasurementWire:
        """Return the wire of nav2's `amcl_pose`, which is latched and comes when the robot has moved on."""
        return MeasurementWire(robot, spec, "amcl_pose", POSE_WITH_COVARIANCE, (frame, ""), math.nan, reliable=True)

    def decode(self, message: Any) -> Measurement | None:
        """Return what a message says, stamped on the clock of the link; None if it is not about this robot.

        Raises:
            WireError: another frame, or a quaternion that is none.
        """
        frame, size, where = self.frames[0], self.spec.dimension, f"{self.robot}: {self.topic}"
        if self.type == ODOMETRY:
            return read_odometry(message, self.robot, self.spec, self.frames)
        if self.type == NAMED_POSES:
            return read_named_pose(message, self.robot, frame, size, where)
        read = {POSE_STAMPED: read_pose_stamped, POSE_WITH_COVARIANCE: read_pose_with_covariance}[self.type]
        return read(message, frame, size, where)


@dataclass(frozen=True)
class TopicLink:
    """A link over topics: the two wires, and what the node gives them."""

    commands: CommandWire
    measurements: MeasurementWire
    new_command: Callable[[], Any]
    """Makes an empty message of the type of `commands`."""
    publish: Callable[[Any], None]
    clocks: Callable[[], tuple[float, float]]
    """Returns, read at one moment, the clock of the stamps in messages and the steady clock [s]."""

    def send(self, reading: CommandReading, at: Placement | None = None) -> None:
        """Publish a command; see `RobotLink.send`."""
        theirs_s, steady_s = self.clocks()
        stamped = replace(reading, stamp_s=other_clock_s(reading.stamp_s, steady_s, theirs_s))
        self.publish(self.commands.encode(self.new_command(), stamped, at))

    def take(self, sample: Any) -> Measurement | None:
        """Read a message that has just arrived; see `RobotLink.take`."""
        reading = self.measurements.decode(sample)
        if reading is None:
            return None
        theirs_s, steady_s = self.clocks()
        return replace(reading, stamp_s=other_clock_s(reading.stamp_s, theirs_s, steady_s))


@dataclass(frozen=True)
class DirectLink:
    """A link that calls Python: a driver in the same process, or a robot in a test."""

    robot: str
    spec: RobotSpec
    act: Callable[[tuple[float, ...]], None]
    """Takes a command (D,) as it travels: in the body for a robot on the ground, in the world for a drone."""
    convert: Callable[[Any], Measurement | None]
    """Makes a reading, stamped on the steady clock, of whatever the driver gives."""

    def send(self, reading: CommandReading, at: Placement | None = None) -> None:
        """Hand a command over; one that is not finite, or of another length, is refused with a WireError."""
        if len(reading.command) != self.spec.dimension or not all(map(math.isfinite, reading.command)):
            raise WireError(f"{self.robot}: found the command {reading.command}, expected {self.spec.dimension} "
                            "finite numbers")
        self.act(reading.command)

    def take(self, sample: Any) -> Measurement | None:
        """Return what the driver's sample says."""
        return self.convert(sample)
