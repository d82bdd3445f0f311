"""What a robot's own motion was in each step of a batch: what discriminators of dynamics look at.

Only the own motion, in the own body: the same law everywhere in the world and in every task, so that minutes of a real
run are enough to tell it from the simulated one. Peers act through the shield, which is the same in both.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from testudo_policies.learning.losses import Batch
from testudo_policies.networks.agent import Agent
from testudo_policies.networks.observation_encoding import Features, out_of_goal_frame

STATE, ACTION, NEXT = "state", "action", "next"


def motions(agent: Agent, batch: Batch) -> tuple[dict[str, jax.Array], jax.Array]:
    """Return the motion of each step (T, B, C) by part, and which steps have one (T, B).

    A step that ends an episode has none, nor has the last of the batch: the next row is another robot's or unknown.
    Parts: the velocity before, in the channels of the robot; the action, a velocity in the body [m/s]; and the way
    [m], the turn [rad] and the velocity after.
    """
    size = agent.dimension
    point, yaw, velocity = _own(batch.features, size)
    command = _turned(agent.velocity_world(batch.features, agent.distribution.postprocess(batch.action)), -yaw)
    way = _turned(_next(point) - point, -yaw)
    turn = jnp.remainder(_next(yaw) - yaw + jnp.pi, 2 * jnp.pi) - jnp.pi
    known = ~(batch.terminated | batch.truncated)
    known = known & (jnp.arange(known.shape[0]) < known.shape[0] - 1)[:, None]
    return {STATE: velocity, ACTION: command, NEXT: jnp.concatenate([way, turn, _next(velocity)], axis=-1)}, known


def flat_motion(motion: dict[str, jax.Array], known: jax.Array) -> tuple[dict[str, jax.Array], jax.Array]:
    """Return motions (M, C) in a row and which of them are known (M,)."""
    return {name: value.reshape(-1, value.shape[-1]) for name, value in motion.items()}, known.reshape(-1)


def _own(features: Features, size: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return control point (..., D), yaw (..., 1) and velocity (..., D) out of what `encode` made of them."""
    at = 2 + (size - 2)
    own = features.own
    point, goal = own[..., at : at + size], features.goal_frame
    at += size + 2
    relative = jnp.arctan2(own[..., at + 1], own[..., at])
    yaw = relative + jnp.arctan2(goal[..., 1], goal[..., 0])
    return point, yaw[..., None], own[..., at + 2 : at + 2 + size]


def _turned(vector: jax.Array, angle: jax.Array) -> jax.Array:
    return out_of_goal_frame(vector, jnp.concatenate([jnp.cos(angle), jnp.sin(angle)], axis=-1))


def _next(values: Any) -> jax.Array:
    """Return the values of the step after; the last row is its own."""
    return jnp.concatenate([values[1:], values[-1:]])
