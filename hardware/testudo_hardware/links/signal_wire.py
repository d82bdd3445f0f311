"""Signals of a policy that a sensor of the robot sends, as messages of the topics that its link profile names; pure."""

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from testudo_hardware.links.sourced import Sourced
from testudo_hardware.links.wire import convert_clock_s, read_stamp, read_twist
from testudo_hardware.spec import RobotSpec
from testudo_hardware.strict_files import OPTIONAL

LASER_SCAN = "sensor_msgs/msg/LaserScan"
TWIST, TWIST_STAMPED = "geometry_msgs/msg/Twist", "geometry_msgs/msg/TwistStamped"
STAMPED = (LASER_SCAN, TWIST_STAMPED)


@dataclass(frozen=True)
class SignalTopic:
    """Topic from which a robot takes one signal of the contract in place of the task's message."""

    topic: Sourced[str]
    type: Sourced[
        Literal[
            "sensor_msgs/msg/LaserScan",
            "std_msgs/msg/Float32MultiArray",
            "std_msgs/msg/Float64MultiArray",
            "std_msgs/msg/Float32",
            "std_msgs/msg/Float64",
            "geometry_msgs/msg/Twist",
            "geometry_msgs/msg/TwistStamped",
        ]
    ]
    reliability: Sourced[Literal["reliable", "best_effort"]]
    delay: Sourced[float] | None = field(default=None, metadata=OPTIONAL)
    """[s] from the measurement to the arrival at most, of a type without a stamp."""
    scale: Sourced[float] | None = field(default=None, metadata=OPTIONAL)  # number of the signal for 1 in the message


@dataclass(frozen=True)
class SignalWire:
    """One signal of one robot as messages of one topic."""

    signal: str
    part: SignalTopic
    absolute: str  # name of the topic from the root
    ros_stamps: bool  # stamps are on the ROS clock, else on the steady clock
    spec: RobotSpec  # of the robot, which decides what a twist means

    @property
    def reliable(self) -> bool:
        """Return whether the publisher offers reliable delivery."""
        return self.part.reliability.value == "reliable"

    def decode(self, message: Any, ros_now_s: float, now_s: float) -> tuple[float, tuple[float, ...]]:
        """Return the stamp on the steady clock [s] and the numbers of a message that arrives now, unchecked.

        Of a laser scan the numbers are the ranges in the order of their angles; one without an echo (REP-117: infinite)
        is the greatest range. Of a twist they are those of the robot's command, see `read_twist`.
        """
        scale = 1.0 if self.part.scale is None else self.part.scale.value
        kind = self.part.type.value
        if kind in STAMPED:
            stamp_s = read_stamp(message.header.stamp)
            stamp_s = convert_clock_s(stamp_s, ros_now_s, now_s) if self.ros_stamps else stamp_s
            if kind == TWIST_STAMPED:
                return stamp_s, tuple(scale * float(value) for value in read_twist(message.twist, self.spec))
            ranges = (message.range_max if value == math.inf else value for value in message.ranges)
            return stamp_s, tuple(scale * float(value) for value in ranges)
        delay_s = 0.0 if self.part.delay is None else self.part.delay.value
        if kind == TWIST:
            data = read_twist(message, self.spec)
        else:
            data = message.data if kind.endswith("MultiArray") else (message.data,)
        return now_s - delay_s, tuple(scale * float(value) for value in data)
