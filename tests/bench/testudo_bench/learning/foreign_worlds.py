"""Environments of JaxMARL for the learners of Testudo, and an agent whose networks read a flat observation.

`PPO` runs on them unchanged: rollout, advantages, statistics and gradient steps are those of every training. Its
networks are the feed-forward ones of JaxMARL's IPPO, so that two trainings differ in the learner alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from testudo_policies.learning.ppo import PPO
from testudo_policies.networks.actor_critic import NetworkConfig
from testudo_policies.networks.agent import Agent, AgentParameters
from testudo_policies.networks.observation_encoding import Features
from testudo_policies.networks.waypoint_choice import WaypointChoice
from testudo_policies.train_config import TrainConfig
from testudo_sim.environment import StepMetrics, StepResult
from testudo_sim.scenarios.scenario import Observation

OBSERVATION = "observation"


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ForeignState:
    """State of many worlds, worlds first."""

    state: Any
    observation: jax.Array  # (E, N, F)
    difficulty: None = None


@dataclass(frozen=True)
class ForeignTeam:
    """The part of a team that a learner asks for."""

    size: int


@dataclass(frozen=True)
class ForeignWorlds:
    """A JaxMARL environment with discrete actions and equal agents, in many worlds, as learners see an `Environment`.

    Where it is done, nothing follows, as JaxMARL's learners take it, unless its infos have ``terminated``: then the
    other ends are time-outs. It restarts where it ends.
    """

    environment: Any

    @property
    def team(self) -> ForeignTeam:
        """Return the team."""
        return ForeignTeam(self.environment.num_agents)

    @property
    def choices(self) -> int:
        """Return the number of actions of an agent."""
        return int(self.environment.action_space(self.environment.agents[0]).n)

    def reset(self, keys: jax.Array) -> ForeignState:
        """Return the start of one world for each key (E,)."""
        observations, state = jax.vmap(self.environment.reset)(keys)
        return ForeignState(state, self._stacked(observations))

    def signals(self, worlds: ForeignState) -> dict[str, jax.Array]:
        """Return the observations (E, N, F)."""
        return {OBSERVATION: worlds.observation}

    def step(self, worlds: ForeignState, weights: jax.Array, key: jax.Array) -> tuple[ForeignState, StepResult]:
        """Take actions, as weights (E, N, K) of 1 for the chosen one; worlds whose episode ends restart."""
        count, team = weights.shape[0], self.team.size
        choice = jnp.argmax(weights, axis=-1)
        actions = {agent: choice[:, index] for index, agent in enumerate(self.environment.agents)}
        step_keys, reset_keys = (jax.random.split(one, count) for one in jax.random.split(key))
        observations, state, rewards, dones, infos = jax.vmap(self.environment.step_env)(
            step_keys, worlds.state, actions
        )
        last = ForeignState(state, self._stacked(observations))
        done = dones["__all__"]
        terminated = infos["terminated"][:, 0] if "terminated" in infos else done

        def chosen(new: jax.Array, old: jax.Array) -> jax.Array:
            return jnp.where(done.reshape(-1, *(1,) * (old.ndim - 1)), new, old)

        after = jax.tree.map(chosen, self.reset(reset_keys), last)
        reward = jnp.stack([rewards[agent] for agent in self.environment.agents])
        none, free = jnp.zeros(count), jnp.zeros((team, count))
        metrics = StepMetrics(none, none, none, none, free, jnp.zeros(count, bool), jnp.zeros(count, jnp.int32))
        return after, StepResult(reward, terminated & done, done & ~terminated, metrics, cast(Any, last))

    def _stacked(self, by_agent: Mapping[str, jax.Array]) -> jax.Array:
        return jnp.stack([by_agent[agent] for agent in self.environment.agents], axis=1)


class _Layers(nn.Module):
    """Two hidden layers of tanh with the start of JaxMARL's networks, and a linear one."""

    width: int
    outputs: int
    last_scale: float

    @nn.compact
    def __call__(self, values: jax.Array) -> jax.Array:
        """Return the outputs (..., outputs)."""
        for name in ("first", "second"):
            start = nn.initializers.orthogonal(np.sqrt(2))
            values = nn.tanh(nn.Dense(self.width, kernel_init=start, name=name)(values))
        start = nn.initializers.orthogonal(self.last_scale)
        return nn.Dense(self.outputs, kernel_init=start, name="last")(values)


class _FlatActor(nn.Module):
    width: int
    choices: int

    @nn.compact
    def __call__(self, features: Features, hidden: jax.Array, _: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the scores (T, B, K) of the actions, and the memory, of which there is none."""
        return _Layers(self.width, self.choices, 0.01)(features.own), hidden


class _FlatCritic(nn.Module):
    width: int

    @nn.compact
    def __call__(self, features: Features) -> jax.Array:
        """Return the values (...)."""
        return _Layers(self.width, 1, 1.0)(features.own)[..., 0]


@dataclass(frozen=True)
class FlatAgent(Agent):
    """An agent that chooses one of some actions from a flat observation."""

    choices: int = 5

    @property
    def action_size(self) -> int:
        """Return the number of actions."""
        return self.choices

    def encode(self, signals: Mapping[str, jax.Array]) -> Features:
        """Return the observation as the only features."""
        own = signals[OBSERVATION]
        none = jnp.zeros((*own.shape[:-1], 1))  # the networks read none of the others
        return Features(own, none[..., None, :], none, none, none)

    def command(self, features: Features, action: jax.Array) -> jax.Array:
        """Return the weights (..., K) of the actions."""
        del features
        return action

    @property
    def _actor(self) -> Any:
        return _FlatActor(self.config.width, self.choices)

    @property
    def _critic(self) -> Any:
        return _FlatCritic(self.config.width)


def ppo_on(environment: Any, config: TrainConfig) -> PPO:
    """Return Testudo's PPO on a JaxMARL environment, with JaxMARL's networks; ``config`` is of `ippo`, no memory."""
    worlds = ForeignWorlds(environment)
    choice = WaypointChoice((worlds.choices - 1) // 2, 1.0, None)
    network = NetworkConfig(width=config.width, central_critic=False)
    agent = FlatAgent(network, 2, 1.0, Observation(), waypoints=choice, choices=worlds.choices)
    return PPO(config, agent, cast(Any, worlds))


def scores_of(agent: Agent, parameters: AgentParameters, observation: jax.Array) -> jax.Array:
    """Return the scores (B, K) of the actions for observations (B, F)."""
    features = jax.tree.map(lambda x: x[None], agent.encode({OBSERVATION: observation}))
    count = observation.shape[0]
    return agent.act(parameters, features, agent.blank_memory(count), jnp.zeros((1, count), bool))[0][0]
