"""Steps of a rollout as lived through by other parameters than those that chose the actions.

Their values and probabilities are those of the new parameters, and the ratio of the probabilities, at most 1, is the
trust in a step (V-trace, Espeholt et al., 2018): it weighs its error and that of all that follow.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp

from testudo_policies.learning.losses import Batch
from testudo_policies.networks.agent import Agent, AgentParameters, by_robot
from testudo_sim.scenarios.symmetry import WorldMap


def shared_experience(agent: Agent, parameters: AgentParameters, batch: Batch, team: int) -> Batch:
    """Return a rollout (T, E * N) and what each robot lived through for each of its peers, (T, N * E * N).

    SEAC (Christianos et al., 2020): the loss of robot i has beside its own steps those of each other robot k, weighted
    by pi_i / pi_k, and with the value of robot i, as much as its own (lambda = 1). The weight is at most 1 here.
    """
    others = [_of_others(batch, team, shift) for shift in range(1, team)]
    return joined(batch, seen_anew(agent, parameters, _side_by_side(others)))


def with_mapped(agent: Agent, parameters: AgentParameters, batch: Batch, mapping: WorldMap) -> Batch:
    """Return a rollout (T, E * N) and its steps as those of the mapped worlds, (T, 2 * E * N)."""
    seen, team = batch.mapped, batch.reward.shape[1] // mapping.sense.shape[0]
    if seen is None:
        raise ValueError("other_views: expected a rollout that keeps what networks read of the mapped worlds")
    lived = replace(batch, mapped=None)
    robots = jax.tree.map(lambda x: jnp.repeat(x, team, axis=-1), mapping)
    action = agent.mapped_action(batch.action, batch.features.frame, seen.features.frame, robots)
    more = replace(lived, features=seen.features, central=seen.central, after=seen.after, action=action)
    return joined(lived, seen_anew(agent, parameters, more))


def joined(batch: Batch, more: Batch) -> Batch:
    """Return a rollout and other views of it as one batch; the rollout is trusted."""
    return _side_by_side([replace(batch, trust=jnp.ones(batch.reward.shape)), more])


def seen_anew(agent: Agent, parameters: AgentParameters, batch: Batch) -> Batch:
    """Return steps with the probabilities, values and trust of the parameters of the robots in whose place they are.

    The batch keeps `Batch.after`, and the policy has no memory.
    """
    if batch.after is None:
        raise ValueError("other_views: expected a rollout that keeps what the critic reads after a step")
    logits, _ = agent.act(parameters, batch.features, agent.blank_memory(batch.reward.shape[1]), batch.fresh)
    log_probability = agent.distribution.log_prob(logits, batch.action)
    return replace(
        batch,
        log_probability=log_probability,
        value=agent.value(parameters, batch.central),
        next_value=agent.value(parameters, batch.after),
        trust=jnp.minimum(jnp.exp(log_probability - batch.log_probability), 1.0),
    )


def _of_others(batch: Batch, team: int, shift: int) -> Batch:
    """Return the steps in which each robot is in the place of the one ``shift`` before it."""

    def moved(values: jax.Array) -> jax.Array:
        return jnp.roll(by_robot(values, team, 1), -shift, axis=2).reshape(values.shape)

    found: Batch = jax.tree.map(moved, batch)
    return found


def _side_by_side(parts: list[Batch]) -> Batch:
    whole: Batch = jax.tree.map(lambda *x: jnp.concatenate(x, axis=1), *parts)
    return whole
