"""Velocities from pose-only measurements: a causal local fit with a known delay.

A parabola in time is fitted by least squares to the newest samples, which span at least ``window_s``; value and slope
are taken in the middle of the span (the first-derivative filter of Savitzky and Golay 1964, also for uneven stamps).
Motion of constant acceleration is exact there, so position, yaw and velocity belong to one moment, and the delay is
half the span: the age of the result relative to the newest sample.

Gain: white noise of sigma [m] on n even samples of period T leaves sigma * sqrt(12 / (n (n^2 - 1))) / T [m/s] on the
velocity. In a turn of rate w at constant speed the speed is too low by the share (w * span / 2)^2 / 10.
"""

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

from testudo_hardware.frames import turned, wrapped
from testudo_hardware.links.wire import OdometryReading, PoseReading
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec

WINDOW_S = 0.06  # shortest span of the fit: 30 ms of delay, and 2 mm of noise at 100 Hz leave 0.04 m/s
NOISE_SHARE, DELAY_SHARE = 0.05, 1 / 3
"""The span grows until the noise is this share of the top speed, or the delay this share of the age limit."""
_FEWEST = 3
_HELD_TURN_RATE_RAD_S = 3.5  # largest plausible turn rate of a robot that holds its heading
_LARGEST_GAIN = 2.0  # largest noise gain of the value, or of the slope per half span: more uneven stamps give no result
_LARGEST = 1e12


@dataclass(frozen=True)
class FilteredPose:
    """Pose and velocity of a robot in the fleet's shared frame."""

    reading: OdometryReading  # all of the moment of its stamp, so that its age includes the delay
    age_s: float  # age of that moment relative to the newest sample


def filter_window_s(spec: RobotSpec, rate_hz: float, sigma_m: float, max_age_s: float) -> float:
    """Return the span of the fit [s]: as short as the noise allows, at least `WINDOW_S` and three samples.

    ``sigma_m`` is the standard deviation of the noise of poses, ``max_age_s`` the age at which the robot brakes.
    """
    count = max(_FEWEST, math.ceil(WINDOW_S * rate_hz - 1e-6) + 1)
    while sigma_m * _gain(count, rate_hz) > NOISE_SHARE * spec.speed_limit_m_s and (
        0.5 * count / rate_hz <= DELAY_SHARE * max_age_s + 1e-9
    ):
        count += 1
    return (count - 1) / rate_hz


def filter_delay_s(rate_hz: float, window_s: float) -> float:
    """Return the delay of the velocity of even samples at a rate [s], see the top of the file."""
    return 0.5 * (_count(rate_hz, window_s) - 1) / rate_hz


def noise_gain(rate_hz: float, window_s: float) -> float:
    """Return the velocity noise per position noise of even samples at a rate [1/s]."""
    return _gain(_count(rate_hz, window_s), rate_hz)


def _count(rate_hz: float, window_s: float) -> int:
    return max(_FEWEST, math.ceil(window_s * rate_hz - 1e-6) + 1)


def _gain(count: int, rate_hz: float) -> float:
    return math.sqrt(12 / (count * (count * count - 1))) * rate_hz


class VelocityFilter:
    """Converts poses of one robot to poses with velocities; see the top of the file."""

    def __init__(self, spec: RobotSpec, rate_hz: float, window_s: float = WINDOW_S) -> None:
        """Start without samples.

        The limits of ``spec`` bound the motion between two samples. The fit restarts after a gap of three periods of
        ``rate_hz``, or of ``window_s``, the span of the fit (`filter_window_s`).
        """
        self._spec = spec
        self._window_s = max(window_s, (_FEWEST - 1) / rate_hz)
        self._gap_s = max(self._window_s, 3 / rate_hz)
        self._samples: deque[tuple[float, tuple[float, ...]]] = deque()
        self.refused = 0
        """Samples that were not finite, repeated, late, or in the future."""
        self.restarts = 0
        """Number of restarts of the fit after a gap, a jump, or a clock that was set back."""

    def take(self, pose: PoseReading, received_s: float = math.inf) -> FilteredPose | None:
        """Take a sample; None until the window is full again, and for a sample that is refused.

        The pose is on the steady clock; a stamp 2 ms after ``received_s`` on the same clock is refused.
        """
        numbers = (pose.stamp_s, pose.yaw, *pose.position_world)
        if not all(abs(number) < _LARGEST for number in numbers) or pose.stamp_s > received_s + 0.002:
            self.refused += 1
            return None
        yaw = pose.yaw
        if self._samples:
            newest_s, newest = self._samples[-1]
            elapsed_s = pose.stamp_s - newest_s
            if -self._gap_s <= elapsed_s <= 0:
                self.refused += 1
                return None
            yaw = newest[-1] + wrapped(pose.yaw - newest[-1])
            if not 0 < elapsed_s <= self._gap_s or self._jumped(newest, (*pose.position_world, yaw), elapsed_s):
                self._samples.clear()
                self.restarts += 1
        self._samples.append((pose.stamp_s, (*pose.position_world, yaw)))
        spare_s = 1e-6  # stamps of a clock that counts since 1970 are rounded to a microsecond
        while len(self._samples) > _FEWEST and pose.stamp_s - self._samples[1][0] >= self._window_s - spare_s:
            self._samples.popleft()
        full = len(self._samples) >= _FEWEST and pose.stamp_s - self._samples[0][0] >= self._window_s - spare_s
        return self._fitted() if full else None

    def _jumped(self, before: tuple[float, ...], now: tuple[float, ...], elapsed_s: float) -> bool:
        """Return whether the step exceeds the robot's motion limits and the error of its poses."""
        spec = self._spec
        scale = spec.quantities["dynamics.speed_scale"].high
        wheeled = spec.kind == DIFFERENTIAL_DRIVE
        speed = scale * (max(spec.speed_limit_m_s, spec.wheel_limit_m_s) if wheeled else spec.speed_limit_m_s)
        rate = _HELD_TURN_RATE_RAD_S
        if wheeled:
            rate = spec.turn_rate_limit_rad_s * spec.quantities["dynamics.turn_scale"].high
        return (
            math.dist(before[:-1], now[:-1]) > speed * elapsed_s + 2 * spec.position_error_m
            or abs(now[-1] - before[-1]) > rate * elapsed_s + 2 * spec.yaw_error_rad
        )

    def _fitted(self) -> FilteredPose | None:
        stamps = np.array([stamp_s for stamp_s, _ in self._samples])
        values = np.array([numbers for _, numbers in self._samples])
        middle_s, half_s = 0.5 * (stamps[-1] + stamps[0]), 0.5 * (stamps[-1] - stamps[0])
        powers = np.vander((stamps - middle_s) / half_s, 3, increasing=True)
        weights = np.linalg.lstsq(powers, np.eye(len(stamps)), rcond=None)[0][:2]
        if max(np.linalg.norm(weights, axis=1)) > _LARGEST_GAIN:
            return None
        offset = values[-1]  # differences keep their digits far from the origin
        place, slope = weights @ (values - offset)
        *position, yaw = (place + offset).tolist()
        *velocity, turn_rate = (slope / half_s).tolist()
        channels = tuple(velocity)
        if self._spec.kind == DIFFERENTIAL_DRIVE:
            channels = (turned(velocity, -yaw)[0], turn_rate)
        return FilteredPose(OdometryReading(float(middle_s), tuple(position), wrapped(yaw), channels), float(half_s))
