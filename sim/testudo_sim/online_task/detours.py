"""Ways round robots that stand, for a robot that no longer comes nearer to its goal.

Most policies drive straight to their goal, and the deadlock rule only turns them a little: two robots that stand beside
each other and near a wall are a trap, although there is a way round. The station sees all robots and sends such a robot
the next corner of a way in place of its goal. As any goal that changes the nominal velocity only.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import dijkstra

from testudo_deploy.contract.messages import Vector
from testudo_deploy.shield.arena import Arena
from testudo_deploy.shield.passages import beyond_walls
from testudo_deploy.shield.room_to_pass import PASS

STUCK_S = 3.0
"""A robot that has not come nearer to its goal for this time, by `NEARER_M`, takes a way round."""
NEARER_M = 0.05
STANDS_S, STANDS_M = 1.5, 0.03
"""A robot that moved less than this far in this time stands, and others go round it."""
_PLAN_S = 0.5  # a way is planned anew after this time
_CELLS = 6.0  # cells in a separation
_MOST_CELLS = 150  # on a side
_STEPS = ((1, 0), (0, 1), (1, 1), (1, -1))


@dataclass
class _Progress:
    """What is known of one robot on its way."""

    goal_world: Vector
    least_m: float
    nearer_s: float
    goes_round: bool = False
    planned_s: float = -math.inf
    corner_world: Vector = ()  # empty: straight to the goal


class Detours:
    """The ways of the robots of a fleet in a plane; times are seconds on the clock of the station."""

    def __init__(self, arena: Arena | None, *, room_m: float, separation_m: float) -> None:
        """Begin; ``room_m`` is what ways keep from walls and obstacles."""
        self._arena, self._room_m, self._pass_m = arena, room_m, PASS * separation_m
        self._cell_m = separation_m / _CELLS
        self._ways: dict[str, _Progress] = {}
        self.shut: set[str] = set()
        """Robots that found no way to their goal when they last looked for one."""
        self._stood: dict[str, tuple[Vector, float]] = {}
        """Where each robot was when it last moved, and since when."""

    def corner(self, robot: str, goal_world: Vector, places_world: Mapping[str, Vector], now_s: float) -> Vector | None:
        """Return the place (2,) [m] to which a robot drives instead of its goal; None: to its goal.

        ``places_world`` are the newest measured places of all robots.
        """
        place, way = places_world[robot], self._ways.get(robot)
        left_m = math.dist(place, goal_world)
        if way is None or way.goal_world != goal_world:
            self.forget(robot)
            way = self._ways[robot] = _Progress(goal_world, left_m, now_s)
        if left_m < way.least_m - NEARER_M:
            way.least_m, way.nearer_s = left_m, now_s
        if not way.goes_round and now_s - way.nearer_s < STUCK_S:
            return None
        if now_s - way.planned_s >= _PLAN_S:
            others = [other for name, other in places_world.items() if name != robot and self._stands(name, now_s)]
            corner = self._next_corner(place, goal_world, others)
            (self.shut.add if corner is None else self.shut.discard)(robot)
            way.planned_s, way.corner_world = now_s, corner or ()
            way.goes_round = bool(corner)
            if not way.goes_round:  # straight on, until it is stuck again
                way.least_m, way.nearer_s = left_m, now_s
        return way.corner_world or None

    def see(self, places_world: Mapping[str, Vector], now_s: float) -> None:
        """Take the newest places, to know who stands."""
        for name, place in places_world.items():
            last = self._stood.get(name)
            if last is None or math.dist(last[0], place) > STANDS_M:
                self._stood[name] = (place, now_s)

    def forget(self, robot: str) -> None:
        """Forget the way of a robot that is at its goal, is paused or is not measured."""
        self._ways.pop(robot, None)
        self.shut.discard(robot)

    def _stands(self, robot: str, now_s: float) -> bool:
        return now_s - self._stood[robot][1] >= STANDS_S

    def _next_corner(self, place: Vector, goal: Vector, others: Sequence[Vector]) -> Vector | None:
        """Return the next corner of the shortest way; empty if the way is straight or not known, None without a way."""
        grid = self._grid(place, goal)
        if grid is None or self._is_clear(place, goal, others):
            return ()
        points = np.stack(np.meshgrid(*grid, indexing="ij")).reshape(2, -1)
        free = self._free(points, others)
        if not free.any():
            return None
        apart = [np.where(free, np.hypot(*(points - np.array(at)[:, None])), np.inf) for at in (place, goal)]
        start, end = (int(np.argmin(values)) for values in apart)
        way = _shortest(free.reshape(len(grid[0]), len(grid[1])), start, end)
        if not way or apart[1][end] > self._pass_m:
            return None
        corners = [tuple(points[:, cell].tolist()) for cell in way]
        seen = [corner for corner in corners if self._is_clear(place, corner, others)]
        return seen[-1] if seen else corners[min(1, len(corners) - 1)]

    def _grid(self, place: Vector, goal: Vector) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the coordinates of the cells; None where they would be too coarse to find a way."""
        more = 4 * self._pass_m
        low, high = np.minimum(place, goal) - more, np.maximum(place, goal) + more
        if self._arena is not None:
            low, high = np.maximum(low, self._arena.low_world), np.minimum(high, self._arena.high_world)
        cell_m = max(self._cell_m, float(np.max(high - low)) / _MOST_CELLS)
        if cell_m > self._pass_m / 2:
            return None
        x, y = (np.arange(first, last + cell_m / 2, cell_m) for first, last in zip(low, high, strict=True))
        return x, y

    def _free(self, points: np.ndarray, others: Sequence[Vector]) -> np.ndarray:
        """Return which places (2, n) have room beside walls, obstacles and robots that stand."""
        free = np.ones(points.shape[1], bool)
        if self._arena is not None:
            free &= np.asarray(beyond_walls(self._room_m, self._arena, points)) <= 0
        for other in others:
            free &= np.hypot(*(points - np.array(other)[:, None])) >= self._pass_m
        return free

    def _is_clear(self, first: Vector, last: Vector, others: Sequence[Vector]) -> bool:
        """Return whether the straight way between two places is free, apart from where it begins."""
        length = math.dist(first, last)
        share = np.linspace(0.0, 1.0, 2 + int(length / (self._cell_m / 2)))
        points = np.array(first)[:, None] + (np.array(last) - np.array(first))[:, None] * share
        beyond = points[:, share * length > self._cell_m]
        return beyond.shape[1] == 0 or bool(self._free(beyond, others).all())


def _shortest(free: np.ndarray, start: int, end: int) -> list[int]:
    """Return the cells of the shortest way on a grid (n, m); empty if there is none."""
    number = np.arange(free.size).reshape(free.shape)
    first, last, cost = [], [], []
    for i, k in _STEPS:
        one, other = _shifted(number, i, k)
        both = free.ravel()[one] & free.ravel()[other]
        first.append(one[both])
        last.append(other[both])
        cost.append(np.full(int(both.sum()), math.hypot(i, k)))
    edges = (np.concatenate(cost), (np.concatenate(first), np.concatenate(last)))
    graph = coo_matrix(edges, shape=(free.size, free.size)).tocsr()
    far, before = dijkstra(graph, directed=False, indices=start, return_predecessors=True)
    if not math.isfinite(far[end]):
        return []
    way = [end]
    while way[-1] != start:
        way.append(int(before[way[-1]]))
    return way[::-1]


def _shifted(number: np.ndarray, i: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of cells that are one step apart."""
    rows, columns = number.shape
    one = number[: rows - i, max(0, -k) : columns - max(0, k)]
    other = number[i:, max(0, k) : columns - max(0, -k)]
    return one.ravel(), other.ravel()
