"""What a robot knows of its own motion: noisy samples that arrive late and in order."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

from testudo_hardware.errors import TestudoError
from testudo_hardware.frames import rotate_horizontal
from testudo_hardware.schema import DIFFERENTIAL_DRIVE, HOLONOMIC
from testudo_hardware.spec import RobotSpec
from testudo_plant.worlds import RobotPose


@dataclass(frozen=True)
class OdometryModel:
    """Rate, transport and velocity noise.

    The noise of the pose is a third of the error bound of the robot, which is three sigma.

    Raises:
        TestudoError: a rate that is not positive, or latencies out of order.
    """

    rate_hz: float = 60.0
    latency_low_s: float = 0.02
    latency_high_s: float = 0.06
    speed_sigma_m_s: float = 0.005
    turn_rate_sigma_rad_s: float = 0.02

    def __post_init__(self) -> None:
        if not (self.rate_hz > 0 and 0 <= self.latency_low_s <= self.latency_high_s):
            raise TestudoError(
                f"odometry: found {self.rate_hz} Hz and a latency of {self.latency_low_s} to "
                f"{self.latency_high_s} s, expected a positive rate and 0 <= low <= high"
            )


@dataclass(frozen=True)
class OdometrySample:
    """One measurement and when it arrives."""

    stamp_s: float
    """Time of the measurement."""
    due_s: float
    """Time of its arrival."""
    position_world: tuple[float, ...]
    """(D,) [m]."""
    yaw: float
    """[rad] in [-pi, pi]."""
    velocity: tuple[float, ...]
    """(D,): (forward [m/s], turn rate [rad/s]) in the body, or a velocity [m/s] in the world."""


class OdometrySensor:
    """The samples of one robot.

    The latency is uniform over its interval at every sample and moves from sample to sample by a
    random walk that is reflected at both ends; its steps stay below the sampling period, so that no
    sample overtakes another. (Independent latencies in a queue would be longer than uniform.)
    """

    def __init__(
        self, spec: RobotSpec, model: OdometryModel, rng: np.random.Generator, start_s: float, phase: float
    ) -> None:
        """Begin; the first sample is the share ``phase`` of a period after ``start_s``."""
        self._period_s = 1 / model.rate_hz
        self._model, self._rng = model, rng
        size = spec.dimension
        turns = spec.kind == DIFFERENTIAL_DRIVE
        velocity = (model.speed_sigma_m_s, model.turn_rate_sigma_rad_s) if turns else (model.speed_sigma_m_s,) * size
        self._sigma = np.array([spec.position_error_m / 3] * size + [spec.yaw_error_rad / 3, *velocity])
        self._size, self._slides = size, spec.kind == HOLONOMIC
        self._next_s = start_s + phase * self._period_s
        self._latency_s = rng.uniform(model.latency_low_s, model.latency_high_s)
        self._waiting: deque[OdometrySample] = deque()

    def wants(self, now_s: float) -> bool:
        """Return whether a measurement is to be taken at ``now_s``."""
        return now_s >= self._next_s

    def measure(self, now_s: float, pose: RobotPose) -> None:
        """Take a sample of ``pose`` at ``now_s`` [s]."""
        while self._next_s <= now_s:
            self._next_s += self._period_s
        noise = self._sigma * self._rng.standard_normal(self._sigma.size)
        velocity = np.array(pose.velocity)
        if self._slides:  # its wheels tell the twist in the body, and the world's is what a wrong yaw makes of it
            wrong = noise[self._size]
            velocity = rotate_horizontal(velocity, np.cos(wrong), np.sin(wrong))
        true = np.array([*pose.position_world, pose.yaw, *velocity])
        seen = (true + noise).tolist()
        due_s = now_s + self._latency_s
        if self._waiting:  # steps of the physics shift stamps by up to a step
            due_s = max(due_s, self._waiting[-1].due_s)
        self._waiting.append(
            OdometrySample(
                now_s,
                due_s,
                tuple(seen[: self._size]),
                math.remainder(seen[self._size], math.tau),
                tuple(seen[self._size + 1 :]),
            )
        )
        self._walk()

    def take(self, now_s: float) -> tuple[OdometrySample, ...]:
        """Return the samples that arrived by ``now_s`` and were not taken yet, oldest first."""
        taken = []
        while self._waiting and self._waiting[0].due_s <= now_s:
            taken.append(self._waiting.popleft())
        return tuple(taken)

    def _walk(self) -> None:
        low, high = self._model.latency_low_s, self._model.latency_high_s
        reach = min(0.9 * self._period_s, high - low)
        moved = self._latency_s + self._rng.uniform(-reach, reach)
        if moved < low:
            moved = 2 * low - moved
        elif moved > high:
            moved = 2 * high - moved
        self._latency_s = moved
