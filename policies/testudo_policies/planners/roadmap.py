"""The grid on which paths of a team are planned, with the pairs of moves that bring two robots too near.

All robots move at once, each along an edge or not at all, in steps of equal time. Start and goal of a robot are
vertices of its own beside the grid, so that plans begin and end where the robots really do. Two moves conflict where
their robots, on straight lines at constant speed, come nearer than the distance that the shield keeps. On a plain grid
of wide cells these are the vertex and edge conflicts of the literature (Stern et al., Multi-agent pathfinding:
definitions, variants, and benchmarks, SoCS 2019); on a denser one they are those of large agents.
"""

import itertools
from collections import deque
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from testudo_deploy.shield.arena import Arena, distance_to, segment_clearance
from testudo_deploy.shield.geometry import segment_distance

Path = tuple[int, ...]
"""Vertices of a robot, one for each step; it rests at the last one."""
SHARED = -1
_ROUNDING_M = 1e-6


@dataclass(frozen=True)
class Roadmap:
    """Vertices, moves between them, and a team's starts and goals among the vertices."""

    points: np.ndarray  # (V, D) [m]: heights over the shield's height ratio
    moves: np.ndarray  # (M, 2) int: from and to; the first V are the stays, in the order of the vertices
    separation_m: float
    max_steps: int  # steps after which a robot must rest at its goal
    owner: np.ndarray  # (V,) int: the robot that alone may be at a vertex, or `SHARED`
    starts: tuple[int, ...] = ()
    goals: tuple[int, ...] = ()

    @classmethod
    def create(cls, points: np.ndarray, edges: np.ndarray, separation_m: float, max_steps: int) -> "Roadmap":
        """Return the roadmap of points (V, D) [m] and edges (L, 2), which are moves in both directions."""
        stays = np.repeat(np.arange(len(points))[:, None], 2, axis=1)
        moves = np.concatenate([stays, edges, edges[:, ::-1]]).astype(int)
        return cls(np.asarray(points, float), moves, separation_m, max_steps, np.full(len(points), SHARED))

    def with_team(self, starts: tuple[int, ...], goals: tuple[int, ...]) -> "Roadmap":
        """Return it for a team whose starts and goals are vertices."""
        return replace(self, starts=starts, goals=goals)

    @cached_property
    def moves_from(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Return for each vertex its moves: number and destination."""
        found: list[list[tuple[int, int]]] = [[] for _ in self.points]
        for number, (begin, end) in enumerate(self.moves.tolist()):
            found[begin].append((number, end))
        return tuple(map(tuple, found))

    @property
    def conflicts(self) -> np.ndarray:
        """Return (M, M) bool: two robots that make these moves at the same time come too near."""
        return self.conflicts_for(np.arange(len(self.moves)))

    def conflicts_for(self, moves: np.ndarray) -> np.ndarray:
        """Return `conflicts` with the rows of these moves filled in; a plan needs few of them.

        The offset of two robots that move at once goes from its first to its last value on a straight line.
        """
        table, known = self._rows
        new = np.unique(moves)
        new = new[~known[new]]
        if len(new):
            begin, end = self.points[self.moves[:, 0]].T, self.points[self.moves[:, 1]].T
            first, last = (x[:, new, None] - x[:, None, :] for x in (begin, end))
            along = last - first
            square = np.sum(along**2, axis=0)
            share = np.clip(-np.sum(first * along, axis=0) / np.where(square > 0, square, 1.0), 0.0, 1.0)
            table[new] = self._too_near(np.sqrt(np.sum((first + share * along) ** 2, axis=0)))
            known[new] = True
        return table

    @cached_property
    def _rows(self) -> tuple[np.ndarray, np.ndarray]:
        count = len(self.moves)
        return np.zeros((count, count), bool), np.zeros(count, bool)

    def crossings(self, moves: np.ndarray) -> np.ndarray:
        """Return (K, K) bool: two robots that make these moves (K,), whenever that is, can come too near."""
        begin, end = (self.points[self.moves[moves, k]].T for k in (0, 1))
        pairs = [x[:, :, None] + np.zeros((1, 1, len(moves))) for x in (begin, end)]
        return self._too_near(segment_distance(*pairs, *(np.swapaxes(x, 1, 2) for x in pairs)))

    def _too_near(self, distance_m: np.ndarray) -> np.ndarray:
        return distance_m < self.separation_m - _ROUNDING_M

    def may_enter(self, robot: int, vertex: int) -> bool:
        """Return whether a vertex is shared, or the robot's own."""
        return bool(self.owner[vertex] in (SHARED, robot))

    def steps_to(self, goal: int) -> list[int]:
        """Return the least number of steps from each vertex to one, other robots aside; `max_steps` + 1 from others."""
        found = [self.max_steps + 1] * len(self.points)
        found[goal], queue = 0, deque([goal])
        while queue:
            here = queue.popleft()
            for _, there in self.moves_from[here]:  # an edge goes both ways
                if found[there] > found[here] + 1:
                    found[there] = found[here] + 1
                    queue.append(there)
        return found

    def moves_of(self, path: Path, steps: int) -> np.ndarray:
        """Return the numbers (steps,) of a path's moves, at rest after its end."""
        held = np.array([*path, *[path[-1]] * max(steps + 1 - len(path), 0)])[: steps + 1]
        return np.array([self._number[pair] for pair in itertools.pairwise(held.tolist())], dtype=int)

    @cached_property
    def _number(self) -> dict[tuple[int, int], int]:
        return {(begin, end): number for number, (begin, end) in enumerate(self.moves.tolist())}


@dataclass(frozen=True)
class RoadmapOfArena:
    """The grid of an arena, to which an episode adds starts and goals."""

    grid_world: np.ndarray  # (G, D) [m]
    edges: np.ndarray  # (L, 2)
    arena: Arena
    step_m: float  # largest length of an edge in scaled heights
    room_m: float  # kept from obstacles
    separation_m: float
    height_ratio: float

    @classmethod
    def create(
        cls, arena: Arena, room_m: float, step_m: float, separation_m: float, height_ratio: float = 1.0
    ) -> "RoadmapOfArena":
        """Return the grid with the most vertices whose neighbours are at least a step apart, ``room_m`` from walls."""
        axes = []
        for axis, (low, high) in enumerate(zip(arena.low_world, arena.high_world, strict=True)):
            apart, free = step_m * (height_ratio if axis == 2 else 1.0), high - low - 2 * room_m
            count = max(int(free / apart + _ROUNDING_M) + 1, 1)
            middle = (low + high) / 2
            axes.append(np.linspace(low + room_m, high - room_m, count) if count > 1 else np.array([middle]))
        shape = [len(axis) for axis in axes]
        points = np.array(list(itertools.product(*axes)), dtype=float)
        number = np.arange(len(points)).reshape(shape)
        edges = np.concatenate(
            [
                np.stack([np.take(number, range(n), axis).ravel(), np.take(number, range(1, n + 1), axis).ravel()], 1)
                for axis, n in enumerate(np.array(shape) - 1)
            ]
        )
        scaled = _scaled(points, height_ratio)
        longest = max(np.linalg.norm(scaled[edges[:, 0]] - scaled[edges[:, 1]], axis=1), default=step_m)
        made = cls(points, edges, arena, float(longest), room_m, separation_m, height_ratio)
        return replace(made, edges=edges[made._free(points[edges[:, 0]], points[edges[:, 1]])])

    def roadmap(self, starts_world: np.ndarray, goals_world: np.ndarray) -> Roadmap:
        """Return the roadmap of a team with starts and goals (N, D) [m].

        Each of them has edges to the grid, and its start to its goal, where they are at most a step apart.
        """
        size, grid = len(starts_world), len(self.grid_world)
        points = np.concatenate([self.grid_world, starts_world, goals_world])
        own = np.tile(np.arange(size), 2)
        pairs = [(grid + k, other) for k in range(2 * size) for other in self._near(points[grid + k])]
        pairs += [(grid + k, grid + size + k) for k in range(size)]
        extra = np.array(pairs)
        scaled = _scaled(points, self.height_ratio)
        short = np.linalg.norm(scaled[extra[:, 0]] - scaled[extra[:, 1]], axis=1) <= self.step_m + _ROUNDING_M
        short[:-size] = True  # `_near` chose them
        extra = extra[short & self._free(points[extra[:, 0]], points[extra[:, 1]])]
        edges = np.concatenate([self.edges, extra])
        made = Roadmap.create(scaled, edges, self.separation_m, 4 * int(np.sqrt(grid)) + 4 * size)
        owned = replace(made, owner=np.concatenate([np.full(grid, SHARED), own]))
        return owned.with_team(tuple(range(grid, grid + size)), tuple(range(grid + size, grid + 2 * size)))

    def _near(self, point_world: np.ndarray) -> list[int]:
        """Return the vertices of the grid within a step of a point; the nearest if there is none."""
        apart = np.linalg.norm(_scaled(self.grid_world - point_world, self.height_ratio), axis=1)
        found = np.flatnonzero(apart <= self.step_m + _ROUNDING_M).tolist()
        return found or [int(np.argmin(apart))]

    def _free(self, begin_world: np.ndarray, end_world: np.ndarray) -> np.ndarray:
        """Return (L,) bool: segments from and to points (L, D) keep their distance from all obstacles."""
        free = np.ones(len(begin_world), bool)
        for obstacle in self.arena.obstacles:
            inside = segment_clearance(obstacle, begin_world.T, end_world.T) >= self.room_m - _ROUNDING_M
            # out of a place that is too near, a robot may go away
            leaves = distance_to(obstacle, end_world.T) > distance_to(obstacle, begin_world.T)
            too_near = distance_to(obstacle, begin_world.T) < self.room_m
            free &= inside | (too_near & leaves & (segment_clearance(obstacle, begin_world.T, end_world.T) > 0))
        return free


def _scaled(points_world: np.ndarray, height_ratio: float) -> np.ndarray:
    """Return points (V, D) with heights over the ratio."""
    if points_world.shape[1] == 2 or height_ratio == 1:
        return points_world
    return points_world / np.array([1.0, 1.0, height_ratio])
