"""A team as JaxMARL's `MultiAgentEnv`: one world, one dict entry for each robot; compatible with jit.

JaxMARL is optional; if it is installed, the class derives from its environment and uses its spaces.
Its interface has no time-outs: `infos` distinguishes them from terminations.
"""

import contextlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from testudo_policies.adapters.team_view import TeamView, typed_key
from testudo_sim.environment import Environment, StepResult, WorldState


@dataclass(frozen=True)
class BoxSpace:
    """A bounded space of arrays; replaces JaxMARL's `Box` if JaxMARL is not installed."""

    low: float
    high: float
    shape: tuple[int, ...]
    dtype: Any = jnp.float32

    def sample(self, rng: jax.Array) -> jax.Array:
        """Return a uniform sample."""
        return jax.random.uniform(rng, self.shape, self.dtype, self.low, self.high)

    def contains(self, x: jax.Array) -> jax.Array:
        """Return () bool: all entries are within the bounds."""
        return jnp.all((x >= self.low) & (x <= self.high))


@dataclass(frozen=True)
class DiscreteSpace:
    """Whole numbers from 0 to n - 1; replaces JaxMARL's `Discrete` if JaxMARL is not installed."""

    n: int
    shape: tuple[int, ...] = ()
    dtype: Any = jnp.int32

    def sample(self, rng: jax.Array) -> jax.Array:
        """Return a uniform sample."""
        return jax.random.randint(rng, self.shape, 0, self.n, self.dtype)

    def contains(self, x: jax.Array) -> jax.Array:
        """Return () bool: it is one of the numbers."""
        return jnp.all((x >= 0) & (x < self.n))


try:
    with contextlib.redirect_stdout(io.StringIO()):  # it prints its list of environments
        from jaxmarl.environments.multi_agent_env import (  # pyright: ignore[reportMissingImports] -- optional
            MultiAgentEnv,
        )
        from jaxmarl.environments.spaces import Box, Discrete  # pyright: ignore[reportMissingImports] -- optional
except ImportError:
    MultiAgentEnv, Box, Discrete = object, BoxSpace, DiscreteSpace

HAS_JAXMARL = MultiAgentEnv is not object

ByAgent = dict[str, jax.Array]


class MultiAgentTeam(MultiAgentEnv):  # pyright: ignore[reportGeneralTypeIssues] -- the optional base
    """One world of a scenario; vmap `reset` and `step` for several.

    Observations and actions are those of `TeamView`. `infos` holds arrays (N,): ``terminated``,
    ``truncated``, and the world's ``contacts`` and ``interventions``.
    """

    def __init__(self, environment: Environment, *, central: bool = False) -> None:
        """Adapt an environment; with ``central`` the inputs of a central critic end each observation."""
        self.view = TeamView(environment, central)
        self.num_agents = self.view.team_size
        self.agents = [f"agent_{index}" for index in range(self.num_agents)]
        observation_shape, action_shape = (self.view.observation_size,), (self.view.action_size,)
        self.observation_spaces = {agent: Box(-jnp.inf, jnp.inf, observation_shape) for agent in self.agents}
        choices = self.view.choices
        self.action_spaces = {
            agent: Discrete(choices) if choices else Box(-1.0, 1.0, action_shape) for agent in self.agents
        }

    @property
    def name(self) -> str:
        """Return the name of the scenario."""
        return self.view.environment.scenario.name

    @property
    def agent_classes(self) -> dict[str, list[str]]:
        """Return all robots as one class, because they share a policy."""
        return {"robot": list(self.agents)}

    def observation_space(self, agent: str) -> Any:
        """Return the space of an agent's observations."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        """Return the space of an agent's actions."""
        return self.action_spaces[agent]

    @partial(jax.jit, static_argnums=0)
    def reset(self, key: jax.Array) -> tuple[ByAgent, WorldState]:
        """Return observations (size,) by agent and the state of a fresh world."""
        state = self.view.environment.reset(typed_key(key)[None])
        return self.get_obs(state), state

    @partial(jax.jit, static_argnums=0)
    def step(
        self, key: jax.Array, state: WorldState, actions: Mapping[str, jax.Array], reset_state: WorldState | None = None
    ) -> tuple[ByAgent, WorldState, ByAgent, ByAgent, dict[str, Any]]:
        """Return observations, state, rewards, dones and infos one decision later.

        A finished world is reset, or set to ``reset_state``: observations and state are then those after
        the reset; rewards, dones (with ``__all__``) and infos describe the decision. A robot that takes no part in the
        next decision, as it has failed or left the task, is done by itself.
        """
        step_key, reset_key = jax.random.split(typed_key(key))
        observations, after, rewards, dones, infos = self.step_env(step_key, state, actions)
        fresh = self.reset(reset_key) if reset_state is None else (self.get_obs(reset_state), reset_state)
        observations, after = jax.tree.map(
            lambda new, old: jnp.where(dones["__all__"], new, old), fresh, (observations, after)
        )
        return observations, after, rewards, dones, infos

    def step_env(
        self, key: jax.Array, state: WorldState, actions: Mapping[str, jax.Array]
    ) -> tuple[ByAgent, WorldState, ByAgent, ByAgent, dict[str, Any]]:
        """Return the same as `step`, without resetting a finished world."""
        shape = () if self.view.choices else (self.view.action_size,)
        action = jnp.stack([jnp.reshape(actions[agent], shape) for agent in self.agents])[None]
        _, result = self.view.environment.step(state, self.view.command(state, action), typed_key(key))
        done = (result.terminated | result.truncated)[0]
        stands = self.view.environment.standing(result.last)
        gone = jnp.zeros(self.num_agents, bool) if stands is None else stands[:, 0]
        dones = self._by_agent(done | gone) | {"__all__": done}
        return (self.get_obs(result.last), result.last, self._by_agent(result.reward[:, 0]), dones, self._infos(result))

    def get_obs(self, state: WorldState) -> ByAgent:
        """Return the observations (size,) by agent."""
        return self._by_agent(self.view.observe(state)[0])

    def get_avail_actions(self, state: WorldState) -> ByAgent:
        """Return (K,) bool of choices, or (D,), by agent: every action is allowed, because the shield makes it safe."""
        return {agent: jnp.ones(self.view.choices or self.view.action_size, bool) for agent in self.agents}

    def _by_agent(self, values: jax.Array) -> ByAgent:
        return dict(zip(self.agents, values, strict=True))

    def _infos(self, result: StepResult) -> dict[str, Any]:
        metrics = result.metrics
        world_values = {
            "terminated": result.terminated,
            "truncated": result.truncated,
            "contacts": metrics.contacts,
            "interventions": metrics.interventions,
        }
        return {name: jnp.broadcast_to(value[0], (self.num_agents,)) for name, value in world_values.items()}
