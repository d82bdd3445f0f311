"""The drive through a plan: which command to send now, by measured poses and the robot's mode; pure, on one clock.

Between two segments the robot stands until its place is known, and is brought to the next start by turns in place and
straight ways, each computed from a mean of poses at rest. When the robot may not drive, or its poses end, the command
is zero; the segment is repeated once it may drive again, within `PATIENCE_S`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from testudo_deploy.calibration.area import Area, Room
from testudo_deploy.calibration.excitation import (
    LONGEST_S,
    Segment,
    Tolerance,
    duration_s,
    top_turn_rate,
)
from testudo_deploy.calibration.motion_spread import RobotSet, rest_time_s
from testudo_deploy.supervision.modes import Mode
from testudo_hardware.spec import RobotSpec

START_S = 60.0  # within which the robot must become active
PATIENCE_S = 10.0  # for which a robot that holds, or whose poses ended, is waited for
MEAN_S, _FEWEST = 0.3, 4  # poses of a mean at rest: for this time, and at least so many
_LOST_S = 1.0  # without a pose for this time the robot is not located
_HOLDS_S = 2.0  # after a silence, in which the robot brakes by itself
_MOVES = 40  # to reach a start; poses of much noise make the shield wait, which shortens moves
_NEAR_RAD = 0.1  # a heading is corrected from here on, if a way follows
_SLOW = 0.7  # share of the top speed on the way to a start
_STOPS = (Mode.STOPPED, Mode.FAULT)


class Outcome(StrEnum):
    """How a drive ended."""

    RUNNING = ""
    COMPLETE = "complete"  # all segments, or as many as the time permits
    POSE_LOST = "pose_lost"
    STOPPED = "stopped"  # an operator, a fault or a brake that did not end
    NOT_STARTED = "not_started"  # it was not armed, or has no pose
    OFF_PLACE = "off_place"  # the robot does not reach a start


@dataclass
class _Poses:
    """Poses at rest."""

    rows: list[tuple[float, float, float]] = field(default_factory=list[tuple[float, float, float]])
    first_s: float = math.inf
    last_s: float = -math.inf

    def add(self, stamp_s: float, x: float, y: float, yaw: float) -> None:
        self.rows.append((x, y, yaw))
        self.first_s, self.last_s = min(self.first_s, stamp_s), max(self.last_s, stamp_s)

    @property
    def enough(self) -> bool:
        return len(self.rows) >= _FEWEST and self.last_s - self.first_s >= MEAN_S

    def mean(self) -> tuple[float, float, float]:
        x, y, yaw = np.array(self.rows).T
        return float(x.mean()), float(y.mean()), math.atan2(np.sin(yaw).mean(), np.cos(yaw).mean())


class CalibrationDrive:
    """The drive of one robot; times are seconds on one clock that the caller injects."""

    def __init__(
        self, spec: RobotSpec, area: Area, room: Room, plan: Sequence[Segment], longest_s: float = LONGEST_S
    ) -> None:
        """Begin before the robot is active; ``longest_s`` counts from its first activity."""
        self._spec, self._area, self._room = spec, area, room
        self._plan, self._longest_s, self._tolerance = tuple(plan), longest_s, Tolerance.of(spec)
        quantities = spec.quantities
        self._settled_s = quantities["dynamics.command_delay"].high + rest_time_s(spec, RobotSet.corners(spec))
        self.outcome, self.reason = Outcome.RUNNING, ""
        self.done: list[str] = []
        """Names of the completed segments, which are the first of the plan."""
        self.begun_s = self.ended_s = -math.inf
        self._asked_s = math.inf
        self._active, self._mode, self._sentence = False, "", "not heard yet"
        self._pose_s = -math.inf  # stamp of the newest pose
        self._heard_s = -math.inf  # when it came
        self._paused_s: float | None = None
        self._moves = 0
        self._ticks: list[tuple[float, float]] = []  # commands still to send, the next one last
        self._segment = False  # they are those of a segment
        self._silent_s = -math.inf  # when the commands were silent last
        self._rest_s = math.inf  # when the robot stands for certain
        self._poses = _Poses()

    @property
    def used_s(self) -> float:
        """Return the robot time so far [s]."""
        return max(self.ended_s - self.begun_s, 0.0) if math.isfinite(self.begun_s) else 0.0

    def hear_pose(self, stamp_s: float, place_world: Sequence[float], yaw: float, now_s: float) -> None:
        """Take a pose in the fleet's frame that arrived at ``now_s`` [s]."""
        if stamp_s <= self._pose_s or not all(map(math.isfinite, (*place_world, yaw))):
            return
        self._pose_s, self._heard_s = stamp_s, now_s
        if not self._ticks and stamp_s >= self._rest_s:
            self._poses.add(stamp_s, *self._area.local(tuple(place_world)), yaw)

    def hear_mode(self, mode: str, sentence: str) -> None:
        """Take the mode of the robot, with its reason."""
        self._active, self._mode, self._sentence = mode == Mode.ACTIVE, mode, sentence

    def command(self, now_s: float) -> tuple[float, float] | None:
        """Return the command of this tick: forward [m/s] and turn rate [rad/s]; None is silence.

        After the end it is zero.
        """
        if self.outcome is not Outcome.RUNNING:
            return 0.0, 0.0
        if math.isfinite(self.begun_s):
            self.ended_s = now_s
        if not self._may_drive(now_s):
            return 0.0, 0.0
        if not self._ticks:
            self._next(now_s)
        if not self._ticks:
            return 0.0, 0.0
        sent = self._ticks.pop()
        if math.isnan(sent[0]):
            self._silent_s = now_s
        if not self._ticks:
            self._stand(now_s)
            if self._segment:
                self.done.append(self._plan[len(self.done)].name)
                self._segment, self._moves = False, 0
        return None if math.isnan(sent[0]) else sent

    def _may_drive(self, now_s: float) -> bool:
        """Return whether the robot is active and located; begin, pause or end the drive."""
        if not math.isfinite(self.begun_s):
            self._asked_s = min(self._asked_s, now_s)
            if now_s - self._asked_s > START_S:
                heard = math.isfinite(self._heard_s)
                self._end(Outcome.NOT_STARTED, self._sentence if heard else "no pose of the robot was heard")
            if not self._active or now_s - self._heard_s > _LOST_S:
                return False
            self.begun_s = self.ended_s = now_s
            self._stand(now_s)
        located = now_s - self._heard_s <= _LOST_S
        brakes_itself = self._mode == Mode.HOLDING and now_s - self._silent_s <= _HOLDS_S
        if located and (self._active or (self._segment and brakes_itself)):
            self._paused_s = None
            return True
        if self._paused_s is None:
            self._paused_s = now_s
            self._ticks, self._segment = [], False
        self._stand(now_s)
        if self._mode in _STOPS or now_s - self._paused_s > PATIENCE_S:
            lost = not located or "pose" in self._sentence
            self._end(Outcome.POSE_LOST if lost and self._mode not in _STOPS else Outcome.STOPPED, self._sentence)
        return False

    def _next(self, now_s: float) -> None:
        """Choose what follows once the place at rest is known."""
        if not self._poses.enough:
            return
        if len(self.done) == len(self._plan):
            self._end(Outcome.COMPLETE, "all segments are driven")
            return
        segment = self._plan[len(self.done)]
        left_s = self._longest_s - (now_s - self.begun_s)
        if duration_s(self._spec, segment) + self._settled_s > left_s:
            self._end(Outcome.COMPLETE, f"the next segment does not end within {self._longest_s:g} s")
            return
        move = approach(self._spec, self._room, segment.start, self._poses.mean(), self._tolerance)
        if move is not None:
            self._moves += 1
            if self._moves > _MOVES:
                self._end(Outcome.OFF_PLACE, f"{_MOVES} moves did not reach the start of: {segment.name}")
                return
        self._segment = move is None
        commands = segment.commands if move is None else move
        self._ticks = [(float(v), float(w)) for v, w in reversed(commands.T)]

    def _stand(self, now_s: float) -> None:
        self._rest_s, self._poses = now_s + self._settled_s, _Poses()

    def _end(self, outcome: Outcome, reason: str) -> None:
        self.outcome, self.reason, self._ticks = outcome, reason, []


def approach(
    spec: RobotSpec,
    room: Room,
    start: tuple[float, float, float] | None,
    pose: tuple[float, float, float],
    tolerance: Tolerance,
) -> np.ndarray | None:
    """Return the next commands (2, K) from a pose at rest towards a start; None if it is reached.

    One call is a turn in place or a straight way. Poses are x, y [m] and yaw [rad] from the centre of the area. Without
    a start any place in the room is one, and the way leads to its centre.
    """
    x, y, yaw = pose
    if start is None:
        inside = abs(x) <= room.half_x_m and abs(y) <= room.half_y_m
        start = (x, y, yaw) if inside else (0.0, 0.0, yaw)
    away_m = math.hypot(start[0] - x, start[1] - y)
    if away_m > tolerance.place_m:
        off = _wrapped(math.atan2(start[1] - y, start[0] - x) - yaw)
        if abs(off) > max(_NEAR_RAD, math.atan2(0.6 * tolerance.place_m, away_m)):
            return _turn(spec, off)
        return _way(spec, away_m)
    off = _wrapped(start[2] - yaw)
    return _turn(spec, off) if abs(off) > tolerance.yaw_rad else None


def _turn(spec: RobotSpec, angle: float) -> np.ndarray:
    rate = top_turn_rate(spec)
    ticks = max(1, math.ceil(abs(angle) / (rate * spec.control_period_s)))
    return np.repeat([[0.0], [angle / (ticks * spec.control_period_s)]], ticks, axis=1)


def _way(spec: RobotSpec, length_m: float) -> np.ndarray:
    speed = _SLOW * spec.speed_limit_m_s
    ticks = max(1, math.ceil(length_m / (speed * spec.control_period_s)))
    return np.repeat([[length_m / (ticks * spec.control_period_s)], [0.0]], ticks, axis=1)


def _wrapped(angle: float) -> float:
    return math.remainder(angle, math.tau)
