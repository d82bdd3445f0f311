"""A point that follows velocity commands in the world: a drone or a mecanum base under its velocity controller.

A drone moves in space, a holonomic base in the plane; both hold their heading.

Pure lag and delay make q = p + lag * v an exact single integrator of the command (shield.md, layer 1).
"""

import math
from dataclasses import dataclass

from testudo_hardware.arrays import Array, array_namespace
from testudo_hardware.motion.motion_state import (
    TINY,
    LagResponse,
    MotionState,
    StoppingPoint,
    held_velocities,
    length,
    matrix_vector,
    running_sum,
    shorten,
    sum_terms,
)
from testudo_hardware.spec import RobotSpec


@dataclass(frozen=True)
class VelocityPoint:
    """Motion of a velocity-commanded point; implements `MotionModel`."""

    spec: RobotSpec

    @property
    def scale(self) -> tuple[float, ...]:
        """See `MotionModel.scale`."""
        return (self.spec.speed_scale,) * self.spec.dimension

    def step(self, state: MotionState, effective: Array, response: LagResponse) -> MotionState:
        """See `MotionModel.step`; the acceleration limit bounds the length of the change of velocity."""
        change = self._change(state.velocity, effective, response)
        mean = state.velocity + response.mean_share * change
        return MotionState(state.position_world + response.duration_s * mean, state.yaw, state.velocity + change)

    def hold(self, state: MotionState, effective: Array, response: LagResponse, ticks: int) -> MotionState:
        """See `MotionModel.hold`."""
        velocity, way = held_velocities(self._change, state.velocity, effective, response, ticks)
        return MotionState(
            running_sum(state.position_world + 0 * effective, way), state.yaw + 0 * velocity[0, ...], velocity
        )

    def _change(self, velocity: Array, effective: Array, response: LagResponse) -> Array:
        """Return the change of the velocity (D, ...)."""
        return shorten(response.gain * (effective - velocity), self.spec.acceleration_limit_m_s2 * response.duration_s)

    def limit_command(self, command: Array) -> Array:
        """See `MotionModel.limit_command`: the length is limited to the speed limit."""
        return shorten(command, self.spec.speed_limit_m_s)

    def stopping_point(self, state: MotionState) -> StoppingPoint:
        """See `MotionModel.stopping_point`; distance lag*v, or v²/2a + a*lag²/2 above a*lag."""
        xp = array_namespace(state.velocity)
        lag, limit = self.spec.velocity_lag_s, self.spec.acceleration_limit_m_s2
        speed = length(state.velocity)
        direction = state.velocity / (speed + TINY)
        fast = speed > limit * lag
        distance = xp.where(fast, speed**2 / (2 * limit) + limit * lag**2 / 2, lag * speed)
        along = xp.where(fast, speed / limit, lag + 0 * speed)
        across = xp.where(fast, distance / (speed + TINY), lag + 0 * speed)
        brake = direction * xp.where(fast, speed - limit * lag, 0 * speed)
        return StoppingPoint(
            state.position_world + distance * direction,
            state.yaw,
            _symmetric(direction, along, across),
            _symmetric(direction, 1 / along, 1 / across),
            brake,
            (state.velocity - brake) / lag,
        )

    def rest_position(self, state: MotionState) -> Array:
        """See `MotionModel.rest_position`."""
        xp = array_namespace(state.velocity)
        lag, limit = self.spec.velocity_lag_s, self.spec.acceleration_limit_m_s2
        speed = length(state.velocity)
        time_s = xp.where(speed > limit * lag, (speed / (2 * limit) + limit * lag**2 / (2 * (speed + TINY))), lag)
        return state.position_world + time_s * state.velocity

    def limit_rows(self, stop: StoppingPoint) -> None:
        """See `MotionModel.limit_rows`: none, since a projection onto a set that holds 0 never lengthens."""
        return

    def braking_share(self, stop: StoppingPoint, control_velocity_world: Array) -> Array:
        """See `MotionModel.braking_share`: the largest s with |s * rate - deceleration| <= limit."""
        xp = array_namespace(control_velocity_world)
        rate = matrix_vector(stop.inverse, control_velocity_world)
        square = sum_terms([rate[k, ...] ** 2 for k in range(rate.shape[0])]) + TINY
        half = sum_terms([rate[k, ...] * stop.deceleration[k, ...] for k in range(rate.shape[0])])
        rest = sum_terms([stop.deceleration[k, ...] ** 2 for k in range(rate.shape[0])])
        slack = xp.maximum(self.spec.acceleration_limit_m_s2**2 - rest, 0 * rest)
        return xp.minimum((half + xp.sqrt(half**2 + square * slack)) / square, 1.0)

    def firm_command(self, stop: StoppingPoint, effective: Array) -> Array:
        """See `MotionModel.firm_command`; braking only, and never below zero speed.

        Braking at the limit needs the command velocity - limit * lag. A robot with a longer lag would brake less than
        the limit and rest far beyond its stopping point. So would one whose command is held for long: the velocity
        approaches it, so that over a tick T the mean braking is (1 - exp(-T / lag)) * lag / T of the initial one.
        """
        xp = array_namespace(effective)
        lag, limit = self.spec.velocity_lag_s, self.spec.acceleration_limit_m_s2
        velocity = stop.brake_command + lag * stop.deceleration
        speed = length(velocity)
        direction = velocity / (speed + TINY)
        forward = sum_terms([effective[k, ...] * direction[k, ...] for k in range(effective.shape[0])])
        period = self.spec.control_period_s
        longest = -period / math.expm1(-period / self.spec.quantities["dynamics.velocity_lag"].high)
        extra = xp.minimum(xp.maximum(speed / limit, lag), longest) / lag - 1
        firmer = xp.minimum(extra * xp.maximum(speed - forward, 0.0), xp.maximum(forward, 0.0))
        return effective - firmer * direction


def _symmetric(direction: Array, along: Array, across: Array) -> Array:
    """Return the matrix (D, D, ...) with ``along`` on the direction and ``across`` on the rest."""
    xp = array_namespace(direction)
    size = direction.shape[0]
    unit = xp.reshape(xp.eye(size, dtype=direction.dtype), (size, size) + (1,) * (direction.ndim - 1))
    # few operations on whole matrices: on a robot their number is what takes the time
    return (((along - across) * direction)[:, None, ...] * direction[None, ...]) + across * unit
