"""From raw signals to what a network reads: part of the exported graph, so a robot never encodes.

Everything is seen in the goal's horizontal frame (x towards the goal), centred on the own control point,
so that a policy does not depend on where in the world it acts; the world position is kept for the walls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp

_TINY = 1e-6
_NEAR_M = 0.3
_SIGHT_M = 1.5
_PULL = 2.0


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Features:
    """What a network reads; leading batch axes (...)."""

    own: jax.Array
    """(..., F)."""
    neighbours: jax.Array
    """(..., K, G)."""
    nearness: jax.Array
    """(..., K): weight of a peer, from 1 when touching to 0 from `_SIGHT_M` on; 0 if there is none."""
    pull: jax.Array
    """(..., D): action, before the squashing, that leads straight to the goal."""
    goal_frame: jax.Array
    """(..., 2): cosine and sine of the direction to the goal."""


def encode(signals: Mapping[str, jax.Array]) -> Features:
    """Return the features of signals with batch axes first: (..., D), neighbours (..., K, D) or (..., K)."""
    point = signals["control_point_world"]
    offset = signals["goal_world"] - point
    across = jnp.sqrt(jnp.sum(offset[..., :2] ** 2, axis=-1, keepdims=True) + _TINY)
    cosine, sine = offset[..., 0:1] / across, offset[..., 1:2] / across
    distance = jnp.sqrt(jnp.sum(offset**2, axis=-1, keepdims=True) + _TINY)
    yaw = signals["yaw"]
    heading = [jnp.cos(yaw) * cosine + jnp.sin(yaw) * sine, jnp.sin(yaw) * cosine - jnp.cos(yaw) * sine]
    own = jnp.concatenate(
        [distance, jnp.minimum(distance, _NEAR_M) / _NEAR_M, offset[..., 2:], point, cosine, sine, *heading,
         signals["velocity"]], axis=-1)
    place = _into_frame(signals["neighbour_position_world"] - point[..., None, :], cosine, sine)
    velocity = _into_frame(signals["neighbour_velocity_world"], cosine, sine)
    apart = jnp.sqrt(jnp.sum(place**2, axis=-1, keepdims=True) + _TINY)
    parts = [place, apart, 0.2 / (apart + 0.1), velocity, signals["neighbour_age"][..., None]]
    if "neighbour_goal_world" in signals:  # the central critic knows where the peers want to go
        parts.append(_into_frame(signals["neighbour_goal_world"] - point[..., None, :], cosine, sine))
    neighbours = jnp.concatenate(parts, axis=-1)
    nearness = signals["neighbour_valid"] * jnp.clip(1 - apart[..., 0] / _SIGHT_M, 0.0, 1.0)
    pull = _PULL * jnp.concatenate([across, 0 * across, offset[..., 2:]], axis=-1) / (distance + _NEAR_M)
    return Features(own, neighbours, nearness, pull, jnp.concatenate([cosine, sine], axis=-1))


def out_of_goal_frame(vector: jax.Array, goal_frame: jax.Array) -> jax.Array:
    """Return a vector (..., D) of the goal frame in the world."""
    cosine, sine = goal_frame[..., 0:1], goal_frame[..., 1:2]
    x, y = vector[..., 0:1], vector[..., 1:2]
    return jnp.concatenate([cosine * x - sine * y, sine * x + cosine * y, vector[..., 2:]], axis=-1)


def _into_frame(vectors: jax.Array, cosine: jax.Array, sine: jax.Array) -> jax.Array:
    """Return vectors (..., K, D) of the world in the goal frame."""
    cosine, sine = cosine[..., None, :], sine[..., None, :]
    x, y = vectors[..., 0:1], vectors[..., 1:2]
    return jnp.concatenate([cosine * x + sine * y, -sine * x + cosine * y, vectors[..., 2:]], axis=-1)
