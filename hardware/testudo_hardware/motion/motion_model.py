"""The interface of a motion model, and the choice of one for a robot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from testudo_hardware.arrays import Array, array_namespace, is_number, stacked
from testudo_hardware.motion.differential_drive import DifferentialDrive
from testudo_hardware.motion.motion_state import LagResponse, MotionState, StoppingPoint, matrix_vector
from testudo_hardware.motion.velocity_point import VelocityPoint
from testudo_hardware.schema import DIFFERENTIAL_DRIVE, VELOCITY_POINT
from testudo_hardware.spec import RobotSpec


class MotionModel(Protocol):
    """How one kind of robot moves; shapes as in `MotionState`, batch axes last.

    An *effective* command is what the velocity tends to: the actuator command, clipped by the driver,
    times the scale of the actuators (`effective_command`).
    """

    spec: RobotSpec
    scale: tuple[float, ...]
    """Scale of each command channel: realised over commanded velocity."""

    def step(self, state: MotionState, effective: Array, response: LagResponse) -> MotionState:
        """Return the state after ``response.duration_s`` under a constant effective command (D, ...)."""

    def hold(self, state: MotionState, effective: Array, response: LagResponse, ticks: int) -> MotionState:
        """Return the state and those after each of so many steps under one command: (D, ticks + 1, ...).

        The same as `step` in a loop but for rounding, in fewer calls.
        """

    def limit_command(self, command: Array) -> Array:
        """Return the command (D, ...) that the actuators can do, as the driver clips it."""

    def stopping_point(self, state: MotionState) -> StoppingPoint:
        """Return where the control point rests if zero is commanded from now on."""

    def rest_position(self, state: MotionState) -> Array:
        """Return where the body (D, ...) [m] rests if zero is commanded from now on."""

    def limit_rows(self, stop: StoppingPoint) -> tuple[Array, Array] | None:
        """Return rows (D, R, ...), bounds (R, ...) on the control-point velocity; None if none is needed."""

    def braking_share(self, stop: StoppingPoint, control_velocity_world: Array) -> Array | None:
        """Return the largest share (...) in [0, 1] of a velocity that the acceleration limit allows.

        None if the limit cannot be reached within the speed limits.
        """

    def firm_command(self, stop: StoppingPoint, effective: Array) -> Array:
        """Return the effective command (D, ...) such that braking is as hard as planned at any lag in its interval."""


def motion_model(spec: RobotSpec) -> MotionModel:
    """Return the motion model of a robot's kind."""
    return DifferentialDrive(spec) if spec.kind == DIFFERENTIAL_DRIVE else VelocityPoint(spec)


def effective_command(model: MotionModel, command: Array) -> Array:
    """Return what the velocity tends to under an actuator command (D, ...).

    `actuator_command` and `control_velocity` do not make up for what is lost in turns, so that no command grows by a
    loss that may be less than described: the shield's margins cover it whole (`turn_slip_m_s`).
    """
    return scale_channels(apply_turn_slip(model.limit_command(command), model.spec), model.scale)


def apply_turn_slip(command: Array, spec: RobotSpec) -> Array:
    """Return a command (2, ...) of a differential drive with its forward speed as slipping wheels leave it.

    v / (1 + (k omega)²), with k = `dynamics.turn_slip`: nothing is lost straight on, half at omega = 1/k, and no turn
    rate turns the sign. Other kinds, and k = 0, lose nothing: the same array.
    """
    slip = spec.turn_slip_s_rad
    if spec.kind != DIFFERENTIAL_DRIVE or is_number(slip, 0.0):
        return command
    return stacked(command[0, ...] / (1 + (slip * command[1, ...]) ** 2), command[1, ...])


def turn_slip_m_s(spec: RobotSpec) -> float:
    """Return the most forward speed that turns can cost a robot at any slip up to the highest of its interval."""
    slip = spec.quantities.get("dynamics.turn_slip")
    if slip is None or slip.high == 0:
        return 0.0
    # most is lost where the wheels' limit begins to bind, or near it
    corner = 2 * (spec.wheel_limit_m_s - spec.speed_limit_m_s) / spec.wheel_base_m
    turn = np.minimum(np.append(np.linspace(0.0, spec.turn_rate_limit_rad_s, 1001), corner), spec.turn_rate_limit_rad_s)
    asked = np.clip(spec.wheel_limit_m_s - spec.wheel_base_m / 2 * turn, 0.0, spec.speed_limit_m_s)
    scale = spec.quantities["dynamics.speed_scale"].high
    return float(np.max(scale * asked * (1 - 1 / (1 + (slip.high * turn) ** 2))))


def slip_ratio(spec: RobotSpec) -> tuple[float, float]:
    """Return the least and the greatest realised over described forward speed, as the turn slip is in its interval."""
    slip = spec.quantities.get("dynamics.turn_slip")
    if slip is None:
        return 1.0, 1.0
    value, low, high = (1 + (k * spec.turn_rate_limit_rad_s) ** 2 for k in (slip.value, slip.low, slip.high))
    return value / high, value / low


def hover_drift_m_s(spec: RobotSpec) -> tuple[float, ...]:
    """Return how far each axis of the world may be off its commanded velocity for seconds (D values) [m/s].

    Zero but for drones, whose controllers carry a force by an error of speed. Sideways, what the integrators learnt
    against drag at speed, 1 degree for 1 m, is forgotten in 25 s (firmware, PID_VEL_X_KI over PID_VEL_X_KP); a climb
    is off while the controller finds another thrust, tilted or in a wash. Measured on the plant (docs/drones.md).
    """
    return (0.03, 0.03, 0.06) if spec.kind == VELOCITY_POINT else (0.0,) * spec.dimension


def actuator_command(model: MotionModel, stop: StoppingPoint, control_velocity_world: Array) -> Array:
    """Return the actuator command (D, ...) that moves the control point at this velocity (D, ...) [m/s]."""
    rate = matrix_vector(stop.inverse, control_velocity_world)
    effective = stop.brake_command + model.spec.velocity_lag_s * rate
    return scale_channels(model.firm_command(stop, effective), tuple(1 / scale for scale in model.scale))


def control_velocity(model: MotionModel, stop: StoppingPoint, command: Array) -> Array:
    """Return the control-point velocity in the world (D, ...) [m/s] that an actuator command causes.

    The inverse of `actuator_command` where that did not make the braking firmer.
    """
    rate = (scale_channels(command, model.scale) - stop.brake_command) / model.spec.velocity_lag_s
    return matrix_vector(stop.jacobian, rate)


def scale_channels(command: Array, scale: tuple[float, ...]) -> Array:
    """Return ``command`` (D, ...) with each channel times its scale; the same array if all are 1."""
    if all(is_number(factor, 1.0) for factor in scale):
        return command
    xp = array_namespace(command)
    return xp.stack([command[k, ...] * factor for k, factor in enumerate(scale)])


def roll_out(
    model: MotionModel, state: MotionState, effective: Sequence[Array], responses: Sequence[LagResponse]
) -> MotionState:
    """Return the state after the effective commands (each (D, ...)), oldest first, each for its time."""
    for command, response in zip(effective, responses, strict=True):
        state = model.step(state, command, response)
    return state
