"""What the pose source of a robot tells, and on which topics: messages in, places in the fleet's frame out; pure.

Messages are taken by their fields only, as in `testudo_hardware.links`. Readings leave on the steady clock, whatever
clock the robot's driver stamps with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from testudo_deploy.fleet.fleet import FleetRobot
from testudo_deploy.fleet.link_topics import TRANSFORM_TOPIC, absolute
from testudo_deploy.fleet.localiser import localiser
from testudo_hardware.links.pose_messages import read_transform
from testudo_hardware.links.topics import Measurement, MeasurementWire
from testudo_hardware.links.wire import OdometryReading, convert_clock_s

TRANSFORM_TYPE = "tf2_msgs/msg/TFMessage"


@dataclass(frozen=True)
class SensedTopic:
    """One topic on which the pose source of a robot speaks."""

    kind: str
    """`odom`, `pose` or `amcl_pose`: which quality of service to ask for."""
    name: str
    """On the robot; relative to its namespace unless it begins with a slash."""
    wire: MeasurementWire

    @property
    def type(self) -> str:
        """Return the message type."""
        return self.wire.type

    @property
    def absolute(self) -> str:
        """Return the name from the root."""
        return absolute(self.name, self.wire.robot)


class PoseSourceReader:
    """The pose source of one robot."""

    def __init__(self, robot: FleetRobot) -> None:
        self._robot, self._place = robot, localiser(robot)
        self.topics = sensed_topics(robot)
        self.uses_ros_time = robot.link.profile.stamps.value == "ros"
        """Stamps are on the ROS clock; else on the steady clock already."""

    @property
    def transform_topic(self) -> str:
        """Return the topic with transforms that the source needs; empty if it needs none."""
        if self._robot.pose.source != "tf":
            return ""
        return self._robot.link.remappings.get(TRANSFORM_TOPIC, TRANSFORM_TOPIC)

    def read(self, topic: SensedTopic, message: Any, ros_now_s: float, now_s: float) -> Measurement | None:
        """Return what a message says in its own frame, stamped on the steady clock; None if it is of another robot.

        Args:
            topic: on which it came.
            message: with the fields of the topic's type.
            ros_now_s: the ROS clock at the same moment as ``now_s``; not looked at if stamps are on the steady clock.
            now_s: the steady clock.

        Raises:
            WireError: another frame, or a quaternion that is none.
        """
        reading = topic.wire.decode(message)
        return reading and replace(reading, stamp_s=self._steady_s(reading.stamp_s, ros_now_s, now_s))

    def place(self, topic: SensedTopic, message: Any, ros_now_s: float, now_s: float) -> OdometryReading | None:
        """Return where the robot is in the fleet's frame; None if the message gives no place now. See `read`.

        Raises:
            WireError: another frame, or a quaternion that is none.
        """
        reading = self.read(topic, message, ros_now_s, now_s)
        located = reading and self._place.take(reading, now_s)
        return located and located.reading

    def correct(self, transforms: Sequence[Any], ros_now_s: float, now_s: float) -> None:
        """Take the transforms of a `tf2_msgs/TFMessage`; those that place no odometry of this robot are not looked at.

        Raises:
            WireError: a quaternion that is none.
        """
        robot, child = self._robot, self._robot.link.profile.odometry.frames(self._robot.name)[0]
        for message in transforms:
            found = read_transform(message, robot.pose.frame, child, robot.spec.dimension, f"{robot.name}: tf")
            if found is not None:
                self._place.correct(replace(found, stamp_s=self._steady_s(found.stamp_s, ros_now_s, now_s)), now_s)

    def _steady_s(self, stamp_s: float, ros_now_s: float, now_s: float) -> float:
        return convert_clock_s(stamp_s, ros_now_s, now_s) if self.uses_ros_time else stamp_s


def sensed_topics(robot: FleetRobot) -> tuple[SensedTopic, ...]:
    """Return the topics on which the pose source of a robot speaks, that of odometry or of the pose first."""
    name, spec, link, pose = robot.name, robot.spec, robot.link, robot.pose
    if pose.source == "mocap":
        wire = MeasurementWire.motion_capture(name, spec, link.profile, pose.frame)
        return (SensedTopic("pose", link.topics["pose"], wire),)
    odometry = SensedTopic("odom", link.topics["odom"], MeasurementWire.odometry(name, spec, link.profile))
    if pose.source != "amcl_pose":
        return (odometry,)
    wire = MeasurementWire.amcl(name, spec, pose.frame)
    return (odometry, SensedTopic("amcl_pose", link.remappings.get(wire.topic, wire.topic), wire))
