"""Testudo's actor and critic behind brax's network interfaces: brax learns an `AgentParameters`.

brax normalises each entry of a flat observation. Its running statistics are converted to those of an
agent: one mean and deviation for each own feature, and one for each feature of a neighbour, pooled
over the slots. Therefore the network that brax trains is the network that is exported.
"""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass, replace
from typing import Any, cast

import jax
import jax.numpy as jnp
from flax import linen as nn

from testudo_policies.adapters.team_view import ObservationLayout, TeamView
from testudo_policies.networks.actor_critic import NetworkConfig, TeamEncoder
from testudo_policies.networks.agent import LEAST_SPREAD, Agent, AgentParameters, Params, no_returns
from testudo_policies.networks.observation_encoding import Features

# brax imports mujoco.mjx, which prints that warp is missing
with contextlib.redirect_stdout(io.StringIO()):
    from brax.training.agents.ppo.networks import PPONetworks
    from brax.training.agents.sac.networks import SACNetworks
    from brax.training.networks import FeedForwardNetwork
    from brax.training.types import identity_observation_preprocessor as unchanged

_CRITICS = 2  # number of SAC's critics; SAC uses the lower estimate (Fujimoto et al., 2018)


class ActionCritic(nn.Module):
    """Maps features and action to two estimates of the action's value, for SAC."""

    config: NetworkConfig

    @nn.compact
    def __call__(self, features: Features, action: jax.Array) -> jax.Array:
        """Return the estimates (..., 2) for actions (..., D)."""
        estimates = []
        for _ in range(_CRITICS):
            x = jnp.concatenate([TeamEncoder(self.config.width, self.config.attention)(features), action], axis=-1)
            x = nn.tanh(nn.Dense(self.config.width)(x))
            x = nn.tanh(nn.Dense(self.config.width)(x))
            estimates.append(nn.Dense(1)(x))
        return jnp.concatenate(estimates, axis=-1)


@dataclass(frozen=True)
class BraxNetworks:
    """The networks of a feed-forward agent for observations of a `TeamView`."""

    agent: Agent
    layouts: tuple[ObservationLayout, ...]  # layouts of the view: the actor's part, and that of a central critic
    action_size: int

    @classmethod
    def of(cls, agent: Agent, view: TeamView) -> BraxNetworks:
        """Return the networks for the observations of a view."""
        return cls(agent, view.layouts, view.action_size)

    def for_ppo(
        self, observation_size: Any, action_size: int, preprocess_observations_fn: Any = unchanged
    ) -> PPONetworks:
        """Return brax's PPO networks; a `network_factory`, whose arguments are not needed here."""
        critic = FeedForwardNetwork(self._init_critic, self._value)
        return cast(Any, PPONetworks)(self._policy(), critic, self.agent.distribution)

    def for_sac(
        self, observation_size: Any, action_size: int, preprocess_observations_fn: Any = unchanged
    ) -> SACNetworks:
        """Return brax's SAC networks: Testudo's actor and separate critics; a `network_factory`."""
        critic = FeedForwardNetwork(self._init_action_critic, self._action_value)
        return cast(Any, SACNetworks)(self._policy(), critic, self.agent.distribution)

    def parameters(self, statistics: Any, actor: Params, critic: Params) -> AgentParameters:
        """Return brax's running statistics and networks as an agent's parameters."""
        own, neighbours, entities = pooled(statistics, self.layouts[0])
        return AgentParameters(actor, critic, own, neighbours, no_returns(), entities)

    def _policy(self) -> FeedForwardNetwork:
        return FeedForwardNetwork(lambda key: self._init(key).actor, self._logits)

    def _logits(self, statistics: Any, actor: Params, observation: jax.Array) -> jax.Array:
        features = self._parts(observation)[0]
        no_memory = self.agent.blank_memory(0)
        return self.agent.act(self.parameters(statistics, actor, None), features, no_memory, no_memory)[0]

    def _init_critic(self, key: jax.Array) -> Params:
        return self._init(key).critic

    def _value(self, statistics: Any, critic: Params, observation: jax.Array) -> jax.Array:
        return self.agent.value(
            self.parameters(statistics, None, critic), self._critic_features(statistics, observation)
        )

    def _init_action_critic(self, key: jax.Array) -> Params:
        features = self._blank()[-1]
        return ActionCritic(self.agent.config).init(key, features, jnp.zeros((1, self.action_size)))

    def _action_value(self, statistics: Any, critic: Params, observation: jax.Array, action: jax.Array) -> jax.Array:
        features = self._critic_features(statistics, observation)
        return cast(jax.Array, ActionCritic(self.agent.config).apply(critic, features, action))

    def _critic_features(self, statistics: Any, observation: jax.Array) -> Features:
        parts = self._parts(observation)
        if self.agent.config.central_critic:
            return parts[1]
        return self.agent.normalise(self.parameters(statistics, None, None), parts[0])

    def _parts(self, observation: jax.Array) -> list[Features]:
        ends = [sum(layout.size for layout in self.layouts[:count]) for count in range(1, len(self.layouts))]
        return [
            layout.features(part)
            for layout, part in zip(self.layouts, jnp.split(observation, ends, axis=-1), strict=True)
        ]

    def _init(self, key: jax.Array) -> AgentParameters:
        blank = self._blank()
        return self.agent.init(key, blank[0], blank[-1])

    def _blank(self) -> list[Features]:
        return self._parts(jnp.zeros((1, sum(layout.size for layout in self.layouts))))


def pooled(statistics: Any, layout: ObservationLayout) -> tuple[Any, Any, dict[str, Any]]:
    """Return the statistics of own features, of a neighbour's, and of entities by group, from flat observations.

    All slots have the same weight, so mean and variance over all slots follow from those of each slot.
    """
    # the inputs of a central critic follow and are not normalised
    mean, spread = (layout.features(x[..., : layout.size]) for x in (statistics.mean, statistics.std))

    def over_slots(means: jax.Array, spreads: jax.Array) -> Any:
        middle = jnp.mean(means, axis=-2)
        variance = jnp.mean(spreads**2 + (means - middle) ** 2, axis=-2)
        return _statistics(statistics, middle, jnp.sqrt(variance))

    return (
        _statistics(statistics, mean.own, spread.own),
        over_slots(mean.neighbours, spread.neighbours),
        {group: over_slots(mean.entities[group], spread.entities[group]) for group in mean.entities},
    )


def _statistics(source: Any, mean: jax.Array, spread: jax.Array) -> Any:
    count = jnp.float32(source.count.hi) * 2.0**32 + jnp.float32(source.count.lo)
    return replace(source, mean=mean, std=jnp.maximum(spread, LEAST_SPREAD), summed_variance=spread**2 * count)
