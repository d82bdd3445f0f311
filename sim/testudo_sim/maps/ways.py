"""Shortest ways of a robot on a flat map: a table of lengths that is made once, and looked up in many worlds.

Nodes are the centres of square cells and the points half-way between them; a node is joined with the eight around it
to which a robot can drive straight. The table holds the length of the way from every node to every goal (Dijkstra;
lengths count more where there is no room to spare). A place is joined with the nodes around it in the same way when it
is looked up, so that a robot that follows its way comes nearer all the time.
"""

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components, dijkstra

from testudo_deploy.shield.arena import Arena, clearances, segment_clearances
from testudo_hardware.errors import TestudoError

_SPARE_M, _NARROW = 0.1, 1.3  # room to spare, and what lengths count where there is less
_BLOCKED_M = 1e3  # what a node counts that cannot be driven to
_PASSED = 0.2  # a node that is nearer than this share of their distance is behind: its way goes on
_ROUNDING_M = 1e-3  # by which a way may come nearer to an obstacle
_AROUND = tuple((a, b) for a in (-1, 0, 1) for b in (-1, 0, 1))
_FORWARD = tuple(step for step in _AROUND if step > (0, 0))


@dataclass(frozen=True, eq=False)
class Ways:
    """The ways on one map; W nodes, G of them cells where a robot can start and arrive."""

    arena: Arena
    drive_m: float  # how far a robot keeps from obstacles as it drives
    first_world: np.ndarray  # (2,) [m]: the node of least x and y
    step_m: float  # distance of neighbouring nodes
    nodes_world: np.ndarray  # (W, 2) float32 [m], x first
    goals: np.ndarray  # (G,) int: nodes where a robot can start and arrive, all in one part of the map
    left_m: np.ndarray  # (G, W) float32 [m]: length of the way, a large number where there is none
    nearest: np.ndarray  # (W,) int: number of the nearest goal

    @property
    def longest_m(self) -> float:
        """Return the length of the longest way between two goals [m]."""
        return float(self.left_m[:, self.goals].max())

    def towards(self, place_world: jax.Array, goal_world: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the place to drive to on the way to a goal, (2, ...) [m], and how far the goal is that way, (...) [m].

        ``place_world`` and ``goal_world`` (2, ...) [m]. At the end of the way the place is the goal itself. A goal that
        no robot can reach counts as the nearest that it can.
        """
        goal = jnp.asarray(self.nearest)[self._node(self._steps(goal_world))]
        middle = self._steps(place_world)
        at = jnp.stack([self._node(middle + self._like(step, middle)) for step in _AROUND])
        nodes = jnp.moveaxis(jnp.asarray(self.nodes_world)[at], -1, 0)
        target = jnp.where(at == jnp.asarray(self.goals)[goal], goal_world[:, None], nodes)
        way = jnp.sqrt(jnp.sum((target - place_world[:, None]) ** 2, axis=0) + 1e-12)
        left = way + jnp.asarray(self.left_m)[goal, at]
        passed = (way < _PASSED * self.step_m) & (at != jnp.asarray(self.goals)[goal])
        best = jnp.argmin(left + _BLOCKED_M * (passed | ~self._is_free(place_world, target)), axis=0)[None]
        chosen = jnp.take_along_axis(target, best[None], axis=1)[:, 0]
        return chosen, jnp.take_along_axis(left, best, axis=0)[0]

    def _is_free(self, place_world: jax.Array, target_world: jax.Array) -> jax.Array:
        """Return whether robots at (2, ...) can drive straight to places (2, K, ...): (K, ...).

        A robot that is nearer to an obstacle than ways are comes no nearer.
        """
        if not self.arena.obstacles:
            return jnp.ones(target_world.shape[1:], bool)
        starts = jnp.broadcast_to(place_world[:, None], target_world.shape)
        room = jnp.min(segment_clearances(self.arena.groups, starts, target_world), axis=0)
        own = jnp.min(clearances(self.arena.groups, place_world)[0], axis=0)
        return room >= jnp.minimum(own, self.drive_m) - _ROUNDING_M

    def _steps(self, place_world: jax.Array) -> jax.Array:
        """Return the node nearest to places (2, ...) [m], as steps from the first one."""
        return jnp.round((place_world - self._like(self.first_world, place_world)) / self.step_m)

    def _node(self, steps: jax.Array) -> jax.Array:
        """Return the number of the nodes (...) at whole steps (2, ...) from the first, the nearest that there is."""
        side = round(len(self.nodes_world) ** 0.5)
        index = jnp.clip(steps, 0, side - 1).astype(jnp.int32)
        return index[0] * side + index[1]

    @staticmethod
    def _like(pair: np.ndarray | tuple[int, int], array: jax.Array) -> jax.Array:
        return jnp.reshape(jnp.asarray(pair, array.dtype), (2,) + (1,) * (array.ndim - 1))


@functools.lru_cache(maxsize=8)
def ways_on(arena: Arena, cells: int, drive_m: float, rest_m: float) -> Ways:
    """Return the ways on a square map.

    Args:
        arena: the map.
        cells: cells along a side; robots start and arrive at their centres.
        drive_m: how far a robot keeps from obstacles and walls as it drives.
        rest_m: how far it keeps at its start and goal.

    Raises:
        TestudoError: no cell is free.
    """
    low, high = np.array(arena.low_world), np.array(arena.high_world)
    step = float(high[0] - low[0]) / cells / 2
    index = np.indices((2 * cells - 1,) * 2).reshape(2, -1)
    nodes = low[:, None] + (index + 1) * step
    room = np.minimum((nodes - low[:, None]).min(axis=0), (high[:, None] - nodes).min(axis=0))
    if arena.obstacles:
        room = np.minimum(room, clearances(arena.groups, nodes)[0].min(axis=0))
    graph = _graph(arena, nodes, room >= drive_m, drive_m)
    part = connected_components(graph, directed=False)[1]
    can_rest = np.all(index % 2 == 0, axis=0) & (room >= rest_m)
    if not can_rest.any():
        raise TestudoError("map: found no cell that is free of obstacles for this robot; expected another map")
    goals = np.flatnonzero(can_rest & (part == np.argmax(np.bincount(part[can_rest]))))
    length = dijkstra(graph, directed=False, indices=goals)
    apart = np.sum((nodes[:, goals, None] - nodes[:, None]) ** 2, axis=0)
    return Ways(
        arena,
        drive_m,
        low + step,
        step,
        nodes.T.astype(np.float32),
        goals,
        np.minimum(length, _BLOCKED_M).astype(np.float32),
        np.argmin(apart, axis=0).astype(np.int32),
    )


def _graph(arena: Arena, nodes: np.ndarray, free: np.ndarray, drive_m: float) -> csr_array:
    """Return the costs (W, W) [m] between free nodes (2, W), side by side, with a straight free way."""
    side = round(len(free) ** 0.5)
    index = np.indices((side, side)).reshape(2, -1)
    ends = []
    for step in _FORWARD:
        moved = index + np.array(step)[:, None]
        one = np.flatnonzero(np.all((moved >= 0) & (moved < side), axis=0) & free)
        other = one + step[0] * side + step[1]
        ends.append(np.stack([one, other])[:, free[other]])
    one, other = np.concatenate(ends, axis=1)
    room = np.full(len(one), np.inf)
    if arena.obstacles:
        room = segment_clearances(arena.groups, nodes[:, one], nodes[:, other]).min(axis=0)
    cost = np.linalg.norm(nodes[:, one] - nodes[:, other], axis=0)
    cost = np.where(room >= drive_m + _SPARE_M, cost, _NARROW * cost)
    kept = room >= drive_m
    return coo_array((cost[kept], (one[kept], other[kept])), shape=(len(free), len(free))).tocsr()
