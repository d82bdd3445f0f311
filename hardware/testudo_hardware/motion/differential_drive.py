"""A differential drive whose forward and turning speed follow their commands with a first-order lag.

Under zero command both decay together, so that the path to rest is an arc and the stopping pose is closed-form. Where
an acceleration limit is reached this is an approximation, whose error is a named margin of the shield.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from testudo_hardware.arrays import Array, array_namespace, stacked
from testudo_hardware.motion.motion_state import (
    LagResponse,
    MotionState,
    StoppingPoint,
    held_velocities,
    matrix_vector,
    running_sum,
)
from testudo_hardware.spec import RobotSpec

_TINY = 1e-9


@dataclass(frozen=True)
class DifferentialDrive:
    """Motion of a two-wheeled robot; implements `MotionModel`. Command: (v [m/s], omega [rad/s])."""

    spec: RobotSpec

    @property
    def scale(self) -> tuple[float, ...]:
        """See `MotionModel.scale`."""
        return (self.spec.speed_scale, self.spec.turn_scale)

    @cached_property
    def _saturates(self) -> bool:
        """Whether a change of command within the wheel limits can reach an acceleration limit."""
        spec, swing = self.spec, 2 * self.spec.wheel_limit_m_s
        fitted: tuple[Array, ...] = (
            spec.acceleration_limit_m_s2,
            spec.turn_acceleration_limit_rad_s2,
            spec.velocity_lag_s,
        )
        if not all(isinstance(value, int | float) for value in fitted):  # traced by identification
            return True
        return spec.acceleration_limit_m_s2 * spec.velocity_lag_s < swing * (
            1 - 1e-6
        ) or spec.turn_acceleration_limit_rad_s2 * spec.velocity_lag_s < 2 * swing / spec.wheel_base_m * (1 - 1e-6)

    def step(self, state: MotionState, effective: Array, response: LagResponse) -> MotionState:
        """See `MotionModel.step`; the arc at the mean turn rate, second order in the step."""
        xp = array_namespace(effective)
        change = self._change(state.velocity, effective, response)
        way = response.duration_s * (state.velocity + response.mean_share * change)
        half = 0.5 * way[1, ...]
        chord, middle = way[0, ...] * _sinc(half), state.yaw + half
        return MotionState(
            state.position_world + chord * stacked(xp.cos(middle), xp.sin(middle)),
            middle + half,
            state.velocity + change,
        )

    def hold(self, state: MotionState, effective: Array, response: LagResponse, ticks: int) -> MotionState:
        """See `MotionModel.hold`: velocities in a loop, arcs in one call."""
        xp = array_namespace(effective)
        velocity, way = held_velocities(self._change, state.velocity, effective, response, ticks)
        turn = way[1:, ...]
        yaw = running_sum(state.yaw + 0 * effective[:1, ...], turn)
        half = 0.5 * turn
        middle = yaw[:, :-1, ...] + half
        chord = way[:1, ...] * _sinc(half)
        arcs = chord * xp.concat([xp.cos(middle), xp.sin(middle)])
        return MotionState(running_sum(state.position_world + 0 * effective, arcs), yaw[0, ...], velocity)

    def _change(self, velocity: Array, effective: Array, response: LagResponse) -> Array:
        """Return by how much the velocity changes (2, ...)."""
        change = response.gain * (effective - velocity)
        if not self._saturates:
            return change
        xp = array_namespace(change)
        limit = self._change_limits(xp, change) * response.duration_s
        return xp.minimum(xp.maximum(change, -limit), limit)

    def _change_limits(self, xp: Any, like: Array) -> Array:
        """Return the acceleration limits (2, 1, ...) of both channels."""
        limits = (self.spec.acceleration_limit_m_s2, self.spec.turn_acceleration_limit_rad_s2)
        return xp.reshape(xp.asarray(limits, dtype=like.dtype), (2,) + (1,) * (like.ndim - 1))

    def limit_command(self, command: Array) -> Array:
        """See `MotionModel.limit_command`: both channels shrink together, so that the curvature stays."""
        xp = array_namespace(command)
        share = xp.ones_like(command[0, ...])
        for functional, bound in self._limits:
            share = xp.minimum(
                share,
                bound / xp.maximum(xp.abs(functional[0] * command[0, ...] + functional[1] * command[1, ...]), _TINY),
            )
        return command * share

    def stopping_point(self, state: MotionState) -> StoppingPoint:
        """See `MotionModel.stopping_point`; q = stopping position + look-ahead * stopping heading."""
        xp = array_namespace(state.velocity)
        lag, ahead = self.spec.velocity_lag_s, self.spec.look_ahead_m
        speed, turn = state.velocity[0, ...], state.velocity[1, ...]
        if self._saturates:
            distance, distance_slope, speed_brake = _stop(speed, lag, self.spec.acceleration_limit_m_s2)
            angle, angle_slope, turn_brake = _stop(turn, lag, self.spec.turn_acceleration_limit_rad_s2)
            brake = stacked(speed_brake, turn_brake)
        else:
            distance, angle, distance_slope, angle_slope = lag * speed, lag * turn, lag, lag
            brake = 0 * state.velocity
        half = 0.5 * angle
        sinc, middle, final = _sinc(half), state.yaw + half, state.yaw + angle
        cos_m, sin_m, cos_f, sin_f = xp.cos(middle), xp.sin(middle), xp.cos(final), xp.sin(final)
        chord, bend = distance * sinc, 0.5 * distance * _sinc_slope(half)
        position = state.position_world + stacked(chord * cos_m + ahead * cos_f, chord * sin_m + ahead * sin_f)
        xv, yv = distance_slope * sinc * cos_m, distance_slope * sinc * sin_m
        xw = angle_slope * (bend * cos_m - 0.5 * chord * sin_m - ahead * sin_f)
        yw = angle_slope * (bend * sin_m + 0.5 * chord * cos_m + ahead * cos_f)
        determinant = xv * yw - xw * yv
        square = (2, 2, *xv.shape)
        jacobian = xp.reshape(stacked(xv, xw, yv, yw), square)
        inverse = xp.reshape(stacked(yw, -xw, -yv, xv) / determinant, square)
        return StoppingPoint(position, final, jacobian, inverse, brake, (state.velocity - brake) / lag)

    def rest_position(self, state: MotionState) -> Array:
        """See `MotionModel.rest_position`: the end of the arc of `stopping_point`."""
        xp = array_namespace(state.velocity)
        lag, speed, turn = self.spec.velocity_lag_s, state.velocity[0, ...], state.velocity[1, ...]
        if self._saturates:
            distance = _stop(speed, lag, self.spec.acceleration_limit_m_s2)[0]
            angle = _stop(turn, lag, self.spec.turn_acceleration_limit_rad_s2)[0]
        else:
            distance, angle = lag * speed, lag * turn
        chord, middle = distance * _sinc(0.5 * angle), state.yaw + 0.5 * angle
        return state.position_world + chord * stacked(xp.cos(middle), xp.sin(middle))

    def limit_rows(self, stop: StoppingPoint) -> tuple[Array, Array]:
        """See `MotionModel.limit_rows`: wheel (and turn-rate) limits, linear in the control velocity."""
        xp = array_namespace(stop.inverse)
        shape = (-1,) + (1,) * stop.yaw.ndim
        f, g, bound = (xp.reshape(xp.asarray(values, dtype=stop.yaw.dtype), shape) for values in self._limit_columns)
        lag, inverse, brake = self.spec.velocity_lag_s, stop.inverse, stop.brake_command
        rows = lag * (f * inverse[0, :, None, ...] + g * inverse[1, :, None, ...])
        offset = f * brake[0, ...] + g * brake[1, ...]
        return xp.concat([rows, -rows], axis=1), xp.concat([bound - offset, bound + offset], axis=0)

    def braking_share(self, stop: StoppingPoint, control_velocity_world: Array) -> Array | None:
        """See `MotionModel.braking_share`; each channel has its own limit."""
        if not self._saturates:
            return None
        xp = array_namespace(control_velocity_world)
        rate = matrix_vector(stop.inverse, control_velocity_world)
        limits = (self.spec.acceleration_limit_m_s2, self.spec.turn_acceleration_limit_rad_s2)
        share = xp.ones_like(rate[0, ...])
        for channel, limit in enumerate(limits):
            room = limit + stop.deceleration[channel, ...] * xp.sign(rate[channel, ...])
            share = xp.minimum(share, xp.maximum(room, 0 * room) / (xp.abs(rate[channel, ...]) + _TINY))
        return share

    def firm_command(self, stop: StoppingPoint, effective: Array) -> Array:
        """See `MotionModel.firm_command`: unchanged, since the margin `model` covers the difference."""
        return effective

    @cached_property
    def _limit_columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return both factors of every limit, for effective commands, and its bound; each (M,)."""
        factors, bounds = zip(*self._limits, strict=True)
        return *(np.array(factors).T / np.array(self.scale)[:, None]), np.array(bounds)

    @cached_property
    def _limits(self) -> list[tuple[tuple[float, float], float]]:
        """Return (f, bound) with |f . command| <= bound: wheels always, other limits where not implied."""
        spec = self.spec
        half_base, wheel = spec.wheel_base_m / 2, spec.wheel_limit_m_s
        limits = [((1.0, half_base), wheel), ((1.0, -half_base), wheel)]
        if spec.speed_limit_m_s < wheel * (1 - 1e-3):
            limits.append(((1.0, 0.0), spec.speed_limit_m_s))
        if spec.turn_rate_limit_rad_s < wheel / half_base * (1 - 1e-3):
            limits.append(((0.0, 1.0), spec.turn_rate_limit_rad_s))
        return limits


def _stop(rate: Array, lag: float, limit: float) -> tuple[Array, Array, Array]:
    """Return the distance to rest, its slope, and the brake command, for lag and limit of deceleration."""
    xp = array_namespace(rate)
    size, sign = xp.abs(rate), xp.sign(rate)
    fast = size > limit * lag
    way = xp.where(fast, size**2 / (2 * limit) + limit * lag**2 / 2, lag * size)
    slope = xp.where(fast, size / limit, lag + 0 * size)
    return sign * way, slope, sign * xp.where(fast, size - limit * lag, 0 * size)


def _sinc(x: Array) -> Array:
    """Return sin(x)/x by its series, error below 3e-6 for |x| <= 1."""
    y = x * x
    return 1 - y / 6 * (1 - y / 20 * (1 - y / 42))


def _sinc_slope(x: Array) -> Array:
    """Return the derivative of sin(x)/x by its series, error below 3e-5 for |x| <= 1."""
    y = x * x
    return -x / 3 * (1 - y / 10 * (1 - y / 28))
