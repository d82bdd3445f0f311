"""The interface of a motion model, and the choice of one for a robot."""

from typing import Protocol

import numpy as np

from testudo_hardware.arrays import Array, array_namespace, is_number, stacked
from testudo_hardware.motion.differential_drive import DifferentialDrive
from testudo_hardware.motion.motion_state import LagResponse, MotionState, StoppingPoint, matrix_vector
from testudo_hardware.motion.velocity_point import VelocityPoint
from testudo_hardware.schema import DIFFERENTIAL_DRIVE, VELOCITY_POINT
from testudo_hardware.spec import RobotSpec


class MotionModel(Protocol):
    """Motion of one kind of robot; shapes as in `MotionState`, batch axes last.

    An *effective* command is the value that the velocity tends to: the actuator command, clipped by the driver, times
    the scale of the actuators (`effective_command`).
    """

    @property
    def spec(self) -> RobotSpec:
        """The robot."""
        ...

    @property
    def scale(self) -> tuple[float, ...]:
        """Scale of each command channel: ratio of actual to commanded velocity."""
        ...

    def step(self, state: MotionState, effective: Array, response: LagResponse) -> MotionState:
        """Return the state after ``response.duration_s`` under a constant effective command (D, ...)."""
        ...

    def hold(self, state: MotionState, effective: Array, response: LagResponse, ticks: int) -> MotionState:
        """Return the states now and after each of ``ticks`` steps under one command: (D, ticks + 1, ...).

        The same as `step` in a loop except for rounding, in fewer calls.
        """
        ...

    def limit_command(self, command: Array) -> Array:
        """Return the command (D, ...) within the limits of the actuators, as the driver clips it."""

    def stopping_point(self, state: MotionState) -> StoppingPoint:
        """Return the place of rest of the control point under zero command from now on."""
        ...

    def rest_position(self, state: MotionState) -> Array:
        """Return the place of rest (D, ...) [m] of the body under zero command from now on."""

    def limit_rows(self, stop: StoppingPoint) -> tuple[Array, Array] | None:
        """Return rows (D, R, ...) and bounds (R, ...) of the control-point velocity; None if none is needed."""

    def braking_share(self, stop: StoppingPoint, control_velocity_world: Array) -> Array | None:
        """Return the largest share (...) in [0, 1] of a velocity that the acceleration limit allows.

        None if the speed limits keep the acceleration below its limit.
        """

    def firm_command(self, stop: StoppingPoint, effective: Array) -> Array:
        """Return the effective command (D, ...) that brakes as hard as planned at any lag in its interval."""


def motion_model(spec: RobotSpec) -> MotionModel:
    """Return the motion model of a robot's kind."""
    return DifferentialDrive(spec) if spec.kind == DIFFERENTIAL_DRIVE else VelocityPoint(spec)


def effective_command(model: MotionModel, command: Array) -> Array:
    """Return the velocity (D, ...) that an actuator command (D, ...) tends to.

    `actuator_command` and `control_velocity` do not compensate the loss in turns, since a command would grow by a loss
    that may be smaller than described: the shield's margins cover all of it (`turn_slip_m_s`).
    """
    return scale_channels(apply_turn_slip(model.limit_command(command), model.spec), model.scale)


def apply_turn_slip(command: Array, spec: RobotSpec) -> Array:
    """Return a command (2, ...) of a differential drive with its forward speed reduced by wheel slip in turns.

    v / (1 + (k omega)²), with k = `dynamics.turn_slip`: no loss straight ahead, half at omega = 1/k, never another
    sign. Other kinds, and k = 0, have no loss: the same array is returned.
    """
    slip = spec.turn_slip_s_rad
    if spec.kind != DIFFERENTIAL_DRIVE or is_number(slip, 0.0):
        return command
    return stacked(command[0, ...] / (1 + (slip * command[1, ...]) ** 2), command[1, ...])


def turn_slip_m_s(spec: RobotSpec) -> float:
    """Return the largest loss of forward speed in turns at any slip up to the highest of its interval."""
    slip = spec.quantities.get("dynamics.turn_slip")
    if slip is None or slip.high == 0:
        return 0.0
    # the loss is largest where the wheels' limit becomes active, or near it
    corner = 2 * (spec.wheel_limit_m_s - spec.speed_limit_m_s) / spec.wheel_base_m
    turn = np.minimum(np.append(np.linspace(0.0, spec.turn_rate_limit_rad_s, 1001), corner), spec.turn_rate_limit_rad_s)
    asked = np.clip(spec.wheel_limit_m_s - spec.wheel_base_m / 2 * turn, 0.0, spec.speed_limit_m_s)
    scale = spec.quantities["dynamics.speed_scale"].high
    return float(np.max(scale * asked * (1 - 1 / (1 + (slip.high * turn) ** 2))))


def slip_ratio(spec: RobotSpec) -> tuple[float, float]:
    """Return the smallest and largest ratio of actual to described forward speed over the interval of the turn slip."""
    slip = spec.quantities.get("dynamics.turn_slip")
    if slip is None:
        return 1.0, 1.0
    value, low, high = (1 + (k * spec.turn_rate_limit_rad_s) ** 2 for k in (slip.value, slip.low, slip.high))
    return value / high, value / low


def hover_drift_m_s(spec: RobotSpec) -> tuple[float, ...]:
    """Return the error of velocity along each world axis that may last for seconds (D values) [m/s].

    Zero except for drones, whose controllers need a velocity error to balance a force. Horizontally, the integrators'
    compensation of drag at speed, 1 degree for 1 m, decays in 25 s (firmware, PID_VEL_X_KI over PID_VEL_X_KP);
    vertically, the thrust adapts to tilt and downwash. Measured on the plant (docs/drones.md).
    """
    return (0.03, 0.03, 0.06) if spec.kind == VELOCITY_POINT else (0.0,) * spec.dimension


def brake_time_s(spec: RobotSpec, speed_m_s: Array) -> Array:
    """Return how long a robot needs after a hold from a speed (...) [m/s] to rest, below 1 cm/s: (...)."""
    xp = array_namespace(speed_m_s)
    lag = spec.quantities["dynamics.velocity_lag"].high
    # the lag's tail: ln(v / 1 cm/s) time constants; and the part at the limit of deceleration
    tail = lag * xp.log(xp.maximum(speed_m_s / 0.01, xp.ones_like(speed_m_s)))
    return tail + speed_m_s / spec.acceleration_limit_m_s2


def actuator_command(model: MotionModel, stop: StoppingPoint, control_velocity_world: Array) -> Array:
    """Return the actuator command (D, ...) that moves the control point with a velocity (D, ...) [m/s]."""
    rate = matrix_vector(stop.inverse, control_velocity_world)
    effective = stop.brake_command + model.spec.velocity_lag_s * rate
    return scale_channels(model.firm_command(stop, effective), tuple(1 / scale for scale in model.scale))


def control_velocity(model: MotionModel, stop: StoppingPoint, command: Array) -> Array:
    """Return the control-point velocity in the world (D, ...) [m/s] that an actuator command causes.

    The inverse of `actuator_command` without `firm_command`.
    """
    rate = (scale_channels(command, model.scale) - stop.brake_command) / model.spec.velocity_lag_s
    return matrix_vector(stop.jacobian, rate)


def scale_channels(command: Array, scale: tuple[float, ...]) -> Array:
    """Return ``command`` (D, ...) with each channel times its scale; the same array if all are 1."""
    if all(is_number(factor, 1.0) for factor in scale):
        return command
    xp = array_namespace(command)
    return xp.stack([command[k, ...] * factor for k, factor in enumerate(scale)])
