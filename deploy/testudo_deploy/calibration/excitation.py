"""The plan of a calibration drive: timed commands, each with its start, which stay in the room for every robot.

The shield brakes a command to stop no harder than the robot file says. What the robot can do shows when it brakes by
itself, as in a fault: the commands fall silent, and it sends zeros. Each segment begins and ends at rest, so that
errors do not add up: before the next one the drive (`calibration_drive`) goes to its start by measured poses. A segment
is sized by the motions of robots at all ends of the file's intervals, from starts at the ends of the tolerance. Nothing
drives backwards: bumpers, scanners and cliff sensors of most bases look ahead.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from testudo_deploy.calibration.area import Room
from testudo_deploy.calibration.motion_spread import RobotSet, motions
from testudo_deploy.control.task_receiver import OLDEST_TASK_S
from testudo_deploy.guard.command_guard import HEALTHY_S
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec

LAG, DELAY = "dynamics.velocity_lag", "dynamics.command_delay"
SPEED, TURN, SLIP = "dynamics.speed_scale", "dynamics.turn_scale", "dynamics.turn_slip"
BRAKE, TURN_BRAKE = "limits.acceleration", "limits.turn_acceleration"
LONGEST_S = 300.0  # robot time of a calibration
YAW_RAD = 0.2  # tolerance of the heading at a start
_PLACE_M = 0.05  # tolerance of the place at a start, beyond a third of `sensing.position_error`
_TOP = 0.95  # share of the limits that is commanded
_SHRINK, _LEAST = 0.8, 0.2  # a segment that does not fit is driven slower, at least at this share
_STEPS_S, _CHIRP_S, _CIRCLE_S, _SPIN_S = 10.0, 8.0, 10.0, 1.2  # durations
_CIRCLE = 0.4  # share of the top turn rate on a circle
_LEVELS = np.array([1.0, 0.0, 1.0, 0.5, 1.0, 0.0, 0.5, 0.0])  # speed on a circle
_ON = 2.0  # duration of a start, in times of `_rise_s`
SILENT_S, _HEALTHY_S = OLDEST_TASK_S + 0.15, HEALTHY_S + 0.25
"""Silence after which the robot certainly brakes by itself, and sound commands after which it drives again."""


@dataclass(frozen=True)
class Segment:
    """Commands from rest to rest."""

    name: str
    tells: tuple[str, ...]  # keys of the robot file
    commands: np.ndarray = field(repr=False)
    """(2, K): forward [m/s], turn rate [rad/s], one for each control period; not a number is silence: nothing is sent,
    and the robot brakes by itself."""
    start: tuple[float, float, float] | None = None
    """x, y [m] and yaw [rad] from the centre of the area; None is any place within the room."""


@dataclass(frozen=True)
class Tolerance:
    """How far a start may be from the planned one."""

    place_m: float
    yaw_rad: float

    @classmethod
    def of(cls, spec: RobotSpec) -> "Tolerance":
        """Return the tolerance for a robot, whose places at rest are means of several poses."""
        return cls(_PLACE_M + spec.position_error_m / 3, YAW_RAD)


def excitation_plan(spec: RobotSpec, room: Room, longest_s: float = LONGEST_S) -> tuple[Segment, ...]:
    """Return the segments in their order, whose commands alone last up to ``longest_s`` [s].

    They come in rounds of all kinds, so that a drive that ends early has told something of every parameter.

    Raises:
        TestudoError: the room is too small for a segment.
    """
    fitter = _Fitter(spec, room)
    straights, brakes, circles = (
        [make(side) for side in (1, -1)] for make in (fitter.straight, fitter.brakes, fitter.circle)
    )
    eight, chirp, spin = fitter.figure_eight(), fitter.turn_chirp(), fitter.spin()
    found: list[Segment] = []
    lasts_s = 0.0
    while lasts_s < longest_s:
        number = len(found)
        odd = number % 2
        part = [*straights, *brakes, fitter.turn_steps(number), spin, *brakes, circles[odd], *brakes]
        part.append((eight, chirp)[odd])
        found += part
        lasts_s += sum(duration_s(spec, one) for one in part)
    return tuple(found)


def duration_s(spec: RobotSpec, segment: Segment) -> float:
    """Return the duration of the commands of a segment [s]."""
    return segment.commands.shape[1] * spec.control_period_s


def top_turn_rate(spec: RobotSpec) -> float:
    """Return the highest turn rate in place that a plan commands [rad/s]."""
    return _TOP * min(spec.turn_rate_limit_rad_s, 2 * spec.wheel_limit_m_s / spec.wheel_base_m)


def worst_starts(
    robots: RobotSet, start: tuple[float, float, float], yaw_rad: float
) -> tuple[RobotSet, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return every robot at a start three times: with its heading, and off by ``yaw_rad`` to either side."""
    count = len(robots.lag_s)
    tripled = robots.take(np.tile(np.arange(count), 3))
    turned = np.repeat([-yaw_rad, 0.0, yaw_rad], count)
    x, y, yaw = start
    return tripled, (np.full(3 * count, x), np.full(3 * count, y), yaw + turned)


class _Fitter:
    """Makes segments that fit a room."""

    def __init__(self, spec: RobotSpec, room: Room) -> None:
        self._spec, self._tolerance = spec, Tolerance.of(spec)
        self._room = np.array([room.half_x_m, room.half_y_m]) - self._tolerance.place_m
        self._along = 0.0 if room.half_x_m >= room.half_y_m else math.pi / 2
        self._robots = RobotSet.corners(spec)
        self._speed, self._turn = _TOP * spec.speed_limit_m_s, top_turn_rate(spec)
        self._brake = np.repeat([math.nan, 0.0], [self._ticks(SILENT_S), self._ticks(_HEALTHY_S)])
        self._rise_s = spec.velocity_lag_s + spec.speed_limit_m_s / spec.acceleration_limit_m_s2

    def straight(self, side: int) -> Segment:
        """Return a straight way through the centre at full speed, and a brake."""
        fewest = self._ticks(self._rise_s)

        def make(speed: float, count: int) -> Segment:
            shape = np.concatenate([np.ones(fewest + count - 1), self._brake])
            return self._way(side, "straight and brake", (SPEED, BRAKE, DELAY), speed, shape)

        return self._slowed("straight", lambda share: self._longest(make, share))

    def brakes(self, side: int) -> Segment:
        """Return a straight way with as many brakes from full speed as fit."""
        pulse = np.concatenate([np.ones(self._ticks(_ON * self._rise_s)), self._brake])

        def make(speed: float, count: int) -> Segment:
            tells = (BRAKE, LAG, DELAY, SPEED)
            return self._way(side, "brakes on a straight way", tells, speed, np.tile(pulse, count))

        return self._slowed("brakes", lambda share: self._longest(make, share))

    def _longest(self, make: Callable[[float, int], Segment], share: float) -> Segment | None:
        """Return the longest segment of a speed that fits; None if none does."""
        speed = share * self._speed

        def moved(count: int) -> float:
            return float(np.nan_to_num(make(speed, count).commands[0]).sum()) * self._spec.control_period_s

        if not self._fits(make(speed, 1)):
            return None
        fewest = most = 1
        while moved(most) < 2 * float(self._room.max()):
            most += 1
        while most > fewest:
            middle = (fewest + most + 1) // 2
            fewest, most = (middle, most) if self._fits(make(speed, middle)) else (fewest, middle - 1)
        return make(speed, fewest)

    def _way(self, side: int, name: str, tells: tuple[str, ...], speed: float, shape: np.ndarray) -> Segment:
        """Return a straight way whose middle is the centre; ``shape`` (K,) are shares of its speed."""
        yaw = self._along if side > 0 else self._along + math.pi
        brakes = np.count_nonzero(np.diff(np.isnan(shape).astype(int)) > 0)
        moving_s = float(np.nansum(shape)) * self._spec.control_period_s + brakes * OLDEST_TASK_S
        half_m = 0.5 * speed * moving_s
        start = (-half_m * math.cos(yaw), -half_m * math.sin(yaw), yaw)
        return Segment(name, tells, np.stack([speed * shape, 0.0 * shape]), start)

    def spin(self) -> Segment:
        """Return full turns in place to either side, each with a brake."""
        turn = np.concatenate([sign * np.concatenate([np.ones(self._ticks(_SPIN_S)), self._brake]) for sign in (1, -1)])
        commands = np.stack([0.0 * turn, self._turn * turn])
        return Segment("turns in place and brakes", (TURN_BRAKE, TURN), commands)

    def circle(self, side: int) -> Segment:
        """Return a circle whose speed jumps, also to zero."""
        turn, spec = side * _CIRCLE * self._turn, self._spec
        ticks = self._ticks(_CIRCLE_S / len(_LEVELS))

        def driven(share: float) -> Segment:
            speed = share * min(self._speed, _TOP * spec.wheel_limit_m_s - abs(turn) * spec.wheel_base_m / 2)
            forward = np.repeat(_LEVELS * speed, ticks)
            start = (0.0, -side * float(np.mean(_LEVELS)) * speed / abs(turn), 0.0)
            commands = np.stack([forward, np.full_like(forward, turn)])
            return Segment("circle with jumps of speed", (LAG, DELAY, SPEED, BRAKE, SLIP), commands, start)

        return self._slowed("circle", driven)

    def figure_eight(self) -> Segment:
        """Return two full circles, one to each side."""
        turn = 0.6 * self._turn
        ticks = self._ticks(2 * math.pi / turn)

        def driven(share: float) -> Segment:
            speed = share * self._speed * 0.6
            commands = np.concatenate([_constant(speed, turn, ticks), _constant(speed, -turn, ticks)], axis=1)
            return Segment("figure eight", (SPEED, TURN, SLIP), commands, (0.0, 0.0, self._along + math.pi / 2))

        return self._slowed("figure eight", driven)

    def turn_steps(self, seed: int) -> Segment:
        """Return jumps of the turn rate in place: half of them so small that the acceleration is not limited."""
        rng, spec = np.random.default_rng([seed, 31]), self._spec
        small = min(0.4 * spec.turn_acceleration_limit_rad_s2 * spec.velocity_lag_s, self._turn)
        pieces, sign = list[np.ndarray](), 1
        while sum(piece.shape[1] for piece in pieces) < self._ticks(_STEPS_S):
            size = small if rng.random() < 0.7 else self._turn
            pieces.append(_constant(0.0, sign * size, self._ticks(rng.uniform(0.4, 1.0))))
            sign = -sign
        return Segment("jumps of the turn rate", (LAG, DELAY, TURN, TURN_BRAKE), np.concatenate(pieces, axis=1))

    def turn_chirp(self) -> Segment:
        """Return a sine of the turn rate in place whose frequency rises beyond that of the lag."""
        spec = self._spec
        times = np.arange(self._ticks(_CHIRP_S)) * spec.control_period_s
        top_hz = min(1.0 / (math.pi * spec.velocity_lag_s), 0.2 / spec.control_period_s)
        hertz = 0.2 * (top_hz / 0.2) ** (times / _CHIRP_S)
        phase = 2 * math.pi * np.cumsum(hertz) * spec.control_period_s
        size = np.minimum(0.6 * self._turn, spec.turn_acceleration_limit_rad_s2 / (2 * math.pi * hertz))
        turn = size * np.sin(phase)
        return Segment("chirp of the turn rate", (LAG, DELAY, TURN), np.stack([np.zeros_like(turn), turn]))

    def _slowed(self, name: str, driven: Callable[[float], Segment | None]) -> Segment:
        share = 1.0
        while share >= _LEAST:
            segment = driven(share)
            if segment is not None and self._fits(segment):
                return segment
            share *= _SHRINK
        raise TestudoError(
            f"--area: found no room for the {name} of a {self._spec.name}: {2 * self._room[0]:.2f} x "
            f"{2 * self._room[1]:.2f} m are left between the distances that its shield keeps; give a larger area"
        )

    def _fits(self, segment: Segment) -> bool:
        """Return whether all robots stay in the room, from all starts within the tolerance."""
        start = segment.start or (0.0, 0.0, 0.0)
        robots, starts = worst_starts(self._robots, start, self._tolerance.yaw_rad)
        return bool((motions(self._spec, robots, segment.commands, starts).reach_m() <= self._room).all())

    def _ticks(self, seconds: float) -> int:
        return round(seconds / self._spec.control_period_s)


def _constant(forward: float, turn: float, ticks: int) -> np.ndarray:
    return np.repeat([[forward], [turn]], ticks, axis=1)


def told_by(plan: Sequence[Segment], key: str) -> tuple[str, ...]:
    """Return the names of the segments that tell a parameter."""
    return tuple(dict.fromkeys(segment.name for segment in plan if key in segment.tells))
