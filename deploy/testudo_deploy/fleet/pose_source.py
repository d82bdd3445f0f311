"""The pose source of a robot: its topics, and poses in the fleet's frame from its messages.

Messages are accessed by their fields only, as in `testudo_hardware.links`. Readings are converted to the steady clock.
A station hears odometry in the shared frame directly. Poses of other sources are placed by the robot itself, which
publishes the pose that it used in the record of each tick.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from testudo_deploy.contract.messages import TickRecord
from testudo_deploy.fleet.fleet import FleetRobot
from testudo_deploy.fleet.link_topics import TRANSFORM_TOPIC, absolute
from testudo_deploy.fleet.localiser import localiser
from testudo_hardware.links.signal_wire import SignalWire
from testudo_hardware.links.topics import MeasurementWire
from testudo_hardware.links.wire import Measurement, OdometryReading, convert_clock_s, read_transform

TRANSFORM_TYPE = "tf2_msgs/msg/TFMessage"


@dataclass(frozen=True)
class SensedTopic:
    """One topic of a robot's pose source."""

    kind: str  # `odom`, `pose` or `amcl_pose`: selects the quality of service
    name: str  # on the robot; relative to its namespace unless it begins with a slash
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

    def __init__(self, robot: FleetRobot, *, live: bool = True) -> None:
        """Begin without a message.

        Args:
            robot: whose poses are read.
            live: messages arrive on the clock of their stamps, so that one of the future is refused; not for recordings
                of another computer.
        """
        self._robot, self._place, self._live = robot, localiser(robot), live
        self.topics = sensed_topics(robot)
        self.uses_ros_time = robot.link.profile.stamps.value == "ros"
        """Stamps are on the ROS clock; else on the steady clock already."""

    @property
    def restarts(self) -> int:
        """Return how often the robot's place was lost: it must not drive on by the last one."""
        return self._place.restarts

    @property
    def transform_topic(self) -> str:
        """Return the topic of the transforms that the source needs; empty if it needs none."""
        if self._robot.pose.source != "tf":
            return ""
        return self._robot.link.remappings.get(TRANSFORM_TOPIC, TRANSFORM_TOPIC)

    def read(self, topic: SensedTopic, message: Any, ros_now_s: float, now_s: float) -> Measurement | None:
        """Read a message in its own frame, stamped on the steady clock; None if it belongs to another robot.

        ``ros_now_s`` and ``now_s`` are the ROS clock, unused for stamps on the steady clock, and the steady clock.

        Raises:
            WireError: another frame, or an invalid quaternion.
        """
        reading = topic.wire.decode(message)
        return reading and replace(reading, stamp_s=self._steady_s(reading.stamp_s, ros_now_s, now_s))

    def place(self, topic: SensedTopic, message: Any, ros_now_s: float, now_s: float) -> OdometryReading | None:
        """Return the odometry in the fleet's frame; None if the message gives no pose now. See `read`."""
        reading = self.read(topic, message, ros_now_s, now_s)
        located = reading and self._place.take(reading, now_s if self._live else math.inf)
        return located and located.reading

    def correct(self, transforms: Sequence[Any], ros_now_s: float, now_s: float) -> None:
        """Take the transforms of a `tf2_msgs/TFMessage`; those of other odometry are ignored.

        Raises:
            WireError: an invalid quaternion.
        """
        robot = self._robot
        child = robot.link.profile.odometry_of(robot.name).frames(robot.name)[0]
        for message in transforms:
            found = read_transform(message, robot.pose.frame, child, robot.spec.dimension, f"{robot.name}: tf")
            if found is not None:
                self._place.correct(replace(found, stamp_s=self._steady_s(found.stamp_s, ros_now_s, now_s)), now_s)

    def _steady_s(self, stamp_s: float, ros_now_s: float, now_s: float) -> float:
        return convert_clock_s(stamp_s, ros_now_s, now_s) if self.uses_ros_time else stamp_s


def signal_wires(robot: FleetRobot) -> tuple[SignalWire, ...]:
    """Return the sensor topics from which a robot takes signals of its policy."""
    link = robot.link
    return tuple(
        SignalWire(
            name,
            part,
            absolute(link.remappings.get(part.topic.value, part.topic.value), robot.name),
            link.profile.stamps.value == "ros",
            robot.spec,
        )
        for name, part in link.profile.signals.items()
    )


def sensed_topics(robot: FleetRobot) -> tuple[SensedTopic, ...]:
    """Return the topics of a robot's pose source, that of odometry or of the pose first."""
    name, spec, link, pose = robot.name, robot.spec, robot.link, robot.pose
    if pose.source == "mocap":
        wire = MeasurementWire.motion_capture(name, spec, link.profile, pose.frame)
        return (SensedTopic("pose", link.topics["pose"], wire),)
    odometry = SensedTopic("odom", link.topics["odom"], MeasurementWire.odometry(name, spec, link.profile))
    if pose.source != "amcl_pose":
        return (odometry,)
    wire = MeasurementWire.amcl(name, spec, pose.frame)
    return (odometry, SensedTopic("amcl_pose", link.remappings.get(wire.topic, wire.topic), wire))


_SAME_CLOCK_S = 1.0  # a record older than this at arrival comes from another clock
_TOLERANCE_S = 0.002  # rounding of stamps


def shared_odometry(robot: FleetRobot) -> tuple[str, tuple[str, str]] | None:
    """Return topic and frames of odometry in the fleet's frame; None for any other source, or a filtered one."""
    if robot.pose.source != "odom" or robot.pose.filter or robot.link.profile.odometry is None:
        return None
    return absolute(robot.link.topics["odom"], robot.name), robot.link.profile.odometry.frames(robot.name)


def record_topic(robot: FleetRobot) -> str:
    """Return the topic of the records of a robot's ticks."""
    return f"/{robot.name}/tick"


def recorded_pose(record: TickRecord, received_s: float) -> OdometryReading | None:
    """Return the pose that a tick used, stamped on the listener's clock; None if the tick had none.

    ``received_s`` is the arrival on the listener's clock: if the sender has another clock, the stamp is the arrival
    less the pose's age in the tick.
    """
    position, yaw, velocity = record.measured_position_world, record.measured_yaw, record.measured_velocity
    if record.pose_stamp_s is None or position is None or yaw is None or velocity is None:
        return None
    same_clock = -_TOLERANCE_S <= received_s - record.stamp_s <= _SAME_CLOCK_S
    stamp_s = record.pose_stamp_s if same_clock else received_s - (record.stamp_s - record.pose_stamp_s)
    return OdometryReading(stamp_s, position, yaw, velocity)
