"""A team as a `brax.envs.Env`: each robot of each world is one environment of brax's batch.

A batch resets itself and applies its own time limit, so brax's trainers must not wrap it: pass
``wrap_env_fn=identity_wrapper``. No brax pipeline is used.
"""

from dataclasses import dataclass
from typing import Any, cast

import jax
import jax.numpy as jnp

from testudo_hardware.errors import TestudoError
from testudo_policies.adapters.team_view import TeamView, typed_key
from testudo_policies.networks.brax_imports import Env, State
from testudo_sim.environment import Environment, StepResult, WorldState


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BraxWorlds:
    """State of the worlds in a batch."""

    worlds: WorldState
    key: jax.Array  # (2,) uint32: key of the next step; brax's trainers do not accept typed keys


class BraxEnvironment(Env):
    """The shared-policy view of a scenario: B = E worlds x N robots, robots of one world side by side.

    ``state.info`` holds the entries that brax's wrappers would add: ``steps``, ``truncation`` (1 where
    time is up; ``done`` is then 1 as well, so a termination is ``done`` without ``truncation``),
    ``episode_done`` and ``episode_metrics``. ``state.metrics`` of a robot: its world's ``success``,
    its share of the world's ``contacts``, and the world's ``interventions_per_step`` and
    ``brakes_per_step``.
    """

    def __init__(self, environment: Environment, *, central: bool = False) -> None:
        """Adapt an environment; with ``central`` the inputs of a central critic end each observation."""
        self.view = TeamView(environment, central)
        if self.view.choices:
            raise TestudoError(
                "brax: found a team that commands way-points, expected velocities, as brax's trainers give"
            )
        self._observation_size = self.view.observation_size

    def reset(self, rng: jax.Array) -> State:
        """Return fresh worlds for keys (B, 2), or one world for a single key (2,).

        In each world only the key of its first robot is used.

        Raises:
            TestudoError: the robots do not fill whole worlds.
        """
        keys = jnp.atleast_1d(typed_key(rng))
        size = self.view.team_size
        robots = size if keys.shape[0] == 1 else keys.shape[0]
        if robots % size:
            raise TestudoError(
                f"a batch of {robots} robots does not fill whole worlds of {size}; "
                f"give brax a multiple of {size} environments"
            )
        worlds = self.view.environment.reset(keys[::size])
        state_key = jax.random.key_data(jax.random.fold_in(keys[0], 1))
        metrics = {name: jnp.zeros(robots) for name in _METRICS}
        totals = {name: jnp.zeros(robots) for name in ("sum_reward", "length", *_METRICS)}
        info = {
            "steps": jnp.zeros(robots),
            "truncation": jnp.zeros(robots),
            "episode_done": jnp.zeros(robots),
            "episode_metrics": totals,
        }
        physics = cast(Any, BraxWorlds(worlds, state_key))  # brax annotates its own physics state
        return State(physics, self._observed(worlds), jnp.zeros(robots), jnp.zeros(robots), metrics, info)

    def step(self, state: State, action: jax.Array) -> State:
        """Return the state one decision later for actions (B, D); a finished world is reset.

        Reward, ``done``, metrics and info describe the decision; the observation is that after the reset.
        """
        before = cast(BraxWorlds, state.pipeline_state)
        step_key, next_key = jax.random.split(typed_key(before.key))
        size = self.view.team_size
        actions = action.reshape(-1, size, action.shape[-1])
        velocity = self.view.command(before.worlds, actions)
        worlds, result = self.view.environment.step(before.worlds, velocity, step_key)
        reward = result.reward.T.reshape(-1)
        done = _each(result.terminated | result.truncated, size)
        metrics = _metrics(result, size)
        info = {**state.info, **_info(state.info, reward, done, metrics), "truncation": _each(result.truncated, size)}
        return State(
            cast(Any, BraxWorlds(worlds, jax.random.key_data(next_key))),
            self._observed(worlds),
            reward,
            done,
            metrics,
            info,
        )

    @property
    def observation_size(self) -> int:
        """Return the length of an observation."""
        return self._observation_size

    @property
    def action_size(self) -> int:
        """Return the space dimensions D."""
        return self.view.action_size

    @property
    def backend(self) -> str:
        """Return the name of the physics tier."""
        return self.view.environment.team.physics.name

    def _observed(self, worlds: WorldState) -> jax.Array:
        observation = self.view.observe(worlds)
        return observation.reshape(-1, observation.shape[-1])


def identity_wrapper(env: Any, episode_length: int, action_repeat: int = 1, randomization_fn: Any = None) -> Any:
    """Return the environment unchanged; for the argument ``wrap_env_fn`` of brax's trainers.

    ``wrap_env=False`` is no alternative: SAC of brax 0.14 fails with it.

    Raises:
        TestudoError: an argument contradicts the scenario.
    """
    expected = env.view.environment.horizon
    if (episode_length, action_repeat, randomization_fn) != (expected, 1, None):
        raise TestudoError(
            f"brax trainer: found episode_length {episode_length}, action_repeat {action_repeat}, randomization_fn "
            f"{randomization_fn}; the scenario decides them, expected {expected}, 1 and None"
        )
    return env


_METRICS = ("success", "contacts", "interventions_per_step", "brakes_per_step")


def _metrics(result: StepResult, size: int) -> dict[str, jax.Array]:
    return {
        "success": _each(result.terminated, size),
        "contacts": _each(result.metrics.contacts, size) / size,
        "interventions_per_step": _each(result.metrics.interventions, size),
        "brakes_per_step": _each(result.metrics.braked, size),
    }


def _info(before: dict[str, Any], reward: jax.Array, done: jax.Array, metrics: dict[str, jax.Array]) -> dict[str, Any]:
    """Return the step count and sums of the running episodes; those of a finished episode stay for one step."""
    running = 1 - before["episode_done"]
    increments = {"sum_reward": reward, "length": jnp.ones_like(reward), **metrics}
    totals = {name: before["episode_metrics"][name] * running + value for name, value in increments.items()}
    return {"steps": before["steps"] * running + 1, "episode_done": done, "episode_metrics": totals}


def _each(world_value: jax.Array, size: int) -> jax.Array:
    """Repeat a value of each world (E,) for each of its robots (E * N,)."""
    return jnp.repeat(world_value.astype(jnp.float32), size)
