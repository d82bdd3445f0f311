"""Sorted cells: who is near whom in a world of many robots, without an array of all pairs.

Robots are sorted by the cell of a grid that they are in. Cells that follow each other along x follow each other in the
order, so that a robot's surroundings are a few ranges of it, of which fixed numbers of places are read. Every answer
says whether it is `sound`: whether these places held all, and cells could be counted. Where it is not, the callers
compare all pairs, one robot or one shift at a time: slower, with the same result. Positions are (D, N, E) [m].
"""

import itertools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

CROWD = 32
"""Robots from which on a world is searched by cells; smaller ones have arrays of all pairs."""
PEER_SLOTS = CROWD - 1
"""Nearest peers that a robot of a crowd knows of; as many as the largest team without cells has, and one."""

_WIDER = 1.01  # cells are wider than the range by more than what positions lose in rounding, up to this many cells:
_MOST_CELLS = 2.0**14
_MOST_KEYS = 2.0**30
_REACH = 2  # cells of half the range on each side; a narrower surrounding than one of whole cells
_PEER_PLACES = {2: 32, 3: 16}
"""Places read of each row of five cells, by dimension: of robots 0.3 m apart within 1.5 m."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class NearestPeers:
    """The nearest peers of every robot within a range, nearest first."""

    index: jax.Array  # (C, N, E) int: the peer in each slot; of an empty slot the robot itself
    valid: jax.Array  # (C, N, E) bool: the slot holds a peer
    left_out: jax.Array  # (E,) int: peers in range for which there was no slot, over all robots


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SortedCells:
    """The robots of one world in the order of their cells; arrays by place in that order."""

    robot: jax.Array  # (N,) int: who is there
    position_world: jax.Array  # (D, N) [m]
    key: jax.Array  # (N,) int: its cell
    row_steps: jax.Array  # (D - 1,) int: how much the key of the next cell along y, and z, is more
    sound: jax.Array  # () bool: positions are finite, and not too many cells apart


def sorted_cells(position_world: jax.Array, cell_m: jax.Array | float, reach: int) -> SortedCells:
    """Return the cells of one world (D, N) [m], for ranges of ``reach`` cells on each side."""
    finite = jnp.all(jnp.isfinite(position_world))
    cell = jnp.floor(jnp.where(finite, position_world, 0.0) / cell_m)
    low, high = jnp.min(cell, axis=1), jnp.max(cell, axis=1)
    span = high - low + (1 + 2 * reach)  # with empty cells around, so that no range runs on into the next row
    sound = finite & jnp.all(jnp.maximum(-low, high) < _MOST_CELLS) & (jnp.prod(span) < _MOST_KEYS)
    steps = jnp.where(sound, jnp.concatenate([jnp.ones(1), jnp.cumprod(span[:-1])]), 0.0).astype(jnp.int32)
    inside = jnp.where(sound, cell - low[:, None] + reach, 0.0).astype(jnp.int32)
    key = jnp.sum(inside * steps[:, None], axis=0)
    order = jnp.argsort(key)
    return SortedCells(order, position_world[:, order], key[order], steps[1:], sound)


def ranges(cells: SortedCells, reach: int, places: int, *, later: bool) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the surroundings of every robot as places in the order (N, P), which of them belong to it, and soundness.

    ``later`` leaves out the robots before it in the order, so that every pair appears once. Not sound () is a range
    with more than ``places`` robots.
    """
    count = cells.key.shape[0]
    rows = itertools.product(range(-reach, reach + 1), repeat=cells.row_steps.shape[0])
    steps = np.array([row[::-1] for row in rows])  # of x rows, by y and z
    if later:
        steps = steps[len(steps) // 2 + 1 :]
    begin = cells.key[:, None] + jnp.asarray(steps) @ cells.row_steps - reach
    first = jnp.searchsorted(cells.key, begin.reshape(-1)).reshape(begin.shape).astype(jnp.int32)
    if later:  # and the rest of the own row
        begin = jnp.concatenate([begin, cells.key[:, None] - reach], axis=1)
        first = jnp.concatenate([first, jnp.arange(1, count + 1, dtype=jnp.int32)[:, None]], axis=1)
    place = first[..., None] + jnp.arange(places + 1, dtype=jnp.int32)
    held = jnp.minimum(place, count - 1)
    belongs = (place < count) & (taken(cells.key, held) <= begin[..., None] + 2 * reach)
    sound = cells.sound & ~jnp.any(belongs[..., -1])
    return held[..., :-1].reshape(count, -1), belongs[..., :-1].reshape(count, -1), sound


def taken(values: jax.Array, index: jax.Array) -> jax.Array:
    """Return ``values`` (M, ...) at indices that are known to be within."""
    return values.at[index].get(mode="promise_in_bounds")


def distances_from(cells: SortedCells, place: jax.Array) -> jax.Array:
    """Return the distance of every robot of the order to those at the places (N, P) [m]."""
    offsets = (taken(axis, place) - axis[:, None] for axis in cells.position_world)
    return jnp.sqrt(sum((offset**2 for offset in offsets), start=jnp.zeros(place.shape)))


def nearest_peers(position_world: jax.Array, range_m: float, slots: int = PEER_SLOTS) -> NearestPeers:
    """Return up to ``slots`` nearest peers within a range of each robot; peers that are left out are counted.

    A peer whose distance is not finite comes first: nobody may take it for absent.
    """
    slots = min(slots, position_world.shape[1] - 1)
    found, sound = jax.vmap(lambda one: _nearest(one, range_m, slots), in_axes=-1, out_axes=-1)(position_world)
    return jax.lax.cond(jnp.all(sound), lambda: found, lambda: _nearest_of_all(position_world, range_m, slots))


def _nearest(position_world: jax.Array, range_m: float, slots: int) -> tuple[NearestPeers, jax.Array]:
    """Return the peers (C, N) of one world (D, N), and soundness."""
    dimension, count = position_world.shape
    cells = sorted_cells(position_world, _WIDER * range_m / _REACH, _REACH)
    place, belongs, sound = ranges(cells, _REACH, min(_PEER_PLACES[dimension], count), later=False)
    here = jnp.arange(count, dtype=jnp.int32)
    distance = distances_from(cells, place)
    seen = belongs & (place != here[:, None]) & (distance <= range_m)
    least, which = jax.lax.top_k(jnp.where(seen, -distance, -jnp.inf), slots)
    valid = least > -jnp.inf
    peer = jnp.where(valid, jnp.take_along_axis(place, which, axis=1), here[:, None])
    back = jnp.zeros(count, jnp.int32).at[cells.robot].set(here)
    index = taken(cells.robot, taken(peer, back)).T.astype(jnp.int32)
    left_out = jnp.sum(jnp.maximum(jnp.sum(seen, axis=1) - slots, 0))
    return NearestPeers(index, taken(valid, back).T, left_out), sound


def _nearest_of_all(position_world: jax.Array, range_m: float, slots: int) -> NearestPeers:
    """Return the same by comparing every robot with all, one robot at a time."""
    count = position_world.shape[1]
    robots = jnp.arange(count, dtype=jnp.int32)

    def of(robot: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        offset = position_world - position_world[:, robot][:, None]
        distance = jnp.sqrt(jnp.sum(offset**2, axis=0))
        distance = jnp.where(jnp.isfinite(distance), distance, 0.0)
        seen = (robots != robot)[:, None] & (distance <= range_m)
        least, index = jax.lax.top_k(jnp.where(seen, -distance, -jnp.inf).T, slots)
        valid = least > -jnp.inf
        return jnp.where(valid, index, robot), valid, jnp.maximum(jnp.sum(seen, axis=0) - slots, 0)

    index, valid, left_out = jax.lax.map(of, robots)  # (N, E, C)
    to_slots = (2, 0, 1)
    left = jnp.sum(left_out, axis=0)
    return NearestPeers(jnp.transpose(index, to_slots).astype(jnp.int32), jnp.transpose(valid, to_slots), left)
