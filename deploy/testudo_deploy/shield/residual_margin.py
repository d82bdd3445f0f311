"""How far the residual motion of a robot file, `[motion_noise]`, can move a robot beside its prediction.

The one place from which layer 1, stop tubes, contracts, `testudo inspect` and the gap report take it; zero for a file
without the table. The derivation is in docs/shield.md, "Residual motion".

Assumed of each channel: over any time, it displaces the robot by at most `BOUND` standard deviations of what the
process of the file does in that time, at the largest rates that the file allows and the upper ends of its intervals.
"""

import math
from dataclasses import dataclass

import numpy as np

from testudo_hardware.motion.motion_model import brake_time_s
from testudo_hardware.motion.motion_noise import (
    MotionNoise,
    NoiseChannel,
    channel_rates,
    integral_deviation_s,
    integral_tangent_s,
)
from testudo_hardware.schema import DIFFERENTIAL_DRIVE, VELOCITY_POINT
from testudo_hardware.spec import RobotSpec

BOUND = 4.0
"""Standard deviations of a displacement that are taken as its bound: a Gaussian exceeds them in one of 16,000
independent times, and three, the bound of a pose's errors, in one of 370."""
RESIDUAL, RESIDUAL_HELD = "residual motion", "residual motion held"
"""Names of the margin terms: beside a prediction (layers 1 and 2), and while a command is held (layer 1)."""
_LARGEST_TURN = 2.0  # a turn by any angle moves a place by at most twice its distance


@dataclass(frozen=True)
class ResidualLine:
    """Start and rate of a line over time that residual motion never exceeds, in each channel (D,) of a command.

    A sum of differences from the commands, from any moment on, is compared with such a line in steps.
    """

    start: tuple[float, ...]  # [m], [rad]
    rate: tuple[float, ...]  # [m/s], [rad/s]


@dataclass(frozen=True)
class _Channel:
    """One channel of the process with what the robot can do in it; velocities m/s or rad/s."""

    noise: NoiseChannel
    rate: float  # largest speed or turn rate
    limit: float  # largest change of it per second
    stop_s: float  # way to rest over the rate

    def way(self, time_s: float, moving_s: float, change: float = math.inf) -> float:
        """Return the bound of its displacement [m] or [rad] over a time.

        A rate that is at most r, with an integral of r times m, displaces most when it is r for a time m and zero
        before and after. ``moving_s`` is that m of the rate; ``change`` is the sum of all changes of the rate, if
        something bounds it.
        """
        changing_s = min(time_s, change / self.limit) if self.limit else 0.0

        def integral_s(lasts_s: float) -> float:
            return integral_deviation_s(lasts_s, self.noise.correlation_s)

        return BOUND * (
            self.noise.deviation * integral_s(time_s)
            + self.noise.share * self.rate * integral_s(moving_s)
            + self.noise.timing_s * self.limit * integral_s(changing_s)
        )

    def line(self, touches_s: float) -> tuple[float, float]:
        """Return start and rate of the line that touches the bound of its displacement at a time."""
        largest = BOUND * self.noise.deviation_at(self.rate, self.limit)
        start_s, slope = integral_tangent_s(touches_s, self.noise.correlation_s)
        return largest * start_s, largest * slope


def residual_way_m(spec: RobotSpec, ahead_s: float, ahead_m: float = 0.0) -> float:
    """Return how far the residual motion moves a place from a measured pose until the robot rests [m].

    Args:
        spec: the robot.
        ahead_s: longest time from the pose until the robot brakes: pose age, delay, and the hold of the command.
        ahead_m: distance of the place ahead of the robot.
    """
    channels = _channels(spec)
    if not channels:
        return 0.0
    rest_s = ahead_s + float(brake_time_s(spec, np.array(channels[0].rate)))
    # until the command acts the rate may change at its limit; then the command reverses it, and the brake stops it
    before_s = max(ahead_s - spec.hold_s - spec.coast_s, 0.0)
    ways = [each.way(rest_s, ahead_s + each.stop_s, each.limit * before_s + 3 * each.rate) for each in channels]
    return _place_m(spec, ways, ahead_m + channels[0].rate * (ahead_s + channels[0].stop_s))


def residual_drift_m(spec: RobotSpec, time_s: float, ahead_m: float = 0.0) -> float:
    """Return how far the residual motion moves the place of rest of a driving robot in a time [m]."""
    channels = _channels(spec)
    if not channels:
        return 0.0
    ways = [each.way(time_s, time_s) for each in channels]
    return _place_m(spec, ways, ahead_m + channels[0].rate * channels[0].stop_s)


def residual_line(spec: RobotSpec, touches_s: float) -> ResidualLine:
    """Return the line over the residual motion of each channel of a command that is tight at a time.

    The way ahead of a differential drive is measured along a fixed direction: its line holds for both axes together.
    """
    channels = _channels(spec)
    if not channels:
        return ResidualLine((0.0,) * spec.dimension, (0.0,) * spec.dimension)
    starts, rates = zip(*(each.line(touches_s) for each in channels), strict=True)
    if spec.kind == DIFFERENTIAL_DRIVE:
        return ResidualLine((math.hypot(*starts[:2]), starts[2]), (math.hypot(*rates[:2]), rates[2]))
    return ResidualLine(starts[: spec.dimension], rates[: spec.dimension])


def longest_ahead_s(spec: RobotSpec) -> float:
    """Return the longest time from a pose until the robot brakes: pose age, delay, hold, and coasting if it coasts."""
    return spec.pose_max_age_s + spec.quantities["dynamics.command_delay"].high + spec.hold_s + spec.coast_s


def fastest_m_s(spec: RobotSpec) -> float:
    """Return the highest mean speed of a control point since an old message, residual motion included.

    What a displacement grows by after the time that margins contain is less than its mean until then: it is concave.
    """
    if not spec.motion_noise:
        return spec.control_point_speed_m_s
    time_s = longest_ahead_s(spec) + spec.control_period_s
    ahead_m = spec.look_ahead_m if spec.kind == DIFFERENTIAL_DRIVE else 0.0
    return spec.control_point_speed_m_s + residual_drift_m(spec, time_s, ahead_m) / time_s


def _place_m(spec: RobotSpec, ways: list[float], ahead_m: float) -> float:
    """Return how far displacements of the channels move a place so far ahead [m]; a drone's heading moves nothing.

    The channels are independent, so that the squares of their deviations add up in every direction.
    """
    turned = 0.0 if spec.kind == VELOCITY_POINT else min(ways[-1], _LARGEST_TURN)
    return math.hypot(*ways[:-1], turned * ahead_m)


def _channels(spec: RobotSpec) -> list[_Channel]:
    """Return the channels of a robot file in the order of `MotionNoise.channels`; none without the table."""
    noise = MotionNoise.upper_ends(spec)
    if noise is None:
        return []
    wheeled, quantities = spec.kind == DIFFERENTIAL_DRIVE, spec.quantities
    speed = spec.wheel_limit_m_s if wheeled else spec.speed_limit_m_s
    top, limits = np.zeros(spec.dimension), np.zeros(spec.dimension)
    top[0], limits[0] = quantities["dynamics.speed_scale"].high * speed, spec.acceleration_limit_m_s2
    if wheeled:
        top[1] = quantities["dynamics.turn_scale"].high * spec.turn_rate_limit_rad_s
        limits[1] = spec.turn_acceleration_limit_rad_s2
    lag_s = quantities["dynamics.velocity_lag"].high
    rows = zip(noise.channels, channel_rates(noise, top), channel_rates(noise, limits), strict=True)
    return [
        _Channel(each, float(rate), float(limit), _stop_s(float(rate), float(limit), lag_s))
        for each, rate, limit in rows
    ]


def _stop_s(rate: float, limit: float, lag_s: float) -> float:
    """Return the way to rest over the rate [s] (`margin_terms.stopping_way_m`, with the upper end of the lag)."""
    return lag_s if rate <= limit * lag_s else rate / (2 * limit) + limit * lag_s**2 / (2 * rate)
