"""Velocities of a body whose poses alone are told: a causal local fit with a known delay.

Through the newest samples, which span at least ``window_s``, a parabola in time is laid by least squares, and value
and slope are taken in the middle of the span (the first-derivative filter of Savitzky and Golay 1964, on stamps that
need not be even). Any motion of constant acceleration comes out exact there, so position, yaw and velocity belong to
one moment, and the delay is half the span: it is the age by which the result is older than the newest sample.

Gain: white noise of sigma [m] on n even samples of period T leaves sigma * sqrt(12 / (n (n^2 - 1))) / T [m/s] on the
velocity. A turn of rate w at constant speed comes out slow by the share (w * span / 2)^2 / 10.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

from testudo_hardware.frames import turned, wrapped
from testudo_hardware.links.wire import OdometryReading, PoseReading
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec

WINDOW_S = 0.06
"""Shortest span of the fit: 30 ms of delay, and 2 mm of noise at 100 Hz leave 0.04 m/s."""
NOISE_SHARE, DELAY_SHARE = 0.05, 1 / 3
"""The span grows until noise leaves this share of the top speed, or the delay takes this share of the age limit."""
_FEWEST = 3
_HELD_TURN_RATE_RAD_S = 3.5
"""Highest believed turn rate of a robot that is meant to hold its heading."""
_LARGEST_GAIN = 2.0
"""Stamps so uneven that noise grows beyond this, of the value or of the slope per half span, give no result."""
_LARGEST = 1e12


@dataclass(frozen=True)
class FilteredPose:
    """Where a robot was and how fast it moved, in the fleet's shared frame."""

    reading: OdometryReading
    """All of one moment, the stamp's: whoever counts its age has counted the delay."""
    age_s: float
    """How much older that moment is than the newest sample."""


def filter_window_s(spec: RobotSpec, rate_hz: float, sigma_m: float, max_age_s: float) -> float:
    """Return the span of the fit [s]: as short as the noise allows, at least `WINDOW_S` and three samples.

    Args:
        spec: the robot, whose top speed says how much noise is much.
        rate_hz: at which poses come.
        sigma_m: standard deviation of their noise.
        max_age_s: age at which the robot brakes.
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
    """Poses of one robot in, positions with velocities out; see the top of the file."""

    def __init__(self, spec: RobotSpec, rate_hz: float, window_s: float = WINDOW_S) -> None:
        """Begin without samples.

        Args:
            spec: the robot; its limits say how far it can come between two samples.
            rate_hz: at which poses are expected; after a gap of three periods, or of the window, the fit begins anew.
            window_s: span of the fit, see `filter_window_s`.
        """
        self._spec = spec
        self._window_s = max(window_s, (_FEWEST - 1) / rate_hz)
        self._gap_s = max(self._window_s, 3 / rate_hz)
        self._samples: deque[tuple[float, tuple[float, ...]]] = deque()
        self.refused = 0
        """Samples that were not finite, came twice, late, or from the future."""
        self.restarts = 0
        """How often the fit began anew after a gap, a jump, or a clock that was set back."""

    def take(self, pose: PoseReading, received_s: float = math.inf) -> FilteredPose | None:
        """Take a sample; returns None until the window is full again, and for a sample that is refused.

        Args:
            pose: on the steady clock.
            received_s: when it came, on the same clock; a stamp 2 ms beyond that is refused.
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
        spare_s = 1e-6  # stamps are rounded to a microsecond where they come from a clock that counts since 1970
        while len(self._samples) > _FEWEST and pose.stamp_s - self._samples[1][0] >= self._window_s - spare_s:
            self._samples.popleft()
        full = len(self._samples) >= _FEWEST and pose.stamp_s - self._samples[0][0] >= self._window_s - spare_s
        return self._fitted() if full else None

    def _jumped(self, before: tuple[float, ...], now: tuple[float, ...], elapsed_s: float) -> bool:
        """Return whether no motion that the robot is able to, and no error of its poses, leads to the new one."""
        spec = self._spec
        scale = spec.quantities["dynamics.speed_scale"].high
        wheeled = spec.kind == DIFFERENTIAL_DRIVE
        speed = scale * (max(spec.speed_limit_m_s, spec.wheel_limit_m_s) if wheeled else spec.speed_limit_m_s)
        rate = (
            spec.turn_rate_limit_rad_s * spec.quantities["dynamics.turn_scale"].high
            if wheeled
            else (_HELD_TURN_RATE_RAD_S)
        )
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
        offset = values[-1]  # far from the origin the differences keep their digits
        place, slope = weights @ (values - offset)
        *position, yaw = (place + offset).tolist()
        *velocity, turn_rate = (slope / half_s).tolist()
        channels = tuple(velocity)
        if self._spec.kind == DIFFERENTIAL_DRIVE:
            channels = (turned(velocity, -yaw)[0], turn_rate)
        return FilteredPose(OdometryReading(float(middle_s), tuple(position), wrapped(yaw), channels), float(half_s))
