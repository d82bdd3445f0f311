"""Follows planned paths: a batch policy that plans at its first decision and then commands way-points.

On robots no two moves take equal time. The order of a plan is kept all the same: a robot begins a move only after all
others have ended those of their earlier moves that cross it, as in the temporal plan graphs of Hönig et al.,
Multi-agent path finding with kinematic constraints, ICAPS 2016. A move waits for earlier ones only, so that none waits
for ever.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from testudo_deploy.contract.waypoint_tracking import WaypointTracking
from testudo_policies.planners.roadmap import Path, Roadmap

_AHEAD = 3  # moves in one direction that a robot drives without slowing down
_SAME_WAY = 0.99  # least cosine of the angle between them


@dataclass(frozen=True)
class TeamPlan:
    """The way-points of a team in one episode."""

    points_world: tuple[np.ndarray, ...]  # for each robot (K, D) [m]: from its start to its goal
    after: tuple[np.ndarray, ...]
    """For each robot (K - 1, N) int: how many moves the others must have ended before a move of its own begins."""

    @classmethod
    def of_paths(cls, roadmap: Roadmap, points_world: np.ndarray, paths: list[Path]) -> "TeamPlan":
        """Return the plan of paths without conflicts; ``points_world`` (V, D) [m] are the vertices in the world."""
        moves = [roadmap.moves_of(path, len(path) - 1) for path in paths]
        stays = len(roadmap.points)
        used, places = np.unique(np.concatenate(moves), return_inverse=True)
        crossings, spots = roadmap.crossings(used), np.split(places, np.cumsum([len(own) for own in moves])[:-1])
        waits = []
        for own, mine in zip(moves, spots, strict=True):
            after = np.zeros((len(own), len(paths)), int)
            for other, theirs in enumerate(spots):
                if theirs is mine:
                    continue
                crossed = crossings[mine[:, None], theirs[None]]
                earlier = np.arange(len(theirs))[None] < np.arange(len(own))[:, None]
                last = np.max(np.where(crossed & earlier, np.arange(1, len(theirs) + 1), 0), axis=1, initial=0)
                after[:, other] = np.where(own < stays, 0, last)
            waits.append(after)
        return cls(tuple(points_world[list(path)] for path in paths), tuple(waits))

    @classmethod
    def of_ways(cls, points_world: list[np.ndarray]) -> "TeamPlan":
        """Return the plan of robots that do not wait for one another, each with its way (K, D) [m]."""
        waits = tuple(np.zeros((len(points) - 1, len(points_world)), int) for points in points_world)
        return cls(tuple(points_world), waits)


PlanTeam = Callable[[np.ndarray, np.ndarray, int], TeamPlan | None]
"""Starts and goals (N, D) [m] and the number of the episode to a plan, or None where none is found."""


class PlanFollower:
    """A batch policy with a memory of `MEMORY` numbers: its plan, and the moves that the robot has ended."""

    MEMORY = 2

    def __init__(
        self,
        plan: PlanTeam,
        team_size: int,
        law: WaypointTracking,
        reach_m: float,
        *,
        commands_waypoints: bool,
        further_numbers: int = 0,
        on_plan: Callable[[int], None] | None = None,
    ) -> None:
        """Create it.

        Args:
            plan: plans an episode.
            team_size: number N of robots.
            law: makes velocities of way-points.
            reach_m: distance before a way-point at which a move has ended.
            commands_waypoints: the team tracks way-points itself; else the policy commands velocities by the law.
            further_numbers: those of a command after velocity or way-point, a yaw rate and a learned message: all zero.
            on_plan: called with the number of episodes that are planned.
        """
        self._plan, self._size, self._law, self._reach_m = plan, team_size, law, reach_m
        self._commands_waypoints, self._further_numbers, self._on_plan = commands_waypoints, further_numbers, on_plan
        self._plans: list[TeamPlan | None] = []
        self._points = np.zeros((0, 0, 0, 0))  # (P, N, K, D): those of all plans
        self._after = np.zeros((0, 0, 0, 0), int)  # (P, N, K, N)
        self._moves = np.zeros((0, 0), int)  # (P, N)

    @property
    def without_plan(self) -> int:
        """Return the number of episodes in which no plan was found; their robots stay where they are."""
        return sum(plan is None for plan in self._plans)

    def __call__(self, signals: Mapping[str, Any], hidden: Any) -> tuple[np.ndarray, np.ndarray]:
        """See `BatchPolicy`."""
        point = np.asarray(signals["control_point_world"], float)
        team = (-1, self._size, point.shape[-1])
        place, memory = point.reshape(team), np.array(hidden, float).reshape(-1, self._size, self.MEMORY)
        if not memory[..., 0].all():  # all worlds of a batch start together
            memory[..., 0] = self._planned(place, np.asarray(signals["goal_world"], float).reshape(team))[:, None]
        number, ended = memory[:, 0, 0].astype(int) - 1, memory[..., 1].astype(int)
        ended = self._advanced(number, ended, place)
        waypoint = self._aim(number, ended).reshape(point.shape)
        memory[..., 1] = ended
        command = waypoint if self._commands_waypoints else self._law.velocity_world(waypoint.T, point.T).T
        stands = np.repeat([self._plans[k] is None for k in number], self._size)[:, None]
        command = np.where(stands, point if self._commands_waypoints else 0.0, command)
        command = np.concatenate([command, np.zeros((len(command), self._further_numbers))], axis=1)
        return command.astype(np.float32), memory.reshape(-1, self.MEMORY).astype(np.float32)

    def _planned(self, starts_world: np.ndarray, goals_world: np.ndarray) -> np.ndarray:
        """Plan episodes (E, N, D); return the number of each plan, from 1 on."""
        first = len(self._plans)
        for start, goal in zip(starts_world, goals_world, strict=True):
            self._plans.append(self._plan(start, goal, len(self._plans)))
            if self._on_plan:
                self._on_plan(len(self._plans))
        stay = [TeamPlan.of_ways(list(start[:, None])) for start in starts_world]
        filled = [plan or stay[max(k - first, 0)] for k, plan in enumerate(self._plans)]
        most = max(len(points) for plan in filled for points in plan.points_world)
        self._points = np.array([[_held(way, most) for way in plan.points_world] for plan in filled])
        self._after = np.array([[_held(after, most) for after in plan.after] for plan in filled])
        self._moves = np.array([[len(way) - 1 for way in plan.points_world] for plan in filled])
        return np.arange(first, len(self._plans)) + 1

    def _advanced(self, number: np.ndarray, ended: np.ndarray, place: np.ndarray) -> np.ndarray:
        """Return the ended moves (E, N) at places (E, N, D) [m]."""
        for _ in range(self._points.shape[2]):  # moves without a way end at once
            here, there = self._point(number, ended), self._point(number, ended + 1)
            way, rest = there - here, there - place
            length = np.linalg.norm(way, axis=-1)
            along = np.sum(rest * way, axis=-1) / np.maximum(length, 1e-9)
            reached = (along <= self._reach_m) & (np.linalg.norm(rest, axis=-1) <= 2 * self._reach_m)
            ends = self._may_begin(number, ended, ended) & (reached | (length == 0))
            if not ends.any():
                break
            ended = ended + ends
        return ended

    def _aim(self, number: np.ndarray, ended: np.ndarray) -> np.ndarray:
        """Return the way-points (E, N, D) [m]: ends of moves that may begin, as far as they go in one direction."""
        aim = ended + self._may_begin(number, ended, ended)
        for _ in range(_AHEAD - 1):
            last, way = (self._point(number, aim + k) - self._point(number, aim + k - 1) for k in (0, 1))
            lengths = np.linalg.norm(last, axis=-1) * np.linalg.norm(way, axis=-1)
            straight = (np.sum(last * way, axis=-1) >= _SAME_WAY * lengths) & (lengths > 0) & (aim > ended)
            aim = aim + (straight & self._may_begin(number, ended, aim))
        return self._point(number, aim)

    def _may_begin(self, number: np.ndarray, ended: np.ndarray, move: np.ndarray) -> np.ndarray:
        """Return (E, N) bool: the robots have a move with this number, and the others have ended what it waits for."""
        moves, robots = self._moves[number], np.arange(self._size)
        after = self._after[number[:, None], robots[None], np.minimum(move, self._after.shape[2] - 1)]
        return (move < moves) & np.all(ended[:, None, :] >= after, axis=-1)

    def _point(self, number: np.ndarray, place: np.ndarray) -> np.ndarray:
        """Return the points (E, N, D) of the robots' ways with these numbers (E, N); the last one after the end."""
        robots = np.arange(self._size)
        return self._points[number[:, None], robots[None], np.clip(place, 0, self._points.shape[2] - 1)]


def _held(values: np.ndarray, count: int) -> np.ndarray:
    """Return values (K, ...) with as many rows, the last one repeated; zeros if there is none."""
    if not len(values):
        return np.zeros((count, *values.shape[1:]), values.dtype)
    return np.concatenate([values, np.repeat(values[-1:], count - len(values), axis=0)])
