"""Worlds of a team in NumPy, for libraries that call a state-full environment: compiled once, with a random stream."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Discrete

from testudo_hardware.errors import TestudoError
from testudo_policies.adapters.team_view import TeamView
from testudo_sim.environment import Environment, WorldState


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Decision:
    """What one decision did; B = E worlds x N robots, robots of one world side by side."""

    observation: Any  # (B, size)
    reward: Any  # (B,)
    terminated: Any  # (E,) bool: success
    truncated: Any  # (E,) bool: the time is up
    contacts: Any  # (E,)
    interventions: Any  # (E,)
    stands: Any  # (B,) bool: the robot takes no part in the next decision


class CompiledWorlds:
    """Worlds with their state; the first reset and the first step compile.

    A world that has ended begins anew in the next step, whose action it ignores; that step has no reward.
    """

    def __init__(self, environment: Environment, worlds: int, *, central: bool = False) -> None:
        """Adapt an environment; with ``central`` the inputs of a central critic end each observation.

        Raises:
            TestudoError: fewer worlds than one.
        """
        if worlds < 1:
            raise TestudoError(f"worlds: found {worlds}, expected at least 1")
        self.view, self.worlds = TeamView(environment, central), worlds
        self._state: tuple[WorldState, Any] | None = None  # the worlds, and which have ended (E,) bool
        self._key: jax.Array | None = None
        self._reset = jax.jit(self._begin)
        self._step = jax.jit(self._decide)
        self._central = jax.jit(self._true_state)

    def reset(self, seed: int | None) -> np.ndarray:
        """Begin all worlds; return observations (B, size). Without a ``seed`` the random numbers go on."""
        if seed is not None or self._key is None:
            chosen = np.random.SeedSequence().generate_state(1)[0] if seed is None else seed
            self._key = jax.random.key(int(chosen) % 2**32)
        self._key, key = jax.random.split(self._key)
        worlds, observation = self._reset(key)
        self._state = worlds, np.zeros(self.worlds, bool)
        return np.array(observation)

    def step(self, action: np.ndarray) -> Decision:
        """Return what a decision does, as NumPy arrays, for velocities (B, D) or choices (B,), see `TeamView`.

        Raises:
            TestudoError: there was no reset; or actions of another shape, not finite, or no choice.
        """
        if self._state is None or self._key is None:
            raise self.error("step: found no running episode, expected a reset before")
        self._key, key = jax.random.split(self._key)
        worlds, decision = self._step(*self._state, self._checked(action), key)
        self._state = worlds, decision.terminated | decision.truncated
        return jax.tree.map(np.array, decision)  # copies: what was returned never changes

    def central(self) -> np.ndarray:
        """Return what the central critic reads of each robot now (B, size)."""
        if self._state is None:
            raise self.error("state: found no episode, expected a reset before")
        return np.array(self._central(self._state[0]))

    def error(self, text: str) -> TestudoError:
        """Return an error that names the scenario."""
        return TestudoError(f"{self.view.environment.scenario.name}: {text}")

    def _checked(self, action: np.ndarray) -> np.ndarray:
        view = self.view
        batch = self.worlds * view.team_size
        shape = (batch,) if view.choices else (batch, view.action_size)
        found = np.asarray(action)
        if found.shape != shape:
            raise self.error(f"step: found actions of shape {found.shape}, expected {shape}")
        if view.choices:
            if not (np.issubdtype(found.dtype, np.integer) and np.all((found >= 0) & (found < view.choices))):
                raise self.error(f"step: found {found.tolist()}, expected whole numbers from 0 to {view.choices - 1}")
            return found.astype(np.int32)
        if not np.all(np.isfinite(found)):
            raise self.error("step: found an action that is not finite, expected numbers from -1 to 1")
        return found.astype(np.float32)

    def _begin(self, key: jax.Array) -> tuple[WorldState, jax.Array]:
        state = self.view.environment.reset(jax.random.split(key, self.worlds))
        return state, self._flat(self.view.observe(state))

    def _decide(
        self, state: WorldState, ended: jax.Array, action: jax.Array, key: jax.Array
    ) -> tuple[WorldState, Decision]:
        view, environment = self.view, self.view.environment
        step_key, reset_key = jax.random.split(key)
        command = view.command(state, action.reshape(self.worlds, view.team_size, *action.shape[1:]))
        _, result = environment.step(state, command, step_key)
        fresh = environment.reset(jax.random.split(reset_key, self.worlds))
        after = jax.tree.map(lambda new, old: jnp.where(ended, new, old), fresh, result.last)
        standing = environment.standing(after)
        stands = jnp.zeros(result.reward.shape, bool) if standing is None else standing
        decision = Decision(
            self._flat(view.observe(after)),
            jnp.where(ended, 0.0, result.reward).T.reshape(-1),
            result.terminated & ~ended,
            result.truncated & ~ended,
            jnp.where(ended, 0, result.metrics.contacts),
            jnp.where(ended, 0.0, result.metrics.interventions),
            stands.T.reshape(-1),
        )
        return after, decision

    def _true_state(self, state: WorldState) -> jax.Array:
        central = TeamView(self.view.environment, central=True)
        own = central.layouts[0].size
        return self._flat(central.observe(state)[..., own:])

    def _flat(self, observation: jax.Array) -> jax.Array:
        return observation.reshape(-1, observation.shape[-1])


def observation_space(view: TeamView) -> Box:
    """Return the space of one robot's observations."""
    return Box(-np.inf, np.inf, (view.observation_size,), np.float32)


def action_space(view: TeamView) -> Box | Discrete:
    """Return the space of one robot's actions."""
    return Discrete(view.choices) if view.choices else Box(-1.0, 1.0, (view.action_size,), np.float32)
