"""Advantages and the clipped loss of PPO (Schulman et al., 2017); time-outs differ from terminations."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from testudo_policies.networks.agent import Agent, AgentParameters
from testudo_policies.networks.observation_encoding import Features
from testudo_policies.train_config import TrainConfig


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Batch:
    """A rollout: time T by robots B (worlds times team)."""

    features: Features  # (T, B, ...): inputs of the actor
    central: Features  # (T, B, ...): inputs of the critic
    fresh: jax.Array  # (T, B) bool: an episode begins at this step
    action: jax.Array  # (T, B, D): action before the tanh
    log_probability: jax.Array  # (T, B)
    value: jax.Array  # (T, B)
    next_value: jax.Array  # (T, B): value of the state after the step, before any reset
    reward: jax.Array  # (T, B)
    terminated: jax.Array  # (T, B) bool
    truncated: jax.Array  # (T, B) bool
    trust: jax.Array | None = None  # (T, B): weight of each step, 0 to 1; None: all 1
    stood: jax.Array | None = None  # (T, B) bool: the robot took no part; nothing is learned from it; None: never
    left: jax.Array | None = None  # (T, B) bool: the last step in which the robot took part; None: never

    @property
    def weight(self) -> jax.Array | None:
        """Return the weight (T, B) of each step in the advantages; None: all 1."""
        if self.stood is None:
            return self.trust
        acts = jnp.where(self.stood, 0.0, 1.0)
        return acts if self.trust is None else self.trust * acts

    @property
    def ended(self) -> jax.Array:
        """Return (T, B) bool: the robot has no reward after the step, as the task ended or the robot left it."""
        return self.terminated if self.left is None else self.terminated | self.left


def advantages(
    reward: jax.Array,
    value: jax.Array,
    next_value: jax.Array,
    terminated: jax.Array,
    truncated: jax.Array,
    discount: float,
    trace: float,
    trust: jax.Array | None = None,
) -> jax.Array:
    """Return generalised advantages (T, B) (Schulman et al., 2016).

    After a termination the future value is 0; after a time-out it is the value of the last state. Both cut
    the trace, because the next step belongs to another episode.

    ``trust`` (T, B) weights each step's error and the following ones: with the clipped ratio of other dynamics
    to the sampled ones, these are the errors of V-trace (Espeholt et al., 2018).
    """
    delta = reward + discount * jnp.where(terminated, 0.0, next_value) - value
    decay = jnp.where(terminated | truncated, 0.0, discount * trace)
    if trust is not None:
        delta, decay = trust * delta, trust * decay

    def backwards(later: jax.Array, step: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        now, weight = step
        advantage = now + weight * later
        return advantage, advantage

    _, result = jax.lax.scan(backwards, jnp.zeros_like(delta[0]), (delta, decay), reverse=True)
    return result


def _normalised(advantage: jax.Array, batch: Batch) -> jax.Array:
    """Return advantages with mean 0 and variance 1, weighted as the batch is; those of weight 0 stay 0."""
    trust = jnp.ones_like(advantage) if batch.weight is None else batch.weight
    centred = advantage - trust * jnp.sum(advantage) / (jnp.sum(trust) + 1e-8)
    return centred / (jnp.sqrt(_mean(centred**2, batch.stood)) + 1e-8)


def ppo_loss(
    parameters: AgentParameters,
    agent: Agent,
    config: TrainConfig,
    batch: Batch,
    hidden: jax.Array,
    advantage: jax.Array,
    key: jax.Array,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the loss and its parts; ``advantage`` (T, B) is weighted by trust but not normalised."""
    logits, _ = agent.act(parameters, batch.features, hidden, batch.fresh)
    distribution = agent.distribution
    log_probability = distribution.log_prob(logits, batch.action)
    ratio = jnp.exp(log_probability - batch.log_probability)
    scaled = _normalised(advantage, batch)
    clipped = jnp.clip(ratio, 1 - config.clip, 1 + config.clip)
    actor_loss = -_mean(jnp.minimum(ratio * scaled, clipped * scaled), batch.stood)
    value = agent.value(parameters, batch.central)
    value_loss = _mean((value - (batch.value + advantage)) ** 2, batch.stood)
    entropy = _mean(distribution.entropy(logits, key), batch.stood)
    total = actor_loss + config.value_weight * value_loss - config.entropy * entropy
    return total, {
        "loss/actor": actor_loss,
        "loss/value": value_loss,
        "loss/entropy": entropy,
        "loss/ratio_off": _mean(jnp.abs(ratio - 1), batch.stood),
    }


def _mean(values: jax.Array, stood: jax.Array | None) -> jax.Array:
    """Return the mean of values (T, B) over the steps in which robots took part."""
    if stood is None:
        return jnp.mean(values)
    return jnp.sum(jnp.where(stood, 0.0, values)) / jnp.maximum(jnp.sum(~stood), 1)
