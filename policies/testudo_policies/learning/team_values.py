"""What the learners of action values share: exploration, the values of a team, and the steps that count.

Arrays of robots are (T, B), with the robots of a world side by side; those of worlds are (T, E). The reward and the
value of a world are the means over its robots, so that neither grows with the team.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from testudo_policies.learning.losses import Batch
from testudo_policies.networks.agent import Agent, AgentParameters, by_robot
from testudo_policies.networks.observation_encoding import Features
from testudo_policies.train_config import TrainConfig

_FIRST, _LAST, _SHARE = 1.0, 0.05, 0.3  # random choices at the start, at the end, and the part of the run between


def exploration(config: TrainConfig, updates: jax.Array) -> jax.Array:
    """Return the share () of random choices after a number of updates: it falls linearly, then stays."""
    return jnp.maximum(_LAST, _FIRST + (_LAST - _FIRST) * updates / (_SHARE * config.updates))


def epsilon_greedy(epsilon: jax.Array) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """Return the function from scores (..., K) and a key to choices (...): the best one, or with epsilon any."""

    def choose(scores: jax.Array, key: jax.Array) -> jax.Array:
        draw_key, any_key = jax.random.split(key)
        anything = jax.random.randint(any_key, scores.shape[:-1], 0, scores.shape[-1])
        draw = jax.random.uniform(draw_key, scores.shape[:-1])
        return jnp.where(draw < epsilon, anything, jnp.argmax(scores, axis=-1))

    return choose


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TeamSteps:
    """The steps of worlds (T, E) of N robots."""

    reward: jax.Array  # (T, E): mean over the robots that count
    terminated: jax.Array  # (T, E) bool
    truncated: jax.Array  # (T, E) bool: the next state is not known
    counted: jax.Array  # (T, E, N) bool

    @classmethod
    def of(cls, batch: Batch, team: int) -> "TeamSteps":
        """Return the steps of a batch (T, E * N)."""
        counted = by_world(batch.counted, team)
        reward = team_mean(by_world(batch.reward, team), counted)
        ended, cut = (by_world(x, team)[..., 0] for x in (batch.terminated, batch.truncated))
        return cls(reward, ended, cut, counted)

    @property
    def teaches(self) -> jax.Array:
        """Return (T, E) bool: a robot counted, and the next state, if there is one, is known."""
        return jnp.any(self.counted, axis=-1) & ~self.truncated


def by_world(values: jax.Array, team: int) -> jax.Array:
    """Return values of robots (T, E * N, ...) as (T, E, N, ...)."""
    apart: jax.Array = by_robot(values, team, 1)
    return apart


def team_mean(values: jax.Array, counted: jax.Array) -> jax.Array:
    """Return the mean (...) over the robots (..., N) that count; 0 where none does."""
    return jnp.sum(jnp.where(counted, values, 0.0), axis=-1) / jnp.maximum(jnp.sum(counted, axis=-1), 1)


def action_values(
    agent: Agent, parameters: AgentParameters, features: Features, memory: jax.Array, fresh: jax.Array
) -> jax.Array:
    """Return the value (T, B, K) of each choice, in units of the reward."""
    scores, _ = agent.act(parameters, features, memory, fresh)
    return agent.value_scale(parameters) * scores


def taken(values: jax.Array, choice: jax.Array) -> jax.Array:
    """Return the values (...) of choices (...) among values (..., K)."""
    return jnp.take_along_axis(values, choice.astype(jnp.int32)[..., None], axis=-1)[..., 0]


def mean_square(errors: jax.Array, teaches: jax.Array) -> jax.Array:
    """Return the mean square () of the errors that teach."""
    return jnp.sum(jnp.where(teaches, errors, 0.0) ** 2) / jnp.maximum(jnp.sum(teaches), 1)


def worlds_of(tree: Any, chosen: jax.Array, team: int) -> Any:
    """Return the robots of some worlds (W,) of arrays (T, B, ...)."""
    robots = (chosen[:, None] * team + jnp.arange(team)).reshape(-1)
    return jax.tree.map(lambda x: x[:, robots], tree)


def lambda_returns(steps: TeamSteps, best: jax.Array, discount: float, trace: float) -> jax.Array:
    """Return the lambda-returns (T, E) of steps, with the value of the best choices (T + 1, E) in all their states."""

    def backwards(later: jax.Array, step: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        reward, ended, cut, next_best, own_best = step
        future = (1 - trace) * next_best + trace * later
        found = reward + discount * jnp.where(ended, 0.0, future)
        found = jnp.where(cut, own_best, found)
        return found, found

    columns = (steps.reward, steps.terminated, steps.truncated, best[1:], best[:-1])
    _, result = jax.lax.scan(backwards, best[-1], columns, reverse=True)
    return result


def observe_unit(agent: Agent, parameters: AgentParameters, steps: TeamSteps, discount: float) -> AgentParameters:
    """Return the parameters with the unit of values updated: the deviation of the discounted rewards of a rollout.

    Values take no part in it, so that it cannot grow by itself.
    """
    nothing = jnp.zeros((steps.reward.shape[0] + 1, steps.reward.shape[1]))
    return agent.observe_returns(parameters, lambda_returns(steps, nothing, discount, 1.0), steps.teaches)
