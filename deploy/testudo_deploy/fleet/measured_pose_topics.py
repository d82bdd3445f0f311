"""Where a station hears the measured pose of each robot, in the frame that the fleet shares.

Odometry that stands in that frame is heard directly, whatever the robot's policy does. All other sources are placed by
the robot itself, which tells the pose that it used in the record of each tick.
"""

from __future__ import annotations

from testudo_deploy.contract.messages import TickRecord
from testudo_deploy.fleet.fleet import FleetRobot
from testudo_hardware.links.wire import OdometryReading

_SAME_CLOCK_S = 1.0
"""A record that is older than this at arrival comes from another clock."""
_TOLERANCE_S = 0.002
"""A stamp so far in the future is rounding."""


def shared_odometry(robot: FleetRobot) -> tuple[str, tuple[str, str]] | None:
    """Return topic and frames of odometry that stands in the fleet's frame; None for any other pose source."""
    if robot.pose.source != "odom" or robot.link.profile.odometry is None:
        return None
    topic = robot.link.topics["odom"]
    absolute = topic if topic.startswith("/") else f"/{robot.name}/{topic}"
    return absolute, robot.link.profile.odometry.frames(robot.name)


def record_topic(robot: FleetRobot) -> str:
    """Return the topic of the records of a robot's ticks."""
    return f"/{robot.name}/tick"


def recorded_pose(record: TickRecord, received_s: float) -> OdometryReading | None:
    """Return the pose that a tick used, stamped on the listener's clock; None if the tick had none.

    Args:
        record: of the tick.
        received_s: when it arrived, on the listener's clock: if the sender's is another one, the stamp is the time of
            arrival less the pose's age in the tick.
    """
    if record.pose_stamp_s is None or record.measured_position_world is None:
        return None
    same_clock = -_TOLERANCE_S <= received_s - record.stamp_s <= _SAME_CLOCK_S
    stamp_s = record.pose_stamp_s if same_clock else received_s - (record.stamp_s - record.pose_stamp_s)
    return OdometryReading(stamp_s, record.measured_position_world, record.measured_yaw, record.measured_velocity)
