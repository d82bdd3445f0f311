"""Training of several seeds in one program, and their held-out episodes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from testudo_policies.evaluation.evaluation import HELD_OUT_SEED
from testudo_policies.networks.agent import Agent, AgentParameters
from testudo_sim.environment import Environment, WorldState

_PIECE = 10  # updates between two progress reports


def seed_keys(seeds: int, stream: int) -> jax.Array:
    """Return the random keys (S,) of seeds, of one stream."""
    keys = jax.vmap(jax.random.key)(jnp.arange(seeds))
    return jax.vmap(lambda key: jax.random.fold_in(key, stream))(keys)


def learn(
    learner: Callable[[Any], Any], state: Any, given: Any, updates: int, tell: Callable[[float], None]
) -> AgentParameters:
    """Return the policies (S, ...) after a number of updates.

    Args:
        learner: returns the learner of one seed from its part of ``given``.
        state: training states (S, ...).
        given: what learners need beside it (S, ...).
        updates: their number; rounded up to whole pieces of `_PIECE`.
        tell: called with the completed share.
    """

    def run(state: Any, one: Any) -> Any:
        return jax.lax.scan(lambda current, _: (learner(one).update(current)[0], None), state, length=_PIECE)[0]

    piece = jax.jit(jax.vmap(run))
    for done in range(0, updates, _PIECE):
        tell(done / updates)
        state = jax.block_until_ready(piece(state, given))
    parameters: AgentParameters = state.parameters
    return parameters


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class HeldOutEpisodes:
    """Figures of held-out episodes; arrays (E,), or (S, E) of several seeds."""

    episode_return: jax.Array  # sum of rewards, mean over robots
    success: jax.Array  # 0 or 1
    time_s: jax.Array  # time to success [s]; without success the time limit
    touched: jax.Array  # 0 or 1: a contact
    metrics: dict[str, jax.Array]  # sums of the scenario's counts


def held_out(environment: Environment, agent: Agent, parameters: AgentParameters, episodes: int) -> HeldOutEpisodes:
    """Return the figures of a policy without noise, on the same held-out episodes for all policies."""
    size = environment.team.size
    act = agent.policy(parameters)
    worlds = environment.reset(jax.vmap(jax.random.key)(HELD_OUT_SEED + jnp.arange(episodes)))
    zero = jnp.zeros(episodes)

    def step(carry: Any, key: jax.Array) -> tuple[Any, dict[str, jax.Array]]:
        state, hidden, open_, total, time_s, good, touched = carry
        velocity, hidden = act(jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), environment.signals(state)), hidden)
        state, result = environment.step(state, velocity.reshape(episodes, size, -1), key)
        total += open_ * jnp.mean(result.reward, axis=0)
        time_s += open_ * environment.scoring.decision_s
        good += open_ * result.terminated
        touched = jnp.maximum(touched, open_ * (result.metrics.contacts > 0))
        counts = {name: open_ * value for name, value in result.counts.items()}
        open_ = open_ * ~(result.terminated | result.truncated)
        return (state, hidden, open_, total, time_s, good, touched), counts

    start: tuple[WorldState, Any] = (worlds, agent.blank_memory(episodes * size))
    keys = jax.random.split(jax.random.key(7), environment.horizon)
    (_, _, _, total, time_s, good, touched), counts = jax.lax.scan(
        step, (*start, zero + 1, zero, zero, zero, zero), keys
    )
    return HeldOutEpisodes(total, good, time_s, touched, {name: jnp.sum(x, axis=0) for name, x in counts.items()})
