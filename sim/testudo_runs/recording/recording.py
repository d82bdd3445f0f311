"""Types of recordings: series of robots by role, the roles with their messages and channels, and units."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from testudo_hardware.errors import TestudoError


class RecordingError(TestudoError):
    """A recording cannot be read or is incomplete: the text says what is missing and what to do."""


@dataclass(frozen=True)
class Series:
    """Samples of one role; before alignment stamps may repeat, go back and have gaps."""

    stamp_s: np.ndarray  # (T,) time of the sample, since the start of the recording
    values: np.ndarray = field(repr=False)  # (T, C): see `ROLES` for the channels, their units and frames
    received_s: np.ndarray | None = field(default=None, repr=False)  # (T,) time of recording; None if unknown
    frame: str = ""  # frame of the values

    def __len__(self) -> int:
        return len(self.stamp_s)


@dataclass(frozen=True)
class RobotRecording:
    """Series of one robot."""

    name: str
    robot_type: str  # a registered robot or the path of a robot file; empty if unknown
    series: Mapping[str, Series]  # by role, a key of `ROLES`

    def find(self, role: str) -> Series:
        """Return the series of a role.

        Raises:
            RecordingError: the recording has none, or an empty one.
        """
        found = self.series.get(role)
        if found is None or not len(found):
            has = ", ".join(name for name, series in self.series.items() if len(series)) or "nothing"
            raise RecordingError(f"{self.name}: no {role} is recorded; there is {has}")
        return found


@dataclass(frozen=True)
class Recording:
    """Series of a team; times are seconds since ``start_ns``."""

    robots: Mapping[str, RobotRecording]
    start_ns: int  # Nanoseconds of the Unix epoch
    folder: Path | None = None
    info: Mapping[str, Any] = field(default_factory=dict, repr=False)  # `run.json`
    complete: bool = True  # every message could be read
    warnings: tuple[str, ...] = ()  # damage and losses

    @property
    def duration_s(self) -> float:
        """Return the time from the first to the last sample [s]."""
        stamps = [series.stamp_s for robot in self.robots.values() for series in robot.series.values() if len(series)]
        if not stamps:
            return 0.0
        return float(max(stamp.max() for stamp in stamps) - min(stamp.min() for stamp in stamps))


_POSE = ("x", "y", "z", "qx", "qy", "qz", "qw")
_TWIST = ("vx", "vy", "vz", "wx", "wy", "wz")


@dataclass(frozen=True)
class Role:
    """Meaning of a series, and the standard message that stores it."""

    name: str
    topic: str  # last part of its topic in an imported run
    type: str
    channels: tuple[str, ...]
    units: tuple[str, ...]
    paths: tuple[str, ...]  # path of each channel in the message
    sense: str  # description with frames


def _paths(base: str, names: str) -> tuple[str, ...]:
    return tuple(f"{base}.{name}" for name in names.split())


def _pose(base: str) -> tuple[str, ...]:
    return (*_paths(f"{base}.position", "x y z"), *_paths(f"{base}.orientation", "x y z w"))


def _twist(base: str) -> tuple[str, ...]:
    return (*_paths(f"{base}.linear", "x y z"), *_paths(f"{base}.angular", "x y z"))


_M, _R, _V, _W = ("m",) * 3, ("1",) * 4, ("m/s",) * 3, ("rad/s",) * 3
_ODOMETRY = (
    "nav_msgs/msg/Odometry",
    (*_POSE, *_TWIST),
    _M + _R + _V + _W,
    (*_pose("pose.pose"), *_twist("twist.twist")),
)

ROLES = {
    role.name: role
    for role in (
        Role(
            "pose",
            "pose",
            "geometry_msgs/msg/PoseStamped",
            _POSE,
            _M + _R,
            _pose("pose"),
            "measured from outside, in the world",
        ),
        Role(
            "odometry",
            "odom",
            *_ODOMETRY,
            "estimate of the robot: pose in the world, velocity and rates in its body (REP-105)",
        ),
        Role(
            "command",
            "cmd_vel",
            "geometry_msgs/msg/TwistStamped",
            _TWIST,
            _V + _W,
            _twist("twist"),
            "commanded velocity, in the body unless the frame is world",
        ),
        Role(
            "motors",
            "motors",
            "sensor_msgs/msg/JointState",
            ("m1", "m2", "m3", "m4"),
            ("N",) * 4,
            tuple(f"effort[{k}]" for k in range(4)),
            "commanded thrust of each rotor, up along the body",
        ),
        Role(
            "imu",
            "imu",
            "sensor_msgs/msg/Imu",
            ("ax", "ay", "az", "wx", "wy", "wz"),
            ("m/s^2",) * 3 + _W,
            (*_paths("linear_acceleration", "x y z"), *_paths("angular_velocity", "x y z")),
            "specific force and rates in the body: at rest on the floor az is +9.81",
        ),
        Role(
            "battery", "battery", "sensor_msgs/msg/BatteryState", ("voltage",), ("V",), ("voltage",), "battery voltage"
        ),
        Role("setpoint", "setpoint", *_ODOMETRY, "reference of the robot: pose and velocity, both in the world"),
    )
}
"""By name."""


STANDARD_GRAVITY = 9.80665
"""[m/s^2], CGPM 1901."""
_GRAM_FORCE = STANDARD_GRAVITY / 1000

UNITS: dict[str, dict[str, float]] = {
    "m": {"m": 1.0, "cm": 1e-2, "mm": 1e-3},
    "1": {"1": 1.0},
    "rad": {"rad": 1.0, "mrad": 1e-3, "deg": math.pi / 180},
    "m/s": {"m/s": 1.0, "cm/s": 1e-2, "mm/s": 1e-3, "km/h": 1 / 3.6},
    "rad/s": {"rad/s": 1.0, "mrad/s": 1e-3, "deg/s": math.pi / 180},
    "m/s^2": {"m/s^2": 1.0, "mm/s^2": 1e-3, "g": STANDARD_GRAVITY},
    "N": {"N": 1.0, "mN": 1e-3, "gf": _GRAM_FORCE},
    "V": {"V": 1.0, "mV": 1e-3},
}
"""Factors of units by the SI unit that they convert to."""


PWM16 = "pwm16"
"""Unit of a 16-bit duty cycle of a rotor, see `pwm_force`."""
_PWM_COEFFICIENTS = (2.130295e-11, 1.032633e-6, 5.484560e-4)
"""[N] by powers of the duty cycle, the highest first: Crazyflie 2.x at the battery voltage of the measurement;
J. Förster, "System identification of the Crazyflie 2.0 nano quadrocopter", ETH Zürich 2015."""
TIME_UNITS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
"""Nanoseconds of each unit of time."""

QUATERNION = ("qx", "qy", "qz", "qw")
ANGLES = ("roll", "pitch", "yaw")
"""Rotations [rad] about the fixed axes x, then y, then z of the world (REP-103), in place of a quaternion."""
PACKED = "packed"
"""One integer that holds a quaternion in the compression of the Crazyflie."""
ATTITUDE = (*QUATERNION, *ANGLES, PACKED)

_NEEDED = {
    "pose": ("x", "y"),
    "odometry": ("x", "y"),
    "command": ("vx",),
    "motors": ("m1", "m2", "m3", "m4"),
    "imu": ("ax", "ay", "az", "wx", "wy", "wz"),
    "battery": ("voltage",),
    "setpoint": ("x", "y"),
}


def units_of(role: str) -> dict[str, str]:
    """Return the SI unit of each channel that a mapping file may name for a role."""
    units = dict(zip(ROLES[role].channels, ROLES[role].units, strict=True))
    if role in ("pose", "odometry", "setpoint", "imu"):
        units.update(dict.fromkeys(QUATERNION, "1"))
        units.update(dict.fromkeys(ANGLES, "rad"))
        units[PACKED] = "1"
    return units


def needed_of(role: str) -> tuple[str, ...]:
    """Return the required channels of a role; other channels that the mapping omits are zero."""
    return _NEEDED[role]


def pwm_force(duty: np.ndarray) -> np.ndarray:
    """Return rotor thrusts [N] at duty cycles 0 to 65535; zero at 0."""
    return np.where(duty > 0, np.polyval(_PWM_COEFFICIENTS, duty), duty * 0.0)
