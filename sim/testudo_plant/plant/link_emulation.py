"""Emulates the messages of driver and localisation of a robot in the format of its link; no ROS.

The inverse of `testudo_deploy.fleet.pose_source`, and the receiver of the commands that a guard sends.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from testudo_deploy.fleet.fleet import FleetRobot
from testudo_deploy.fleet.localiser import placed
from testudo_deploy.fleet.pose_source import SensedTopic, sensed_topics
from testudo_hardware.errors import TestudoError
from testudo_hardware.frames import PlanarTransform
from testudo_hardware.links.link_profile import NAMED_POSES, ODOMETRY
from testudo_hardware.links.topics import CommandWire
from testudo_hardware.links.wire import CommandReading, Measurement, OdometryReading, PoseReading, convert_clock_s

_AMCL_EVERY = 10  # odometry samples for each `amcl_pose`; nav2 sends one for every 0.25 m


class LinkEmulation:
    """The driver side of the link of one robot."""

    def __init__(self, robot: FleetRobot) -> None:
        """Look up the topics of the robot.

        Raises:
            TestudoError: a pose source that the plant does not support.
        """
        self._robot, self._start = robot, PlanarTransform(robot.initial_position_world, robot.initial_yaw)
        self.commands = CommandWire(robot.name, robot.spec, robot.link.profile)
        self.topics = sensed_topics(robot)
        self.uses_ros_time = robot.link.profile.stamps.value == "ros"
        """Whether stamps are on the ROS clock; else on the steady clock."""
        self._samples = 0
        self._source = robot.pose.source if robot.pose else ""
        if self._source == "tf" or self.topics[0].type == NAMED_POSES:
            found = "source tf" if self._source == "tf" else self.topics[0].type
            raise TestudoError(
                f"{robot.name}: pose: found {found}, which the plant does not support; expected odom, "
                "odom+initial, amcl_pose, or mocap as PoseStamped"
            )

    @property
    def rate_hz(self) -> float:
        """Return the rate of odometry, or of poses."""
        return self.topics[0].wire.rate_hz

    def say(self, sample: OdometryReading, ros_now_s: float, now_s: float) -> Iterator[tuple[SensedTopic, Measurement]]:
        """Yield the topics and messages of a sample in the frame of the fleet, stamped on the steady clock.

        ``ros_now_s`` is the ROS clock at the time ``now_s`` of the steady clock.
        """
        robot, first = self._robot, self.topics[0]
        if self.uses_ros_time:
            sample = replace(sample, stamp_s=convert_clock_s(sample.stamp_s, now_s, ros_now_s))
        pose = PoseReading(sample.stamp_s, sample.position_world, sample.yaw)
        if first.type != ODOMETRY:
            yield first, pose
            return
        # odometry starts at zero where the robot was switched on
        yield first, sample if self._source == "odom" else placed(sample, self._start.inverse(), robot.spec)
        if len(self.topics) > 1 and self._samples % _AMCL_EVERY == 1:  # never before the second sample
            yield self.topics[1], pose
        self._samples += 1

    def command(self, message: Any, ros_now_s: float, now_s: float) -> CommandReading:
        """Return a received command, stamped on the steady clock.

        Raises:
            WireError: another frame, or an unreadable set-point.
        """
        if not self.uses_ros_time:
            return self.commands.decode(message, now_s)
        reading = self.commands.decode(message, ros_now_s)
        return replace(reading, stamp_s=convert_clock_s(reading.stamp_s, ros_now_s, now_s))
