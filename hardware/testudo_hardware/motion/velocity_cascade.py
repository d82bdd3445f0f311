"""The velocity controller of the Crazyflie firmware: velocity commands in the world to attitude and thrust commands.

Two PI loops in the plane of the heading and one up and down, at 100 Hz, as in `position_controller_pid.c` of the
firmware: tilt = kp e + ki integral(e), within the limit of tilt; thrust = base + kp e + ki integral(e), within the
limits of thrust. There is no anti-windup, as there. The heading follows the integral of the yaw rate
(`controller_pid.c`). Right-handed angles: the firmware's pitch has the other sign.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from testudo_hardware.arrays import Array, array_namespace, stacked
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion.attitude_drone import AttitudeDroneState
from testudo_hardware.quaternions import heading
from testudo_hardware.spec import RobotSpec


@dataclass(frozen=True)
class CascadeState:
    """What the controller remembers; batch axes last."""

    integral: Array
    """(3, ...) [m]: of the error of velocity, ahead, to the left and up."""
    yaw_command: Array
    """(...) [rad]."""


@dataclass(frozen=True)
class CascadeParameters:
    """Gains and limits; each a number, or an array over the batch (...)."""

    period_s: float
    """Of the controller; between two of its steps the command holds."""
    tilt_per_speed: Array
    """[rad s/m]."""
    tilt_per_way: Array
    """[rad/m]: of the integral."""
    tilt_limit_rad: Array
    thrust_per_speed: Array
    """[N s/m]."""
    thrust_per_way: Array
    """[N/m]: of the integral."""
    thrust_base_n: Array
    """Thrust command without any error."""
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
    """Return the memory of a controller that has hovered for long: it carries the weight, at headings (...) [rad]."""
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
    """Return the attitude command and the controller's memory after one of its steps.

    Args:
        parameters: of the controller.
        state: of the drones, of which velocity and heading count (`RotorDroneState` has them, too).
        cascade: the memory before.
        velocity_command_world: (3, ...) [m/s].
        yaw_rate: (...) [rad/s].
        duration_s: time since its last step [s]: ``parameters.period_s`` where it runs at its own rate.

    Returns:
        (4, ...): roll, pitch, yaw [rad], thrust of all rotors [N]; and the memory.
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
        _within(
            parameters.tilt_per_speed * error[k, ...] + parameters.tilt_per_way * integral[k, ...],
            -parameters.tilt_limit_rad,
            parameters.tilt_limit_rad,
        )
        for k in range(2)
    ]
    thrust = parameters.thrust_base_n + parameters.thrust_per_speed * up + parameters.thrust_per_way * integral[2, ...]
    return (-tilt[1], tilt[0], _within(thrust, parameters.thrust_least_n, parameters.thrust_most_n)), integral


def _within(value: Array, low: Array, high: Array) -> Array:
    xp = array_namespace(value)
    return xp.minimum(xp.maximum(value, low + 0 * value), high + 0 * value)
