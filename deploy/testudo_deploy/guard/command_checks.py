"""Checks of a command's content by the guard, independent of the policy's process: limits, own pose, arena, segment.

From the guard's own pose the motion is predicted as the robot file describes it: commands that were passed on, then
the new one for as long as it can act, then a brake from every moment of that. All of it must stay inside the arena,
clear of its obstacles by a margin, and inside the segment that the peers were told. Plain numbers only: the guard's
logic starts without NumPy.
"""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from testudo_deploy.guard.own_segment import OwnSegment
from testudo_deploy.guard.segment_distance import Point, segment_distance_m
from testudo_hardware.schema import DIFFERENTIAL_DRIVE, HOLONOMIC
from testudo_hardware.spec import RobotSpec

Code = Literal["", "limits", "no_pose", "arena", "no_segment", "segment"]
_TOLERANCE = 1e-3  # share by which a command may exceed a limit: rounding of messages and solvers
_ROUNDING_M = 1e-6
WALL_M = 0.1  # what a scanner sees nearer to a wall or obstacle than this counts as that
_KEPT_S = 2.0  # commands older than this act on no robot
_ARC_POINTS = 4  # points on the way to each place of rest
_SLACK_S = 0.02
"""By so much time at its present speed a command may brake later than at once. It is less than a command is held, so
that a robot at rest cannot creep closer with it."""
_SLOW_M_S, _SLOW_RAD_S = 1e-9, 1e-9


@dataclass(frozen=True)
class KeepOut:
    """An obstacle: all within a radius of a segment, or of a box (half sizes above 0) turned about the vertical."""

    start_world: Point  # (D,) [m]; the centre of a box
    end_world: Point  # (D,) [m]
    radius_m: float
    half_size_m: Point = ()  # (D,) of a box; empty for a ball or capsule
    yaw: float = 0.0  # [rad] of a box

    def distance_m(self, point: Point) -> float:
        """Return the distance of a point (D,) from its surface; zero or below inside."""
        if self.half_size_m:
            return self._box_distance_m(point)
        return segment_distance_m(self.start_world, self.end_world, point) - self.radius_m

    def _box_distance_m(self, point: Point) -> float:
        offset = [p - c for p, c in zip(point, self.start_world, strict=True)]
        cos, sin = math.cos(self.yaw), math.sin(self.yaw)
        local = [cos * offset[0] + sin * offset[1], cos * offset[1] - sin * offset[0], *offset[2:]]
        beyond = [abs(x) - half for x, half in zip(local, self.half_size_m, strict=True)]
        outside = math.hypot(*(max(b, 0.0) for b in beyond))
        return outside if outside > 0 else max(beyond)


@dataclass(frozen=True)
class Bounds:
    """Where the robot's centre may be: a box, less what surrounds obstacles."""

    low_world: Point  # (D,) [m]
    high_world: Point  # (D,) [m]
    obstacles: tuple[KeepOut, ...] = ()
    margin_m: float = 0.0  # least distance of the centre from walls and obstacles


@dataclass(frozen=True)
class _State:
    """Motion at one moment."""

    position: Point  # (D,) [m], world
    yaw: float  # [rad]
    velocity: Point  # (D,): (forward [m/s], turn rate [rad/s]), or in the world [m/s]


class CommandChecks:
    """The checks of one robot; times are seconds on one clock that the caller injects."""

    def __init__(
        self,
        spec: RobotSpec,
        bounds: Bounds | None,
        *,
        oldest_pose_s: float,
        lands: bool = False,
        segment: OwnSegment | None = None,
    ) -> None:
        """Begin without a pose.

        Args:
            spec: the robot.
            bounds: where its centre may be; None is a world without walls.
            oldest_pose_s: the greatest age of a pose.
            lands: the robot leaves its arena downwards when it lands: its floor is not checked.
            segment: what the robot announces to its peers; None: not checked.
        """
        self._segment = segment
        self._spec, self._bounds, self._oldest_pose_s, self._lands = spec, bounds, oldest_pose_s, lands
        self._drives = spec.kind == DIFFERENTIAL_DRIVE
        self._pose: tuple[float, _State] | None = None
        """Stamp and content of the newest pose."""
        self._sent: deque[tuple[float, Point]] = deque()
        """Time and content of the commands that were passed on, as the driver limits them, oldest first."""
        self._scale = (spec.speed_scale, spec.turn_scale) if self._drives else (spec.speed_scale,) * spec.dimension

    def see_pose(self, stamp_s: float, position: Sequence[float], yaw: float, velocity: Sequence[float]) -> None:
        """Take a pose in the fleet's frame with the velocity in the channels of a command; bad ones are ignored."""
        values = (stamp_s, yaw, *position, *velocity)
        size = self._spec.dimension
        if len(values) != 2 + 2 * size or not all(abs(value) < math.inf for value in values):
            return
        if self._pose is None or stamp_s > self._pose[0]:
            self._pose = (stamp_s, _State(tuple(position), yaw, tuple(velocity)))

    def note_sent(self, now_s: float, command: Sequence[float]) -> None:
        """Take a command (D,) that was passed on, or a brake of zeros."""
        self._sent.append((now_s, self._in_world(self._limited(command))))
        while self._sent and now_s - self._sent[0][0] > _KEPT_S:
            self._sent.popleft()

    def refusal(self, command: Sequence[float], now_s: float, *, descends: bool = False) -> Code:
        """Return the code for which a finite command (D,) must not be passed on; empty if it may.

        A command of zeros is a brake: it always may. One that only ``descends`` may leave the segment.
        """
        if not any(command):
            return ""
        if not self._is_within_limits(command):
            return "limits"
        segment = None if descends else self._segment
        if self._bounds is None and segment is None:
            return ""
        if self._pose is None or not -self._oldest_pose_s <= now_s - self._pose[0] <= self._oldest_pose_s:
            return "no_pose"
        if segment is not None and segment.is_silent(now_s):
            return "no_segment"
        return self._left(self._pose[1], command, now_s, segment)

    def is_wall(self, point: tuple[float, float]) -> bool:
        """Return whether a point on the robot's axes (2,) [m] is at or behind a wall, or at an obstacle, of the arena.

        Without a pose or an arena nothing is.
        """
        if self._bounds is None or self._pose is None:
            return False
        state, bounds = self._pose[1], self._bounds
        cos, sin = math.cos(state.yaw), math.sin(state.yaw)
        place = (
            state.position[0] + cos * point[0] - sin * point[1],
            state.position[1] + sin * point[0] + cos * point[1],
        )
        inside = all(
            low + WALL_M < p < high - WALL_M
            for low, p, high in zip(bounds.low_world[:2], place, bounds.high_world[:2], strict=True)
        )
        return not inside or any(obstacle.distance_m(place) < WALL_M for obstacle in bounds.obstacles)

    def _is_within_limits(self, command: Sequence[float]) -> bool:
        spec, most = self._spec, 1 + _TOLERANCE
        if not self._drives:
            return math.hypot(*command) <= spec.speed_limit_m_s * most
        forward, turn = command
        rim = abs(forward) + abs(turn) * spec.wheel_base_m / 2
        return (
            abs(forward) <= spec.speed_limit_m_s * most
            and abs(turn) <= spec.turn_rate_limit_rad_s * most
            and rim <= spec.wheel_limit_m_s * most
        )

    def _limited(self, command: Sequence[float]) -> Point:
        """Return a command as the driver clips it."""
        spec = self._spec
        if not self._drives:
            share = min(1.0, spec.speed_limit_m_s / max(math.hypot(*command), _SLOW_M_S))
            return tuple(share * value for value in command)
        forward, turn = command
        share = min(
            1.0,
            spec.wheel_limit_m_s / max(abs(forward) + abs(turn) * spec.wheel_base_m / 2, _SLOW_M_S),
            spec.speed_limit_m_s / max(abs(forward), _SLOW_M_S),
            spec.turn_rate_limit_rad_s / max(abs(turn), _SLOW_RAD_S),
        )
        return (share * forward, share * turn)

    def _in_world(self, command: Point) -> Point:
        """Return a command in the channels of the velocity: that of a holonomic base comes in its own axes."""
        if self._spec.kind != HOLONOMIC or self._pose is None:
            return command
        cos, sin = math.cos(self._pose[1].yaw), math.sin(self._pose[1].yaw)
        return (cos * command[0] - sin * command[1], sin * command[0] + cos * command[1])

    def _left(self, start: _State, command: Sequence[float], now_s: float, segment: OwnSegment | None) -> Code:
        """Return what something that the command can lead to leaves: arena or segment.

        Where braking at once comes nearer already, the command may not come nearer than that: such a robot may brake
        less hard only by rounding, or move away.
        """
        decided = [start.position]
        state = self._when_it_acts(start, now_s, decided)
        decided += self._to_rest(state)
        forward = math.hypot(*state.velocity) if not self._drives else abs(state.velocity[0])
        path, slack_m = list(self._path(state, command)), forward * _SLACK_S
        if self._bounds is not None:
            depth = _Depth(self._bounds, decided, slack_m, floor=not self._lands)
            if not all(depth.permits(point) for point in path):
                return "arena"
        return "" if segment is None or segment.permits(path, decided, slack_m) else "segment"

    def _when_it_acts(self, start: _State, now_s: float, passed: list[Point]) -> _State:
        """Return the state when a command sent now begins to act; the places until then are added to ``passed``."""
        spec, state = self._spec, start
        time_s = min(self._pose[0], now_s) if self._pose is not None else now_s
        acts_s = now_s + spec.command_delay_s
        while time_s < acts_s - _ROUNDING_M:
            step_s = min(spec.control_period_s, acts_s - time_s)
            state = self._moved(state, self._acting(time_s - spec.command_delay_s), step_s)
            time_s += step_s
            passed.append(state.position)
        return state

    def _path(self, state: _State, command: Sequence[float]) -> Iterator[Point]:
        """Yield points of the motion under a command for as long as it can act, and on the ways to rest from them."""
        spec, wanted = self._spec, self._in_world(self._limited(command))
        for _ in range(math.ceil(spec.hold_s / spec.control_period_s - 1e-9)):
            state = self._moved(state, wanted, spec.control_period_s)
            yield state.position
            yield from self._to_rest(state)

    def _acting(self, sent_s: float) -> Point:
        """Return the newest command sent by a time; before all of them the oldest, which the pose's velocity shows."""
        found: Point = self._sent[0][1] if self._sent else (0.0,) * self._spec.dimension
        for time_s, command in self._sent:
            if time_s > sent_s + _ROUNDING_M:
                break
            found = command
        return found

    def _moved(self, state: _State, command: Point, step_s: float) -> _State:
        """Return the state after a step under a command, with the lag and limits of the robot file."""
        spec = self._spec
        decay = step_s / spec.velocity_lag_s if spec.velocity_lag_s > 0 else math.inf
        gain = -math.expm1(-decay)
        mean_share = (1 - gain / decay) / gain
        wanted = [scale * value for scale, value in zip(self._scale, self._slipped(command), strict=True)]
        change = [gain * (u - v) for u, v in zip(wanted, state.velocity, strict=True)]
        if self._drives:
            limits = (spec.acceleration_limit_m_s2 * step_s, spec.turn_acceleration_limit_rad_s2 * step_s)
            change = [min(max(c, -limit), limit) for c, limit in zip(change, limits, strict=True)]
        else:
            share = min(1.0, spec.acceleration_limit_m_s2 * step_s / max(math.hypot(*change), _SLOW_M_S))
            change = [share * c for c in change]
        mean = [v + mean_share * c for v, c in zip(state.velocity, change, strict=True)]
        after = tuple(v + c for v, c in zip(state.velocity, change, strict=True))
        if not self._drives:
            place = tuple(p + step_s * m for p, m in zip(state.position, mean, strict=True))
            return _State(place, state.yaw, after)
        return _State(
            _arc_end(state.position, state.yaw, step_s * mean[0], step_s * mean[1]),
            state.yaw + step_s * mean[1],
            after,
        )

    def _slipped(self, command: Point) -> Point:
        """Return a command with the forward speed that turns lose, as `motion_model.apply_turn_slip`."""
        slip = self._spec.turn_slip_s_rad
        if not self._drives or not slip > 0:
            return command
        return (command[0] / (1 + (slip * command[1]) ** 2), command[1])

    def _to_rest(self, state: _State) -> Iterator[Point]:
        """Yield points of the way to rest under zero command."""
        spec = self._spec
        lag_s, limit = spec.velocity_lag_s, spec.acceleration_limit_m_s2
        if not self._drives:
            speed = math.hypot(*state.velocity)
            time_s = _stopping_way(speed, lag_s, limit) / max(speed, _SLOW_M_S)
            yield tuple(p + time_s * v for p, v in zip(state.position, state.velocity, strict=True))
            return
        way = _stopping_way(state.velocity[0], lag_s, limit)
        turn = _stopping_way(state.velocity[1], lag_s, spec.turn_acceleration_limit_rad_s2)
        for k in range(1, _ARC_POINTS + 1):
            share = k / _ARC_POINTS
            yield _arc_end(state.position, state.yaw, share * way, share * turn)


class _Depth:
    """The limits of a motion: those of the bounds, or the deepest of the places that it reaches in any case."""

    def __init__(self, bounds: Bounds, decided: Sequence[Point], slack_m: float, *, floor: bool) -> None:
        margin, axes = bounds.margin_m, tuple(zip(*decided, strict=True))
        low = [min(wall + margin, min(axis) - slack_m) for wall, axis in zip(bounds.low_world, axes, strict=True)]
        high = [max(wall - margin, max(axis) + slack_m) for wall, axis in zip(bounds.high_world, axes, strict=True)]
        if not floor:
            low[2:] = [-math.inf] * len(low[2:])
        self._low = tuple(value - _ROUNDING_M for value in low)
        self._high = tuple(value + _ROUNDING_M for value in high)
        self._obstacles = tuple(
            (obstacle, min(margin, min(map(obstacle.distance_m, decided)) - slack_m) - _ROUNDING_M)
            for obstacle in bounds.obstacles
        )

    def permits(self, point: Point) -> bool:
        """Return whether a place (D,) is within the limits; NaN is not."""
        return all(low <= p <= high for low, p, high in zip(self._low, point, self._high, strict=True)) and all(
            obstacle.distance_m(point) >= least_m for obstacle, least_m in self._obstacles
        )


def _arc_end(position: Point, yaw: float, way_m: float, turn_rad: float) -> Point:
    """Return the end (2,) of an arc of a length that turns by an angle."""
    half = turn_rad / 2
    chord = way_m * (math.sin(half) / half if abs(half) > 1e-6 else 1.0)
    return (position[0] + chord * math.cos(yaw + half), position[1] + chord * math.sin(yaw + half))


def _stopping_way(rate: float, lag_s: float, limit: float) -> float:
    """Return the way to rest, signed (shield.md: above limit * lag it is v² / 2a + a lag² / 2)."""
    size = abs(rate)
    way = size * size / (2 * limit) + limit * lag_s**2 / 2 if size > limit * lag_s else lag_s * size
    return math.copysign(way, rate)
