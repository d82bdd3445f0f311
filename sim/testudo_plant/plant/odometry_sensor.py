"""Simulates odometry with noise and latency; records latencies of commands, contacts and separations."""

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from testudo_hardware.errors import TestudoError
from testudo_hardware.frames import PlanarTransform, rotate_horizontal
from testudo_hardware.schema import DIFFERENTIAL_DRIVE, HOLONOMIC
from testudo_hardware.spec import RobotSpec
from testudo_plant.worlds.world import Contact, RobotPose


@dataclass(frozen=True)
class OdometryModel:
    """Rate, transport and noise.

    Raises:
        TestudoError: a rate that is not positive, or latencies out of order.
    """

    rate_hz: float = 60.0
    latency_low_s: float = 0.02
    latency_high_s: float = 0.06
    speed_sigma_m_s: float = 0.005
    turn_rate_sigma_rad_s: float = 0.02
    position_sigma_m: float | None = None  # of each coordinate; None: a third of the error bound of the robot
    yaw_sigma_rad: float | None = None  # the same of the heading
    drift: float = 0.0
    """Largest error of wheel odometry as a share of way and turn; each robot draws its own, which also scales its
    velocities."""

    def __post_init__(self) -> None:
        if not (self.rate_hz > 0 and 0 <= self.latency_low_s <= self.latency_high_s):
            raise TestudoError(
                f"odometry: found {self.rate_hz} Hz and a latency of {self.latency_low_s} to "
                f"{self.latency_high_s} s, expected a positive rate and 0 <= low <= high"
            )


@dataclass(frozen=True)
class OdometrySample:
    """One measurement and its arrival time."""

    stamp_s: float  # time of the measurement [s]
    due_s: float  # time of arrival [s]
    position_world: tuple[float, ...]  # (D,) [m]
    yaw: float  # [rad] in [-pi, pi]
    velocity: tuple[float, ...]
    """(D,): (forward [m/s], turn rate [rad/s]) in the body, or a velocity [m/s] in the world."""
    reckoned: PlanarTransform | None = None
    """Where the wheels say that the robot is, from its place at the start; None for a robot that flies."""


class WheelOdometry:
    """Dead reckoning of one robot on the ground: smooth, with errors that grow with the way and are never corrected."""

    def __init__(self, drift: float, rng: np.random.Generator) -> None:
        """Start at the place of the first pose; ``drift`` bounds the errors of way and turn, which are drawn here."""
        self.way_scale, self.turn_scale = (1 + drift * rng.uniform(-1, 1, 2)).tolist()
        self._before: PlanarTransform | None = None
        self._reckoned = PlanarTransform((0.0, 0.0), 0.0)

    def move(self, pose: RobotPose) -> PlanarTransform:
        """Return where the wheels say that a robot at a pose is, from its start."""
        now = PlanarTransform(pose.position_world[:2], pose.yaw)
        step = (self._before or now).inverse().then(now)
        way = tuple(self.way_scale * part for part in step.position)
        self._before, self._reckoned = now, self._reckoned.then(PlanarTransform(way, self.turn_scale * step.yaw))
        return self._reckoned


class OdometrySensor:
    """The samples of one robot, or of a box as of one.

    The latency is uniform over its interval and changes by a random walk that is reflected at both ends. Its steps stay
    below the sampling period, so that no sample overtakes another. (Independent latencies in a queue would be longer
    than uniform.)
    """

    def __init__(
        self, spec: RobotSpec, model: OdometryModel, rng: np.random.Generator, start_s: float, phase: float
    ) -> None:
        """Start; the first sample is at ``start_s`` plus the fraction ``phase`` of a period."""
        self._period_s = 1 / model.rate_hz
        self._model, self._rng = model, rng
        size = spec.dimension
        turns = spec.kind == DIFFERENTIAL_DRIVE
        velocity = (model.speed_sigma_m_s, model.turn_rate_sigma_rad_s) if turns else (model.speed_sigma_m_s,) * size
        place = spec.position_error_m / 3 if model.position_sigma_m is None else model.position_sigma_m
        turn = spec.yaw_error_rad / 3 if model.yaw_sigma_rad is None else model.yaw_sigma_rad
        self._sigma = np.array([place] * size + [turn, *velocity])
        self._wheels = WheelOdometry(model.drift, rng) if size == 2 and model.drift else None
        self._turns = turns
        self._size, self._slides = size, spec.kind == HOLONOMIC
        self._next_s = start_s + phase * self._period_s
        self._latency_s = rng.uniform(model.latency_low_s, model.latency_high_s)
        self._waiting: deque[OdometrySample] = deque()

    def wants(self, now_s: float) -> bool:
        """Return whether a measurement is due at ``now_s`` [s]."""
        return now_s >= self._next_s

    def measure(self, now_s: float, pose: RobotPose) -> None:
        """Take a sample of ``pose`` at ``now_s`` [s]."""
        while self._next_s <= now_s:
            self._next_s += self._period_s
        noise = self._sigma * self._rng.standard_normal(self._sigma.size)
        velocity = np.array(pose.velocity)
        reckoned = None
        if self._wheels is not None:
            reckoned = self._wheels.move(pose)
            velocity = velocity * ((self._wheels.way_scale, self._wheels.turn_scale) if self._turns else 1.0)
        if self._slides:  # wheels measure the twist in the body; a yaw error rotates it in the world
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
                reckoned,
            )
        )
        low, high = self._model.latency_low_s, self._model.latency_high_s
        reach = min(0.9 * self._period_s, high - low)
        moved = self._latency_s + self._rng.uniform(-reach, reach)
        if moved < low:
            moved = 2 * low - moved
        elif moved > high:
            moved = 2 * high - moved
        self._latency_s = moved

    def take(self, now_s: float) -> tuple[OdometrySample, ...]:
        """Return the samples that arrived by ``now_s`` and were not taken yet, oldest first."""
        taken = []
        while self._waiting and self._waiting[0].due_s <= now_s:
            taken.append(self._waiting.popleft())
        return tuple(taken)


_KEPT = 64  # odometry messages that are remembered; more than any command is late


class LatencyMeter:
    """Times from the sending of an odometry message to the arrival of the command of the tick that it began.

    A tick begins on the arrival of odometry, so that it is the newest one sent before the command's stamp. A tick that
    began alone counts from the newest one, too, and so longer.
    """

    def __init__(self, warm_up_s: float) -> None:
        self._warm_up_s = warm_up_s
        self._sent_s: deque[float] = deque(maxlen=_KEPT)
        self._first_s: float | None = None
        self._found: list[float] = []

    def odometry(self, now_s: float) -> None:
        """Note that odometry is sent."""
        self._sent_s.append(now_s)

    def command(self, stamp_s: float, received_s: float) -> None:
        """Note that a command of this stamp arrived; the first seconds, of warming up, do not count."""
        if self._first_s is None:
            self._first_s = received_s
        before = bisect_right(self._sent_s, stamp_s)
        if before and received_s - self._first_s >= self._warm_up_s:
            self._found.append(received_s - self._sent_s[before - 1])

    def summary(self) -> dict[str, float | int]:
        """Return the count, and median, 99th percentile and worst [s] where there is any."""
        if not self._found:
            return {"commands": 0}
        times = np.array(self._found)
        return {
            "commands": len(times),
            "p50_s": float(np.median(times)),
            "p99_s": float(np.percentile(times, 99)),
            "worst_s": float(times.max()),
        }


@dataclass(frozen=True)
class ContactEvent:
    """A contact from its first to its last state."""

    time_s: float  # start time
    first: str
    second: str  # another robot, `wall_x_low` and the like, or `floor`
    depth_m: float  # greatest overlap so far
    until_s: float  # time of the last overlap


@dataclass(frozen=True)
class Separation:
    """The smallest distance of the centres of two robots."""

    distance_m: float
    first: str
    second: str
    time_s: float


class ContactWatch:
    """Records contacts and the smallest separation of each pair of robots."""

    def __init__(self, pair_names: Iterable[tuple[str, str]]) -> None:
        self._pair_names = tuple(pair_names)
        self._closest_m = np.full(len(self._pair_names), math.inf)
        self._closest_s = np.full(len(self._pair_names), math.nan)
        self._open: dict[tuple[str, str], int] = {}
        self._events: list[ContactEvent] = []
        self.states_in_contact = 0

    @property
    def events(self) -> tuple[ContactEvent, ...]:
        """Return all contacts in order of their start."""
        return tuple(self._events)

    @property
    def separations(self) -> tuple[Separation, ...]:
        """Return the smallest separation of each pair, smallest first."""
        found = zip(self._closest_m.tolist(), self._pair_names, self._closest_s.tolist(), strict=True)
        return tuple(Separation(distance, *names, time) for distance, names, time in sorted(found))

    @property
    def minimum_separation_m(self) -> float:
        """Return the smallest distance of the centres of two robots; infinite for a single robot."""
        return float(self._closest_m.min(initial=math.inf))

    def look(self, time_s: float, contacts: tuple[Contact, ...], distances_m: np.ndarray) -> None:
        """Add one state: its contacts and the distances (P,) [m] of the pairs."""
        closer = distances_m < self._closest_m
        if closer.any():
            self._closest_m[closer] = distances_m[closer]
            self._closest_s[closer] = time_s
        if not contacts:
            self._open.clear()
            return
        self.states_in_contact += 1
        still = {}
        for contact in contacts:
            pair = (contact.first, contact.second)
            index = self._open.get(pair)
            if index is None:
                index = len(self._events)
                self._events.append(ContactEvent(time_s, *pair, contact.depth_m, time_s))
            else:
                event = self._events[index]
                self._events[index] = replace(event, depth_m=max(event.depth_m, contact.depth_m), until_s=time_s)
            still[pair] = index
        self._open = still
