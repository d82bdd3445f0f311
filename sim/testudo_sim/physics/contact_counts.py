"""Contacts and distances of a team: (D, N, E) positions in, (E,) counts out."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp

from testudo_deploy.shield.arena import Arena, clearance
from testudo_deploy.shield.segment_distance import squeezed


def pair_distances(position_world: jax.Array) -> jax.Array:
    """Return the distances of all pairs (pairs, E) [m]."""
    first, second = zip(*itertools.combinations(range(position_world.shape[1]), 2), strict=True)
    offset = position_world[:, jnp.array(first)] - position_world[:, jnp.array(second)]
    return jnp.sqrt(jnp.sum(offset**2, axis=0))


def least_separation(position_world: jax.Array, height_ratio: float = 1.0) -> jax.Array:
    """Return the least distance between two centres (E,) [m]; infinite for a single robot.

    Heights count 1/``height_ratio``: then it compares with the separation that the shield enforces. Whether bodies
    touch is told by `count_contacts`, in which heights count in full.
    """
    if position_world.shape[1] < 2:
        return jnp.full(position_world.shape[-1], jnp.inf)
    return jnp.min(pair_distances(squeezed(position_world, height_ratio)), axis=0)


def count_contacts(position_world: jax.Array, radius_m: float, arena: Arena | None) -> jax.Array:
    """Return how many pairs of robots overlap plus how often one overlaps the walls or an obstacle (E,).

    A position that is not a number counts as a contact.
    """
    count = jnp.zeros(position_world.shape[-1], jnp.int32)
    if position_world.shape[1] > 1:
        count = count + jnp.sum(~(pair_distances(position_world) >= 2 * radius_m), axis=0)
    if arena is not None:
        shape = (len(arena.low_world), 1, 1)
        low, high = (jnp.reshape(jnp.array(x), shape) for x in (arena.low_world, arena.high_world))
        inside = (position_world >= low + radius_m) & (position_world <= high - radius_m)
        count = count + jnp.sum(~jnp.all(inside, axis=0), axis=0)
        for obstacle in arena.obstacles:
            count = count + jnp.sum(~(clearance(obstacle, position_world)[0] >= radius_m), axis=0)
    return count
