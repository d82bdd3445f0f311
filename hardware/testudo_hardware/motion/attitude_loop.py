"""The attitude controller of the Crazyflie firmware: attitude and thrust commands to the thrust of each rotor.

PID loops for roll, pitch and yaw whose outputs are rates, PID loops for the rates, and the sum of both and the
collective thrust for each rotor, all at 500 Hz (`attitude_pid_controller.c`, `pid.c`, `power_distribution_quadrotor.c`,
in whose units of PWM and degrees the gains are). Thrust above the largest one of a rotor is taken off all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from testudo_hardware.arrays import Array, array_namespace, stacked
from testudo_hardware.motion.rotor_drone import PITCH_SIGNS, ROLL_SIGNS, YAW_SIGNS
from testudo_hardware.quaternions import to_angles

FULL_PWM = 65535.0
_DEGREES = 180 / math.pi


@dataclass(frozen=True)
class LoopGains:
    """Of the firmware for a Crazyflie 2.1 (`platform_defaults_cf2.h`), for roll, pitch and yaw."""

    angle_kp: tuple[float, float, float] = (6.0, 6.0, 6.0)
    """Rate for an error [1/s]."""
    angle_ki: tuple[float, float, float] = (3.0, 3.0, 1.0)
    angle_kd: tuple[float, float, float] = (0.0, 0.0, 0.35)
    angle_limit: tuple[float, float, float] = (20.0, 20.0, 360.0)
    """Of the integral [degree s]."""
    rate_kp: tuple[float, float, float] = (250.0, 250.0, 120.0)
    """PWM for an error of 1 degree/s."""
    rate_ki: tuple[float, float, float] = (500.0, 500.0, 16.7)
    rate_kd: tuple[float, float, float] = (2.5, 2.5, 0.0)
    rate_limit: tuple[float, float, float] = (33.3, 33.3, 166.7)
    """Of the integral [degree]."""


@dataclass(frozen=True)
class LoopState:
    """What the controller remembers, in degrees; batch axes last."""

    angle_integral: Array
    """(3, ...)."""
    rate_integral: Array
    """(3, ...)."""
    angles: Array
    """(3, ...): of the step before."""
    rates: Array
    """(3, ...): of the step before."""


def still(yaw: Array) -> LoopState:
    """Return the memory of a controller that has hovered, at headings (...) [rad]."""
    zero = stacked(yaw * 0, yaw * 0, yaw * 0)
    return LoopState(zero, zero, stacked(yaw * 0, yaw * 0, yaw * _DEGREES), zero)


def rotor_thrusts(
    gains: LoopGains,
    loop: LoopState,
    quaternion_xyzw: Array,
    rates_body: Array,
    command: Array,
    full_thrust_n: Array,
    duration_s: float,
) -> tuple[Array, LoopState]:
    """Return the thrust command of each rotor (4, ...) [N] and the memory after one step of the controller.

    Args:
        gains: of the controller.
        loop: the memory before.
        quaternion_xyzw: (4, ...).
        rates_body: (3, ...) [rad/s].
        command: (4, ...): roll, pitch, yaw [rad], thrust of all rotors [N].
        full_thrust_n: command (...) [N] of one rotor at the full PWM.
        duration_s: since the last step.
    """
    xp = array_namespace(rates_body)
    angles, rates = to_angles(quaternion_xyzw) * _DEGREES, rates_body * _DEGREES
    outputs, angle_integral, rate_integral = [], [], []
    for k in range(3):
        error = command[k, ...] * _DEGREES - angles[k, ...]
        slope = (angles[k, ...] - loop.angles[k, ...]) / duration_s
        if k == 2:
            error = error - 360 * xp.round(error / 360)
            slope = slope - 360 / duration_s * xp.round(slope * duration_s / 360)
        total = _within(loop.angle_integral[k, ...] + error * duration_s, gains.angle_limit[k])
        wanted = gains.angle_kp[k] * error + gains.angle_ki[k] * total - gains.angle_kd[k] * slope
        error = wanted - rates[k, ...]
        summed = _within(loop.rate_integral[k, ...] + error * duration_s, gains.rate_limit[k])
        slope = (rates[k, ...] - loop.rates[k, ...]) / duration_s
        outputs.append(
            _within(gains.rate_kp[k] * error + gains.rate_ki[k] * summed - gains.rate_kd[k] * slope, FULL_PWM / 2)
        )
        angle_integral.append(total)
        rate_integral.append(summed)
    unit = full_thrust_n / FULL_PWM
    roll, pitch, yaw = outputs[0] * unit / 2, outputs[1] * unit / 2, outputs[2] * unit
    each = stacked(
        *(
            command[3, ...] / 4 + r * roll + p * pitch + y * yaw
            for r, p, y in zip(ROLL_SIGNS, PITCH_SIGNS, YAW_SIGNS, strict=True)
        )
    )
    over = xp.max(each, axis=0) - full_thrust_n
    each = each - xp.where(over > 0, over, 0.0)[None, ...]
    return (xp.where(each > 0, each, 0.0), LoopState(stacked(*angle_integral), stacked(*rate_integral), angles, rates))


def _within(value: Array, limit: float) -> Array:
    xp = array_namespace(value)
    return xp.where(value > limit, limit, xp.where(value < -limit, -limit, value))
