"""Narrow passages of the map: free places between walls and obstacles where two robots cannot pass each other.

Found once on a grid, from what the contract knows: the arena, its obstacles, and the margins of layer 1. A passage is a
straight group of narrow places that robots pass along one axis. Groups that are bent are left out.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np

from testudo_deploy.shield.arena import Arena, distance_to
from testudo_hardware.arrays import Array, array_namespace, min_of

_CELL = 1 / 8  # size of a grid cell, in separations
_LARGEST_GRID = 400  # cells along one side
_AXES = 8  # directions in which the width is measured, over half a turn
_STEPS = 12  # in which a free way is measured
_OPEN = 1.2  # how far a passage is open along its axis from each of its places, in separations
_STRAIGHT = 0.5  # a straight group fills at least this share of its box


@dataclass(frozen=True)
class Passage:
    """A straight passage; the axis points to the side of larger x, or of larger y where x is equal."""

    centre_world: tuple[float, float]  # [m]
    axis_world: tuple[float, float]  # unit vector
    half_length_m: float
    half_width_m: float  # of the places where a control point can be


def beyond_walls(wall_m: float, arena: Arena, place_world: Array) -> Array:
    """Return by how much [m] places (D, ...) are nearer than ``wall_m`` to walls and obstacles."""
    xp = array_namespace(place_world)
    low, high = (xp.reshape(side, (-1,) + (1,) * (place_world.ndim - 1)) for side in arena.corners(place_world))
    room = min_of(xp.minimum(place_world - low, high - place_world), axis=0)
    for obstacle in arena.obstacles:
        room = xp.minimum(room, distance_to(obstacle, place_world))
    return xp.maximum(wall_m - room, 0 * room)


@functools.lru_cache(maxsize=32)
def passages(arena: Arena | None, separation_m: float, wall_m: float) -> tuple[Passage, ...]:
    """Return the passages of a flat map, for robots that keep these distances from each other and from walls [m]."""
    if arena is None or len(arena.low_world) != 2 or not arena.obstacles:
        return ()
    sides = [(low, high - low) for low, high in zip(arena.low_world, arena.high_world, strict=True)]
    cell = max(_CELL * separation_m, max(size for _, size in sides) / _LARGEST_GRID)
    counts = [max(math.ceil(size / cell), 1) for _, size in sides]
    index = np.indices((counts[0], counts[1]))
    grid = np.stack([low + (index[d] + 0.5) * size / counts[d] for d, (low, size) in enumerate(sides)])
    # only beside walls and obstacles a place can be narrow
    beside = (beyond_walls(wall_m, arena, grid) <= 0) & (beyond_walls(wall_m + separation_m, arena, grid) > 0)
    narrow, angle = np.zeros(beside.shape, bool), np.zeros(beside.shape)
    narrow[beside], angle[beside] = _narrow(arena, grid[:, beside], separation_m, wall_m)
    found = (_passage(grid, angle, cells, cell) for cells in _groups(narrow))
    return tuple(passage for passage in found if passage is not None)


def _narrow(arena: Arena, place: np.ndarray, separation_m: float, wall_m: float) -> tuple[np.ndarray, np.ndarray]:
    """Return which free places (2, n) are narrow, and the angle [rad] of the axis along which robots pass there."""
    reaches = separation_m * np.linspace(0.0, _OPEN, _STEPS + 1)[1:]
    turns = math.pi * np.arange(2 * _AXES) / _AXES
    way = np.full((2 * _AXES, place.shape[1]), reaches[-1])  # free way in each direction
    for k, turn in enumerate(turns):
        step = np.array([[math.cos(turn)], [math.sin(turn)]])
        for reach in reaches[::-1]:
            way[k] = np.where(beyond_walls(wall_m, arena, place + reach * step) > 0, reach, way[k])
    width = way[:_AXES] + way[_AXES:]
    is_open = np.minimum(way[:_AXES], way[_AXES:]) >= reaches[-1]
    width = np.where(np.roll(is_open, -_AXES // 2, axis=0), width, np.inf)
    least = np.min(width, axis=0)
    # the middle of the axes across that are as short; angles of axes repeat after half a turn
    twice = 2 * turns[:_AXES, None]
    sine, cosine = (
        np.sum(np.where(width <= least + 1e-9, part, 0.0), axis=0) for part in (np.sin(twice), np.cos(twice))
    )
    return least < separation_m, np.arctan2(sine, cosine) / 2 + math.pi / 2


def _groups(narrow: np.ndarray) -> list[np.ndarray]:
    """Return the connected groups of places, each as indices (2, n)."""
    left = {(int(i), int(j)) for i, j in np.argwhere(narrow)}
    groups: list[np.ndarray] = []
    while left:
        edge = [left.pop()]
        group = [*edge]
        while edge:
            i, j = edge.pop()
            near = {(i + a, j + b) for a in (-1, 0, 1) for b in (-1, 0, 1)} & left
            left -= near
            group += near
            edge += near
        groups.append(np.array(sorted(group)).T)
    return groups


def _passage(grid: np.ndarray, angle: np.ndarray, cells: np.ndarray, cell: float) -> Passage | None:
    """Return the passage of a group of places (2, n); None if it is bent."""
    places, turn = grid[:, cells[0], cells[1]], angle[cells[0], cells[1]]
    mean = math.atan2(np.mean(np.sin(2 * turn)), np.mean(np.cos(2 * turn))) / 2
    axis = np.array([math.cos(mean), math.sin(mean)])
    if round(axis[0], 6) < 0 or (round(axis[0], 6) == 0 and axis[1] < 0):
        axis = -axis
    along, across = axis @ places, axis[0] * places[1] - axis[1] * places[0]
    size = [float(np.max(values) - np.min(values)) + cell for values in (along, across)]
    if cells.shape[1] * cell**2 < _STRAIGHT * size[0] * size[1]:
        return None
    middle = [(np.max(values) + np.min(values)) / 2 for values in (along, across)]
    centre = middle[0] * axis + middle[1] * np.array([-axis[1], axis[0]])
    return Passage((float(centre[0]), float(centre[1])), (float(axis[0]), float(axis[1])), size[0] / 2, size[1] / 2)
