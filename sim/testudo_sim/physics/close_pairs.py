"""Contacts and the least distance in a crowd, by sorted cells; exactly those of all pairs.

Where the cells cannot answer (a position that is not finite, more robots in a few cells than places are read, which
in the plane means many contacts), all pairs are compared, shift by shift, with memory for one shift.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from testudo_sim.physics.neighbour_cells import distances_from, ranges, sorted_cells

_WIDER = 1.01  # of cells over the range, see `neighbour_cells`
_CONTACT_PLACES = {2: 12, 3: 16}
"""Places read of each row of three cells, by dimension; as many discs as fit without a contact."""
_CLOSEST_PLACES = 24
"""Places read of each row of three cells for the least distance. With more, nine robots of the plane are in one cell,
and two of them within half of it."""
_SPACING = 1.2  # of N points in an area A two are no further apart than 1.1 times the root of A / N
_HALVINGS = 16


def touching_pairs(position_world: jax.Array, contact_m: float) -> jax.Array:
    """Return the number of pairs that are not at least ``contact_m`` apart (E,), from positions (D, N, E) [m]."""
    places = _CONTACT_PLACES[position_world.shape[0]]

    def one(world: jax.Array) -> tuple[jax.Array, jax.Array]:
        distance, belongs, sound = _distances(world, jnp.float32(contact_m), places)
        return jnp.sum(belongs & ~(distance >= contact_m)), sound

    count, sound = jax.vmap(one, in_axes=-1)(position_world)
    return jax.lax.cond(jnp.all(sound), lambda: count, lambda: _over_shifts(position_world, *_counting(contact_m)))


def closest_distance(position_world: jax.Array) -> jax.Array:
    """Return the least distance of two robots (E,) [m], from positions (D, N, E) [m].

    The search begins with cells in which the closest pair cannot be missed if the robots fill their surroundings
    evenly; where a cell has too many of them, it goes on with cells of half the size.
    """

    def one(world: jax.Array, range_m: jax.Array) -> tuple[jax.Array, jax.Array]:
        distance, belongs, sound = _distances(world, range_m, _CLOSEST_PLACES)
        return jnp.min(jnp.where(belongs, distance, jnp.inf)), sound

    search = jax.vmap(one, in_axes=(-1, 0))

    def again(found: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        range_m, _, sound, halvings = found
        range_m = jnp.where(sound, range_m, range_m / 2)
        return (range_m, *search(position_world, range_m), halvings + 1)

    begin = _even_spacing(position_world)
    finite = jnp.all(jnp.isfinite(position_world))
    range_m, least, sound, _ = jax.lax.while_loop(
        lambda found: finite & ~jnp.all(found[2]) & (found[3] < _HALVINGS),
        again,
        (begin, *search(position_world, begin), jnp.int32(0)),
    )
    # a closest pair beyond the range can have been missed
    return jax.lax.cond(
        finite & jnp.all(sound & (least <= range_m)), lambda: least, lambda: _over_shifts(position_world, *_LEAST)
    )


def _distances(world: jax.Array, range_m: jax.Array, places: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the distances of pairs (N, P) [m] of one world (D, N), which of them are pairs, and soundness.

    All pairs within the range are among them, each once.
    """
    cells = sorted_cells(world, _WIDER * range_m, 1)
    place, belongs, sound = ranges(cells, 1, min(places, world.shape[1]), later=True)
    return distances_from(cells, place), belongs, sound


def _even_spacing(position_world: jax.Array) -> jax.Array:
    """Return the spacing (E,) [m] of robots that fill the box around them evenly, and some more; above zero."""
    dimension, count = position_world.shape[:2]
    sides = jnp.max(position_world, axis=1) - jnp.min(position_world, axis=1)
    longest = jnp.max(sides, axis=0)
    # a box without a width has a spacing along its length
    sides = jnp.maximum(sides, longest / count)
    # points at the rim have room beyond it
    spacing = jnp.prod(sides / count ** (1 / dimension), axis=0) ** (1 / dimension)
    spacing = jnp.prod((sides + spacing) / count ** (1 / dimension), axis=0) ** (1 / dimension)
    return jnp.maximum(jnp.where(jnp.isfinite(spacing), _SPACING * spacing, 1.0), 1e-6)


def _counting(contact_m: float) -> tuple[Callable[..., jax.Array], Callable[..., jax.Array]]:
    """Return start and step of the number of contacts, for `_over_shifts`."""

    def step(total: jax.Array, distance: jax.Array, is_pair: jax.Array) -> jax.Array:
        return total + jnp.sum(is_pair & ~(distance >= contact_m), axis=0)

    return lambda worlds: jnp.zeros(worlds, jnp.int32), step


def _lesser(total: jax.Array, distance: jax.Array, is_pair: jax.Array) -> jax.Array:
    return jnp.minimum(total, jnp.min(jnp.where(is_pair, distance, jnp.inf), axis=0))


_LEAST = (lambda worlds: jnp.full(worlds, jnp.inf), _lesser)


def _over_shifts(
    position_world: jax.Array, begin: Callable[..., jax.Array], step: Callable[..., jax.Array]
) -> jax.Array:
    """Return what ``step`` makes of the distances (N, E) [m] of each robot to the one ``shift`` places further."""
    count, worlds = position_world.shape[1:]
    robots = jnp.arange(count)[:, None]

    def body(shift: jax.Array, total: jax.Array) -> jax.Array:
        offset = position_world - jnp.roll(position_world, shift, axis=1)
        twice = (2 * shift == count) & (robots >= shift)  # halfway round, each pair appears from both sides
        return step(total, jnp.sqrt(jnp.sum(offset**2, axis=0)), ~twice)

    return jax.lax.fori_loop(1, count // 2 + 1, body, begin(worlds))
