"""Residual motion of a robot: what its motion model does not explain, as a random process beside the model.

The errors of the velocity along, across and in yaw are first-order Gauss-Markov processes (Ornstein-Uhlenbeck; Maybeck,
Stochastic models, estimation and control, vol. 1, 1979, section 4.11) whose standard deviation grows with the robot's
own speed or turn rate, and with its change: a command that acts earlier or later moves the robot by so much more or
less. The error of a measured pose is white. `testudo identify` finds the numbers; a robot file without
`[motion_noise]` has no process, and nothing is assumed for it.

Every function takes standard normal numbers instead of a generator, so that one body serves NumPy and JAX.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

from testudo_hardware.arrays import Array, array_namespace, stacked
from testudo_hardware.motion.motion_state import MotionState, length
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec

ALONG, ACROSS, UP, TURN = "along", "across", "up", "turn"
CHANNEL_PARTS = ("deviation", "share", "timing", "correlation")
"""Endings of the keys of a channel, in the order of `NoiseChannel`."""


@dataclass(frozen=True)
class NoiseChannel:
    """Error of one velocity: standard deviation deviation + share * |rate| + timing * |change of the rate|."""

    deviation: float  # [m/s] or [rad/s]: at rest
    share: float  # [1]: of the robot's own rate, the speed or the turn rate
    timing_s: float  # [s]: of the rate's change per second: the error of the time at which a command acts
    correlation_s: float  # [s]: time constant of its exponential correlation

    def deviation_at(self, rate: Array, change: Array) -> Array:
        """Return the standard deviation (...) at the size of the rate (...) and of its change per second (...)."""
        return self.deviation + self.share * rate + self.timing_s * change


@dataclass(frozen=True)
class MotionNoise:
    """The process of one robot; C = D + 1 channels: along, across (drone: and up), turn.

    Along and across are in the body of a differential drive, and the world's x and y of other kinds.
    """

    channels: tuple[NoiseChannel, ...]
    pose_position_m: float  # standard deviation of one measured coordinate
    pose_yaw_rad: float  # standard deviation of one measured heading
    wheeled: bool  # a differential drive

    @classmethod
    def from_spec(cls, spec: RobotSpec) -> Self | None:
        """Return the process of a robot file; None where the file has no `[motion_noise]`."""
        return cls._of({key: number.value for key, number in spec.motion_noise.items()}, spec)

    @classmethod
    def upper_ends(cls, spec: RobotSpec) -> Self | None:
        """Return the process with the upper end of each interval; None where the file has no `[motion_noise]`."""
        return cls._of({key: number.high for key, number in spec.motion_noise.items()}, spec)

    @classmethod
    def _of(cls, numbers: Mapping[str, float], spec: RobotSpec) -> Self | None:
        """Return the process of numbers by `motion_noise.key`; None without any."""
        if not numbers:
            return None
        value = {key.removeprefix("motion_noise."): number for key, number in numbers.items()}
        channels = tuple(
            NoiseChannel(*(value[f"{name}_{part}"] for part in CHANNEL_PARTS)) for name in channel_names(spec)
        )
        return cls(channels, value["pose_position"], value["pose_yaw"], spec.kind == DIFFERENTIAL_DRIVE)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the channels."""
        return (ALONG, ACROSS, TURN) if len(self.channels) == 3 else (ALONG, ACROSS, UP, TURN)

    def silent(self) -> Self:
        """Return the process without any noise: the negative control of its coverage."""
        still = tuple(replace(each, deviation=0.0, share=0.0, timing_s=0.0) for each in self.channels)
        return replace(self, channels=still, pose_position_m=0.0, pose_yaw_rad=0.0)


def channel_names(spec: RobotSpec) -> tuple[str, ...]:
    """Return the names of the channels of a robot, in the order of `MotionNoise.channels`."""
    return (ALONG, ACROSS, TURN) if spec.dimension == 2 else (ALONG, ACROSS, UP, TURN)


def integral_deviation_s(time_s: float, correlation_s: float) -> float:
    """Return the standard deviation [s] of the integral of a channel's process of unit variance over a time.

    Maybeck, section 4.11: the time itself while that is short beside the correlation, then its square root. It is
    concave in the time.
    """
    ratio = time_s / correlation_s
    if ratio < 1e-3:  # the first terms of the series: the difference below would be one of nearly equal numbers
        return time_s * (1 - ratio / 6)
    return correlation_s * math.sqrt(2 * (ratio + math.expm1(-ratio)))


def integral_tangent_s(time_s: float, correlation_s: float) -> tuple[float, float]:
    """Return start [s] and slope [1] of the tangent to `integral_deviation_s`: a line that it never exceeds."""
    deviation_s = integral_deviation_s(time_s, correlation_s)
    slope = -correlation_s * math.expm1(-time_s / correlation_s) / deviation_s
    return deviation_s - slope * time_s, slope


def advance(noise: MotionNoise, process: Array, normal: Array, period_s: Array | float) -> Array:
    """Return the process (C, ...) after a period, exact for any length; at rest it has unit variance.

    ``normal`` (C, ...) are standard normal numbers; the first process is such numbers themselves.
    """
    return stacked(
        *(
            advance_channel(channel, process[k, ...], normal[k, ...], period_s)
            for k, channel in enumerate(noise.channels)
        )
    )


def advance_channel(channel: NoiseChannel, process: Array, normal: Array, period_s: Array | float) -> Array:
    """Return the process (...) of one channel after a period; see `advance`."""
    xp = array_namespace(process)
    kept = xp.exp(-(0 * process + period_s) / channel.correlation_s)
    return kept * process + xp.sqrt(1 - kept * kept) * normal


def noise_path(noise: MotionNoise, normal: Array, period_s: float) -> Array:
    """Return the process (C, T, ...) at T times of a period from standard normal numbers (C, T, ...)."""
    return array_namespace(normal).concat(
        [process[:, None, ...] for process in _processes(noise, normal, period_s)], axis=1
    )


def _processes(noise: MotionNoise, normal: Array, period_s: float) -> Iterator[Array]:
    """Return the process (C, ...) at each time in turn."""
    process = normal[:, 0, ...]
    yield process
    for k in range(1, normal.shape[1]):
        process = advance(noise, process, normal[:, k, ...], period_s)
        yield process


def velocity_error(noise: MotionNoise, process: Array, velocity: Array, acceleration: Array) -> Array:
    """Return the errors (C, ...) of the velocities [m/s], [rad/s] for a process (C, ...).

    ``velocity`` (D, ...) is that of `MotionState`, ``acceleration`` (D, ...) its change per second in the model.
    """
    return velocity_deviation(noise, velocity, acceleration) * process


def velocity_deviation(noise: MotionNoise, velocity: Array, acceleration: Array) -> Array:
    """Return the standard deviations (C, ...) of the velocities' errors [m/s], [rad/s]; see `velocity_error`."""
    speeds, changes = (channel_rates(noise, rates) for rates in (velocity, acceleration))
    return stacked(*(channel.deviation_at(speeds[k, ...], changes[k, ...]) for k, channel in enumerate(noise.channels)))


def channel_rates(noise: MotionNoise, velocity: Array) -> Array:
    """Return the size (C, ...) of the rate with which each channel's deviation grows, for velocities (D, ...)."""
    xp = array_namespace(velocity)
    if noise.wheeled:
        speed, turning = xp.abs(velocity[0, ...]), xp.abs(velocity[1, ...])
        return stacked(speed, speed, turning)
    speed = length(velocity)
    return stacked(*[speed] * (len(noise.channels) - 1), 0 * speed)


def displace(noise: MotionNoise, state: MotionState, error: Array, period_s: Array | float) -> MotionState:
    """Return a state after a step of the model, moved by the errors (C, ...) of its velocity over that step.

    The velocity of the state stays that of the model: the errors have their own correlation.
    """
    xp = array_namespace(error)
    yaw = state.yaw + period_s * error[-1, ...]
    way = period_s * error[:-1, ...]
    if noise.wheeled:
        middle = (state.yaw + yaw) / 2
        cos, sin = xp.cos(middle), xp.sin(middle)
        way = stacked(cos * way[0, ...] - sin * way[1, ...], sin * way[0, ...] + cos * way[1, ...])
    return replace(state, position_world=state.position_world + way, yaw=yaw)


def sampled_path(
    noise: MotionNoise, velocity: Array, yaw: Array, normal: Array, period_s: float
) -> tuple[Array, Array]:
    """Return sampled positions (D, T + 1, ...) [m] from the origin and headings (T + 1, ...) [rad].

    ``velocity`` (D, T + 1, ...) is that of the model, as in `MotionState`, at the ends of T periods; ``yaw`` (...) the
    heading at the start; ``normal`` (C, T, ...) are standard normal numbers. The batch axes broadcast.
    """
    xp = array_namespace(normal)
    before, after = velocity[:, :-1, ...], velocity[:, 1:, ...]
    mean = (before + after) / 2
    error = velocity_error(noise, noise_path(noise, normal, period_s), mean, (after - before) / period_s)
    turning = error[-1, ...] + (mean[1, ...] if noise.wheeled else 0.0)
    start = (yaw + 0 * turning[0, ...])[None, ...]
    heading = xp.concat([start, start + period_s * xp.cumulative_sum(turning, axis=0)], axis=0)
    if noise.wheeled:
        middle = (heading[1:, ...] + heading[:-1, ...]) / 2
        cos, sin = xp.cos(middle), xp.sin(middle)
        ahead, left = mean[0, ...] + error[0, ...], error[1, ...]
        moving = stacked(cos * ahead - sin * left, sin * ahead + cos * left)
    else:
        moving = mean + error[:-1, ...]
    way = period_s * xp.cumulative_sum(moving, axis=1)
    return xp.concat([0 * way[:, :1, ...], way], axis=1), heading


def measured_pose(noise: MotionNoise, position_world: Array, yaw: Array, normal: Array) -> tuple[Array, Array]:
    """Return a measured position (D, ...) [m] and heading (...) [rad] of a pose; ``normal`` (D + 1, ...)."""
    return position_world + noise.pose_position_m * normal[:-1, ...], yaw + noise.pose_yaw_rad * normal[-1, ...]
