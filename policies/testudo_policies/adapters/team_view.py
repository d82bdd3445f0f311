"""The flat observation and bounded action of each robot, for trainers of other libraries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from testudo_hardware.errors import TestudoError
from testudo_policies.networks.actor_critic import NetworkConfig
from testudo_policies.networks.agent import Agent
from testudo_policies.networks.observation_encoding import Features
from testudo_policies.networks.waypoint_choice import WaypointChoice
from testudo_sim.environment import Environment, WorldState


@dataclass(frozen=True)
class ObservationLayout:
    """Layout of one robot's features in a flat vector."""

    shapes: tuple[tuple[int, ...], ...]  # shape of each array of `Features` for one robot
    tree: Any  # how the arrays make `Features`

    @classmethod
    def of(cls, features: Features, batch_axes: int) -> ObservationLayout:
        """Return the layout of features with ``batch_axes`` leading batch axes."""
        leaves, tree = jax.tree.flatten(features)
        return cls(tuple(leaf.shape[batch_axes:] for leaf in leaves), tree)

    @property
    def size(self) -> int:
        """Return the length of the vector."""
        return sum(math.prod(shape) for shape in self.shapes)

    def flat(self, features: Features) -> jax.Array:
        """Return features (..., *shape) as vectors (..., size)."""
        batch = features.own.shape[:-1]
        return jnp.concatenate([part.reshape(*batch, -1) for part in jax.tree.leaves(features)], axis=-1)

    def features(self, vectors: jax.Array) -> Features:
        """Return vectors (..., size) as features (..., *shape)."""
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])
        parts = jnp.split(vectors, ends[:-1], axis=-1)
        leaves = [part.reshape(*vectors.shape[:-1], *shape) for part, shape in zip(parts, self.shapes, strict=True)]
        return jax.tree.unflatten(self.tree, leaves)


@dataclass(frozen=True)
class TeamView:
    """A scenario from the view of each robot, in the same form for all, for a shared policy.

    The observation is the input of Testudo's actor before normalisation; with ``central`` the input of the
    central critic follows in the same vector. An action is a velocity in the frame that the scenario
    declares, each axis in (-1, 1); vectors longer than 1 are scaled to full speed. Of a team that commands way-points
    an action is the number of one of its ``choices``.
    """

    environment: Environment
    central: bool = False

    def __post_init__(self) -> None:
        """Check the commands of the team; raises `TestudoError` where other libraries cannot give them."""
        team = self.environment.team
        if team.yaw_rate_limit or team.message_size:
            found = "yaw rates" if team.yaw_rate_limit else "messages"
            raise TestudoError(f"adapter: found a team that commands {found}, expected velocities or way-points alone")

    @property
    def team_size(self) -> int:
        """Return the number of robots in a world."""
        return self.environment.team.size

    @property
    def action_size(self) -> int:
        """Return the number of space dimensions D."""
        return self.environment.team.model.spec.dimension

    @property
    def waypoints(self) -> WaypointChoice | None:
        """Return the way-points among which an action chooses; None where it is a velocity."""
        if self.environment.team.tracking is None:
            return None
        spec, arena = self.environment.team.model.spec, self.environment.scenario.arena
        speed_m_s, decision_s = spec.control_point_speed_m_s, self.environment.decision_s
        return WaypointChoice.create(speed_m_s, decision_s, arena, spec.dimension)

    @property
    def choices(self) -> int:
        """Return the number of way-points among which an action chooses; 0 where it is a velocity."""
        return 0 if self.waypoints is None else self.waypoints.count

    @property
    def layouts(self) -> tuple[ObservationLayout, ...]:
        """Return the layouts of the actor's part and, with ``central``, of the critic's."""
        keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 1))
        parts = jax.eval_shape(lambda given: self._parts(self.environment.reset(given)), keys)
        return tuple(ObservationLayout.of(part, 2) for part in parts)

    @property
    def observation_size(self) -> int:
        """Return the length of an observation."""
        return sum(layout.size for layout in self.layouts)

    def observe(self, worlds: WorldState) -> jax.Array:
        """Return the observations (E, N, size)."""
        parts = self._parts(worlds)
        return jnp.concatenate([ObservationLayout.of(part, 2).flat(part) for part in parts], axis=-1)

    def command(self, worlds: WorldState, action: jax.Array) -> jax.Array:
        """Return the commands (E, N, D) of actions.

        Control-point velocities [m/s, world] of actions (E, N, D); way-points [m, world] of choices (E, N).
        """
        signals, waypoints = self.environment.signals(worlds), self.waypoints
        agent = replace(self.agent, waypoints=waypoints)
        weights = action if waypoints is None else waypoints.postprocess(action)
        return agent.command(agent.encode(signals), weights)

    def _parts(self, worlds: WorldState) -> Sequence[Features]:
        own = self.agent.encode(self.environment.signals(worlds))
        return (own, self.agent.encode_central(self.environment.central_signals(worlds))) if self.central else (own,)

    @property
    def agent(self) -> Agent:
        """Return what encodes signals and scales actions; it has no networks of its own."""
        spec = self.environment.team.model.spec
        observation = self.environment.scenario.observation
        return Agent(NetworkConfig(), spec.dimension, spec.control_point_speed_m_s, observation)


def typed_key(key: jax.Array) -> jax.Array:
    """Return typed keys; other libraries pass keys as integers (..., 2)."""
    return key if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else jax.random.wrap_key_data(key)
