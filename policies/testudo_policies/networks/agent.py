"""An agent: actor, critic and feature normalisation with their parameters."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import jax
import jax.numpy as jnp

from testudo_policies.networks.actor_critic import Actor, Critic, NetworkConfig
from testudo_policies.networks.brax_imports import NormalTanhDistribution, running_statistics, specs
from testudo_policies.networks.observation_encoding import Features, encode, out_of_goal_frame

Params = Any
LEAST_SPREAD = 1e-2  # lower bound of a feature's deviation, so that a nearly constant feature is not amplified


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class AgentParameters:
    """All trained parameters and statistics."""

    actor: Params
    critic: Params
    own_statistics: Any
    neighbour_statistics: Any


@dataclass(frozen=True)
class Agent:
    """The networks of a policy for robots with D space dimensions and a speed limit."""

    config: NetworkConfig
    dimension: int
    speed_limit_m_s: float
    yaw_rate_limit: float = 0.0  # largest commanded yaw rate [rad/s] of drones; 0: no yaw rate is commanded

    @property
    def action_size(self) -> int:
        """Return the size of an action: one number per axis, and one for a yaw rate."""
        return self.dimension + bool(self.yaw_rate_limit)

    @property
    def distribution(self) -> NormalTanhDistribution:
        """Return the action distribution, in (-1, 1) for each axis of the goal frame and for the yaw rate."""
        return NormalTanhDistribution(self.action_size)

    def init(self, key: jax.Array, features: Features, central: Features) -> AgentParameters:
        """Return fresh parameters for features (B, ...) of actor and critic."""
        actor_key, critic_key = jax.random.split(key)
        hidden = self.blank_memory(features.own.shape[0])
        fresh = jnp.zeros((1, features.own.shape[0]), bool)
        return AgentParameters(
            self._actor.init(actor_key, _with_time(features), hidden, fresh),
            self._critic.init(critic_key, central),
            _statistics(features.own),
            _statistics(features.neighbours),
        )

    def blank_memory(self, robots: int) -> jax.Array:
        """Return the memory (robots, M) at the start of an episode."""
        return jnp.zeros((robots, self.config.memory))

    def act(
        self, parameters: AgentParameters, features: Features, hidden: jax.Array, fresh: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Return the distribution's parameters (T, B, 2A) and the new memory; see `Actor`."""
        found = self._actor.apply(parameters.actor, self.normalise(parameters, features), hidden, fresh)
        return cast(tuple[jax.Array, jax.Array], found)

    def value(self, parameters: AgentParameters, central: Features) -> jax.Array:
        """Return values (...) for the critic's features."""
        return cast(jax.Array, self._critic.apply(parameters.critic, central))

    def normalise(self, parameters: AgentParameters, features: Features) -> Features:
        """Return features with approximately zero mean and unit variance."""
        return replace(
            features,
            own=running_statistics.normalize(features.own, parameters.own_statistics),
            neighbours=running_statistics.normalize(features.neighbours, parameters.neighbour_statistics),
        )

    def observe(self, parameters: AgentParameters, features: Features) -> AgentParameters:
        """Return the parameters with statistics updated by features (T, B, ...)."""
        return replace(
            parameters,
            own_statistics=running_statistics.update(
                parameters.own_statistics, features.own, std_min_value=LEAST_SPREAD
            ),
            neighbour_statistics=running_statistics.update(
                parameters.neighbour_statistics, features.neighbours, std_min_value=LEAST_SPREAD
            ),
        )

    def command(self, features: Features, action: jax.Array) -> jax.Array:
        """Return the command of an action (..., A): velocity (..., D) [m/s, world], then any yaw rate [rad/s]."""
        velocity = self.velocity_world(features, action[..., : self.dimension])
        if not self.yaw_rate_limit:
            return velocity
        return jnp.concatenate([velocity, self.yaw_rate_limit * action[..., self.dimension :]], axis=-1)

    def velocity_world(self, features: Features, action: jax.Array) -> jax.Array:
        """Return the control-point velocity (..., D) [m/s, world] of an action (..., D) in the goal frame."""
        length = jnp.sqrt(jnp.sum(action**2, axis=-1, keepdims=True))
        shortened = action / jnp.maximum(length, 1.0)
        return self.speed_limit_m_s * out_of_goal_frame(shortened, features.goal_frame)

    def policy(
        self, parameters: AgentParameters
    ) -> Callable[[Mapping[str, jax.Array], jax.Array], tuple[jax.Array, jax.Array]]:
        """Return the deterministic step (signals (B, ...), hidden (B, M)) -> (command (B, A), hidden)."""

        def step(signals: Mapping[str, jax.Array], hidden: jax.Array) -> tuple[jax.Array, jax.Array]:
            features = encode(signals)
            normalised = self.normalise(parameters, features)
            found = self._actor.apply(parameters.actor, normalised, hidden, method="step")
            logits, hidden = cast(tuple[jax.Array, jax.Array], found)
            return self.command(features, self.distribution.mode(logits)), hidden

        return step

    @property
    def _actor(self) -> Actor:
        return Actor(self.config, self.action_size)

    @property
    def _critic(self) -> Critic:
        return Critic(self.config)


def _with_time(features: Features) -> Features:
    return jax.tree.map(lambda x: x[None], features)


def _statistics(values: jax.Array) -> Any:
    return running_statistics.init_state(specs.Array(values.shape[-1:], jnp.dtype("float32")))
