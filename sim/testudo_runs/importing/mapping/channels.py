"""Channels that a mapping file may name, their units, and their factors to SI."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from testudo_runs.recording.roles import ROLES

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


@dataclass(frozen=True)
class PwmCurve:
    """Thrust of one rotor over its 16-bit duty cycle, at the battery voltage of the measurement."""

    unit: str
    coefficients: tuple[float, float, float]
    """[N] by powers of the duty cycle 0 to 65535, the highest first."""

    def force(self, duty: np.ndarray) -> np.ndarray:
        """Return thrusts [N]; zero at duty cycle 0."""
        return np.where(duty > 0, np.polyval(self.coefficients, duty), duty * 0.0)


PWM16 = PwmCurve("pwm16", (2.130295e-11, 1.032633e-6, 5.484560e-4))
"""Crazyflie 2.x, J. Förster, "System identification of the Crazyflie 2.0 nano quadrocopter", ETH Zürich 2015."""
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
