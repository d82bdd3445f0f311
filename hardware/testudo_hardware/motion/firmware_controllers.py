"""The controllers of the Crazyflie firmware: velocity commands to attitude commands, and those to rotor thrusts.

Velocity (100 Hz, `position_controller_pid.c`): two PI loops in the plane of the heading and one vertical; tilt = kp e +
ki integral(e), within the tilt limit; thrust = base + kp e + ki integral(e), within the thrust limits; no anti-windup,
as in the firmware. The heading follows the integral of the yaw rate (`controller_pid.c`). Angles are right-handed: the
firmware's pitch has the opposite sign.

Attitude (500 Hz, `attitude_pid_controller.c`, `pid.c`, `power_distribution_quadrotor.c`; gains in their units, PWM and
degrees): PID loops for roll, pitch and yaw whose outputs are rates, PID loops for the rates, and the sum with the
collective thrust for each rotor. Thrust above the largest of a rotor is subtracted from all.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from testudo_hardware.arrays import Array, array_namespace, clipped, stacked
from testudo_hardware.errors import TestudoError
from testudo_hardware.frames import heading, to_angles
from testudo_hardware.motion.attitude_drone import AttitudeDroneState
from testudo_hardware.motion.rotor_drone import PITCH_SIGNS, ROLL_SIGNS, YAW_SIGNS
from testudo_hardware.spec import RobotSpec


@dataclass(frozen=True)
class CascadeState:
    """State of the velocity controller; batch axes last."""

    integral: Array  # (3, ...) [m]: integral of the velocity error, forward, left and up
    yaw_command: Array  # (...) [rad]


@dataclass(frozen=True)
class CascadeParameters:
    """Gains and limits; each a number, or an array over the batch (...)."""

    period_s: float  # of the controller; the command holds between its steps
    tilt_per_speed: Array  # [rad s/m]
    tilt_per_way: Array  # [rad/m]: of the integral
    tilt_limit_rad: Array
    thrust_per_speed: Array  # [N s/m]
    thrust_per_way: Array  # [N/m]: of the integral
    thrust_base_n: Array  # thrust command without any error
    thrust_least_n: Array
    thrust_most_n: Array

    @classmethod
    def from_spec(cls, spec: RobotSpec, drawn: Mapping[str, Array] | None = None) -> Self:
        """Return the controller of a robot file with a table `[attitude]`.

        Args:
            spec: the robot.
            drawn: values (...) by `attitude.key` in place of the file's.

        Raises:
            TestudoError: the file has no `[attitude]`.
        """
        if not spec.attitude:
            raise TestudoError(f"{spec.name}: the robot file has no [attitude]; the velocity controller needs it")
        value = {key: quantity.value for key, quantity in spec.attitude.items()} | dict(drawn or {})
        get = {key.removeprefix("attitude."): number for key, number in value.items()}
        return cls(
            spec.attitude["attitude.cascade_period"].value,
            get["tilt_per_speed"],
            get["tilt_per_way"],
            get["tilt_limit"],
            get["thrust_per_speed"],
            get["thrust_per_way"],
            get["thrust_base"],
            get["thrust_floor"],
            get["thrust_most"],
        )


def settled(parameters: CascadeParameters, hover_thrust_n: Array, yaw: Array) -> CascadeState:
    """Return the state of a controller after a long hover, at headings (...) [rad]: it balances the weight."""
    zero = yaw * 0
    return CascadeState(
        stacked(zero, zero, zero + (hover_thrust_n - parameters.thrust_base_n) / parameters.thrust_per_way), yaw + zero
    )


def attitude_command(
    parameters: CascadeParameters,
    state: AttitudeDroneState,
    cascade: CascadeState,
    velocity_command_world: Array,
    yaw_rate: Array,
    duration_s: Array,
) -> tuple[Array, CascadeState]:
    """Return the attitude command and the controller's state after one of its steps.

    Args:
        parameters: of the controller.
        state: of the drones; only velocity and heading are used (`RotorDroneState` has them, too).
        cascade: the controller's state before.
        velocity_command_world: (3, ...) [m/s].
        yaw_rate: (...) [rad/s].
        duration_s: time since its last step [s]: ``parameters.period_s`` at its own rate.

    Returns:
        (4, ...): roll, pitch, yaw [rad], thrust of all rotors [N]; and the controller's state.
    """
    command, integral = velocity_control(
        parameters,
        state.velocity_world,
        heading(state.quaternion_xyzw),
        cascade.integral,
        velocity_command_world,
        duration_s,
    )
    xp = array_namespace(integral)
    yaw = cascade.yaw_command + yaw_rate * duration_s
    yaw = yaw - 2 * math.pi * xp.round(yaw / (2 * math.pi))
    return stacked(*command[:2], yaw, command[2]), CascadeState(integral, yaw)


def velocity_control(
    parameters: CascadeParameters,
    velocity_world: Array,
    yaw: Array,
    integral: Array,
    velocity_command_world: Array,
    duration_s: Array,
) -> tuple[tuple[Array, Array, Array], Array]:
    """Return roll, pitch [rad], thrust [N] (...) and the integral (3, ...); see `attitude_command`."""
    xp = array_namespace(velocity_world)
    cosine, sine = xp.cos(yaw), xp.sin(yaw)
    east, north, up = (velocity_command_world[k, ...] - velocity_world[k, ...] for k in range(3))
    error = stacked(cosine * east + sine * north, cosine * north - sine * east, up)
    integral = integral + error * duration_s
    tilt = [
        clipped(
            parameters.tilt_per_speed * error[k, ...] + parameters.tilt_per_way * integral[k, ...],
            -parameters.tilt_limit_rad,
            parameters.tilt_limit_rad,
        )
        for k in range(2)
    ]
    thrust = parameters.thrust_base_n + parameters.thrust_per_speed * up + parameters.thrust_per_way * integral[2, ...]
    return (-tilt[1], tilt[0], clipped(thrust, parameters.thrust_least_n, parameters.thrust_most_n)), integral


FULL_PWM = 65535.0
_DEGREES = 180 / math.pi


@dataclass(frozen=True)
class LoopGains:
    """Of the firmware for a Crazyflie 2.1 (`platform_defaults_cf2.h`), for roll, pitch and yaw."""

    angle_kp: tuple[float, float, float] = (6.0, 6.0, 6.0)  # rate for an error [1/s]
    angle_ki: tuple[float, float, float] = (3.0, 3.0, 1.0)
    angle_kd: tuple[float, float, float] = (0.0, 0.0, 0.35)
    angle_limit: tuple[float, float, float] = (20.0, 20.0, 360.0)  # of the integral [degree s]
    rate_kp: tuple[float, float, float] = (250.0, 250.0, 120.0)  # PWM for an error of 1 degree/s
    rate_ki: tuple[float, float, float] = (500.0, 500.0, 16.7)
    rate_kd: tuple[float, float, float] = (2.5, 2.5, 0.0)
    rate_limit: tuple[float, float, float] = (33.3, 33.3, 166.7)  # of the integral [degree]


@dataclass(frozen=True)
class LoopState:
    """State of the attitude controller, in degrees; batch axes last."""

    angle_integral: Array  # (3, ...)
    rate_integral: Array  # (3, ...)
    angles: Array  # (3, ...): of the previous step
    rates: Array  # (3, ...): of the previous step


def still(yaw: Array) -> LoopState:
    """Return the state of a controller after a hover, at headings (...) [rad]."""
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
    """Return the thrust command of each rotor (4, ...) [N] and the controller's state after one step.

    Args:
        gains: of the controller.
        loop: the controller's state before.
        quaternion_xyzw: (4, ...).
        rates_body: (3, ...) [rad/s].
        command: (4, ...): roll, pitch, yaw [rad], thrust of all rotors [N].
        full_thrust_n: command (...) [N] of one rotor at the full PWM.
        duration_s: time since the last step.
    """
    xp = array_namespace(rates_body)
    angles, rates = to_angles(quaternion_xyzw) * _DEGREES, rates_body * _DEGREES
    outputs: list[Array] = []
    angle_integral: list[Array] = []
    rate_integral: list[Array] = []
    for k in range(3):
        error = command[k, ...] * _DEGREES - angles[k, ...]
        slope = (angles[k, ...] - loop.angles[k, ...]) / duration_s
        if k == 2:
            error = error - 360 * xp.round(error / 360)
            slope = slope - 360 / duration_s * xp.round(slope * duration_s / 360)
        total = _limited(loop.angle_integral[k, ...] + error * duration_s, gains.angle_limit[k])
        wanted = gains.angle_kp[k] * error + gains.angle_ki[k] * total - gains.angle_kd[k] * slope
        error = wanted - rates[k, ...]
        summed = _limited(loop.rate_integral[k, ...] + error * duration_s, gains.rate_limit[k])
        slope = (rates[k, ...] - loop.rates[k, ...]) / duration_s
        outputs.append(
            _limited(gains.rate_kp[k] * error + gains.rate_ki[k] * summed - gains.rate_kd[k] * slope, FULL_PWM / 2)
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


def _limited(value: Array, limit: float) -> Array:
    xp = array_namespace(value)
    return xp.where(value > limit, limit, xp.where(value < -limit, -limit, value))
