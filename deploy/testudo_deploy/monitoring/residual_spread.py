"""How far the residual motion of a robot file, `[motion_noise]`, may spread what the estimates of a robot compare.

A file without the table spreads nothing. All numbers are variances at the upper ends of the file's intervals; how often
they may be exceeded is that of the Gaussian at `SURE` standard deviations.
"""

import math

import numpy as np

from testudo_hardware.motion.motion_noise import MotionNoise, NoiseChannel, integral_deviation_s, velocity_deviation
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec

SURE = 4.0  # standard deviations of an estimate that do not count


class WaySpread:
    """Variance of the displacement of one piece of the path; C channels: along, across (drone: and up), turn."""

    def __init__(self, spec: RobotSpec) -> None:
        self._noise = MotionNoise.upper_ends(spec)
        channels = self._noise.channels if self._noise else ()
        self._correlation_s = np.array([channel.correlation_s for channel in channels])
        self._step = np.zeros(len(channels))
        self.begin()

    @property
    def moves(self) -> bool:
        """Return whether the file has the table: without it nothing is to follow."""
        return self._noise is not None

    def begin(self) -> None:
        """Begin a piece."""
        # of the displacement, and its covariance with the process
        self._variance, self._covariance = np.zeros_like(self._step), np.zeros_like(self._step)

    def follow(self, elapsed_s: float, velocity: np.ndarray, change: np.ndarray) -> None:
        """Add a step with a velocity (D,) and its change per second (D,)."""
        if self._noise is None:
            return
        self._step = elapsed_s * np.asarray(velocity_deviation(self._noise, velocity, change))
        self._variance = self._variance + 2 * self._step * self._covariance + self._step**2
        self._covariance = np.exp(-elapsed_s / self._correlation_s) * (self._covariance + self._step)

    @property
    def step_m2(self) -> float:
        """Return the variance of the last step, all axes together."""
        return float(np.sum(self._step[:-1] ** 2))

    @property
    def way_m2(self) -> tuple[float, float]:
        """Return the variance of the piece along the axis where it is largest, and of all axes together."""
        ways = self._variance[:-1]
        return (float(np.max(ways)), float(np.sum(ways))) if ways.size else (0.0, 0.0)

    @property
    def turn_rad2(self) -> tuple[float, float]:
        """Return the variance of the angle turned in the piece, twice: it has one axis."""
        turned = float(self._variance[-1]) if self._variance.size else 0.0
        return turned, turned


def pieces_in_one(spec: RobotSpec, piece_s: float) -> float:
    """Return how many pieces say as much of a mean as one with errors of its own would: 1 where errors are independent.

    The variance of the mean of a first-order Gauss-Markov sequence of correlation rho is (1 + rho) / (1 - rho) times
    that of independent values (Bartlett 1946). At most a million, of errors that stay.
    """
    noise = MotionNoise.upper_ends(spec)
    if noise is None:
        return 1.0
    rho = max(math.exp(-piece_s / channel.correlation_s) for channel in noise.channels)
    return (1 + rho) / max(1 - rho, 1e-6)


def largest_mean_square(count: float) -> float:
    """Return the mean square of ``count`` standard normal numbers that is exceeded as rarely as `SURE` deviations.

    The quantile of chi-square over its degrees of freedom, by Wilson and Hilferty (1931).
    """
    free = 2 / (9 * max(count, 1.0))
    return (1 - free + SURE * math.sqrt(free)) ** 3


class VelocityNoise:
    """Variance of the residual motion in a measured velocity, and what it does to the comparison of lags and delays."""

    def __init__(self, spec: RobotSpec, response_s: float, memory_s: float) -> None:
        """Begin with the time that a response takes and the one for which measurements are kept."""
        self._noise, self._response_s = MotionNoise.upper_ends(spec), response_s
        channels = self._noise.channels if self._noise else ()
        # of the channels those of a command: forward and turning, or along the axes of the world
        self._commanded = (0, len(channels) - 1) if spec.kind == DIFFERENTIAL_DRIVE else range(len(channels) - 1)
        self._channels = [channels[k] for k in self._commanded] if channels else []
        self.near_s = max((SURE * _mean_timing_s(channel, memory_s) for channel in self._channels), default=0.0)
        """By how much the mean of lag and delay over the memory may differ from those of the file."""

    @property
    def moves(self) -> bool:
        """Return whether the file has the table: without it every variance is zero."""
        return self._noise is not None

    def variance(self, velocity: np.ndarray, change: np.ndarray) -> np.ndarray:
        """Return the variance (D,) of the residual velocity at a velocity (D,) and its change per second (D,)."""
        if self._noise is None:
            return np.zeros(len(velocity))
        return np.asarray(velocity_deviation(self._noise, velocity, change))[list(self._commanded)] ** 2

    def inflation(self, share: np.ndarray, elapsed_s: float) -> np.ndarray:
        """Return by how much (D,) a squared error counts too much, as neighbours in time share their errors.

        ``share`` (D,) is that of the residual motion in the variance of the errors. A response tells in the frequencies
        up to 1 / ``response_s``; there the residual's spectral density is on average 2 response_s atan(correlation /
        response_s) over that of white noise with the same variance at the sampling time ``elapsed_s``.
        """
        if not self._channels:
            return np.ones(len(share))
        dense = [
            2 * self._response_s * math.atan(channel.correlation_s / self._response_s) / elapsed_s
            for channel in self._channels
        ]
        return 1 + np.clip(share, 0.0, 1.0) * (np.maximum(np.array(dense), 1.0) - 1)


def _mean_timing_s(channel: NoiseChannel, memory_s: float) -> float:
    """Return the standard deviation of the mean of a channel's error of timing over a time."""
    return channel.timing_s * integral_deviation_s(memory_s, channel.correlation_s) / memory_s
