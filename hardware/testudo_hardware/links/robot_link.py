"""`RobotLink`: commands to one robot and measurements from it, whatever lies between.

`TopicLink` speaks the topics of a link profile: commands as Twist, TwistStamped or a set-point of Crazyswarm2,
measurements as odometry, PoseStamped, amcl_pose or the poses of motion_capture_tracking. `DirectLink` calls Python.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from testudo_hardware.frames import PlanarTransform
from testudo_hardware.links.topics import CommandWire, Measurement, MeasurementWire
from testudo_hardware.links.wire import CommandReading, WireError, convert_clock_s
from testudo_hardware.spec import RobotSpec


class RobotLink(Protocol):
    """Commands to one robot and measurements from it."""

    def send(self, reading: CommandReading, at: PlanarTransform | None = None) -> None:
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
class TopicLink:
    """A link over topics: the two wires, and what the node gives them."""

    commands: CommandWire
    measurements: MeasurementWire
    new_command: Callable[[], Any]
    """Makes an empty message of the type of `commands`."""
    publish: Callable[[Any], None]
    clocks: Callable[[], tuple[float, float]]
    """Returns, read at one moment, the clock of the stamps in messages and the steady clock [s]."""

    def send(self, reading: CommandReading, at: PlanarTransform | None = None) -> None:
        """Publish a command; see `RobotLink.send`."""
        theirs_s, steady_s = self.clocks()
        stamped = replace(reading, stamp_s=convert_clock_s(reading.stamp_s, steady_s, theirs_s))
        self.publish(self.commands.encode(self.new_command(), stamped, at))

    def take(self, sample: Any) -> Measurement | None:
        """Read a message that has just arrived; see `RobotLink.take`."""
        reading = self.measurements.decode(sample)
        if reading is None:
            return None
        theirs_s, steady_s = self.clocks()
        return replace(reading, stamp_s=convert_clock_s(reading.stamp_s, theirs_s, steady_s))


@dataclass(frozen=True)
class DirectLink:
    """A link that calls Python: a driver in the same process, or a robot in a test."""

    robot: str
    spec: RobotSpec
    act: Callable[[tuple[float, ...]], None]
    """Takes a command (D,) as it travels: in the body for a robot on the ground, in the world for a drone."""
    convert: Callable[[Any], Measurement | None]
    """Makes a reading, stamped on the steady clock, of whatever the driver gives."""

    def send(self, reading: CommandReading, at: PlanarTransform | None = None) -> None:
        """Hand a command over; one that is not finite, of another length, or with a yaw rate is a WireError."""
        if len(reading.command) != self.spec.dimension or not all(map(math.isfinite, reading.command)):
            raise WireError(
                f"{self.robot}: found the command {reading.command}, expected {self.spec.dimension} finite numbers"
            )
        if reading.yaw_rate != 0:  # also true for NaN
            raise WireError(f"{self.robot}: found a yaw rate of {reading.yaw_rate} rad/s, this link carries none")
        self.act(reading.command)

    def take(self, sample: Any) -> Measurement | None:
        """Return what the driver's sample says."""
        return self.convert(sample)
