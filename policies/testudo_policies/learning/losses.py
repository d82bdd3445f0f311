"""Advantages and the clipped loss of PPO (Schulman et al., 2017); time-outs differ from terminations."""

from dataclasses import dataclass
from typing import cast

import jax
import jax.numpy as jnp

from testudo_policies.networks.agent import Agent, AgentParameters, by_robot
from testudo_policies.networks.observation_encoding import Features
from testudo_policies.train_config import TrainConfig


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Seen:
    """What networks read of the steps of a rollout, time T by robots B."""

    features: Features  # (T, B, ...): inputs of the actor
    central: Features  # (T, B, ...): inputs of the critic
    after: Features  # (T, B, ...): inputs of the critic after the step, before any reset


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
    counted: jax.Array
    """(T, B) bool: false where the robot took no part, or its world diverged; nothing is learned there. All else is
    finite."""
    left: jax.Array  # (T, B) bool: the robot took part, and takes none in the next step
    trust: jax.Array | None = None  # (T, B): weight of each step, 0 to 1; None: all 1
    memory: jax.Array | None = None  # (T, B, M): the actor's memory before the step, for replay; None: not kept
    after: Features | None = None  # (T, B, ...): inputs of the critic after the step, before any reset; None: not kept
    mapped: Seen | None = None  # the same steps of mapped worlds, see `WorldMap`; None: not kept
    label: jax.Array | None = None  # (T, B, P): parameters of a teacher's distribution at each step; None without one

    @property
    def weight(self) -> jax.Array:
        """Return the weight (T, B) of each step in the advantages."""
        return jnp.where(self.counted, 1.0 if self.trust is None else self.trust, 0.0)

    @property
    def ended(self) -> jax.Array:
        """Return (T, B) bool: the robot has no reward after the step, as the task ended or the robot left it."""
        return self.terminated | self.left


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


def _mean(values: jax.Array, counted: jax.Array) -> jax.Array:
    """Return the mean of the values that count."""
    return jnp.sum(jnp.where(counted, values, 0.0)) / jnp.maximum(jnp.sum(counted), 1)


def _normalised(advantage: jax.Array, batch: Batch) -> jax.Array:
    """Return advantages with mean 0 and variance 1, weighted as the batch is; those of weight 0 stay 0."""
    trust = batch.weight
    centred = advantage - trust * jnp.sum(advantage) / (jnp.sum(trust) + 1e-8)
    return centred / (jnp.sqrt(_mean(centred**2, batch.counted)) + 1e-8)


def value_statistics(value: jax.Array, target: jax.Array, counted: jax.Array, scale: jax.Array) -> dict[str, jax.Array]:
    """Return statistics of the values (...) that a critic learns, where ``counted``; in units of the reward.

    The explained variance is 1 minus that of the errors over that of the targets: 1 for a critic that knows all, 0 for
    one that knows the mean, less for a worse one. ``scale`` () is the unit in which the critic learns.
    """
    value, target = jax.lax.stop_gradient((value, target))

    def moments(of: jax.Array) -> tuple[jax.Array, jax.Array]:
        mean = _mean(of, counted)
        return mean, _mean((of - mean) ** 2, counted)

    mean, variance = moments(value)
    target_mean, target_variance = moments(target)
    left = moments(target - value)[1] / jnp.maximum(target_variance, 1e-12)
    return {
        "value/mean": mean,
        "value/deviation": jnp.sqrt(variance),
        "value/target_mean": target_mean,
        "value/target_deviation": jnp.sqrt(target_variance),
        "value/explained_variance": jnp.where(target_variance > 0, 1 - left, 0.0),
        "value/scale": jax.lax.stop_gradient(scale),
    }


def ppo_loss(
    parameters: AgentParameters,
    agent: Agent,
    config: TrainConfig,
    batch: Batch,
    hidden: jax.Array,
    advantage: jax.Array,
    key: jax.Array,
    critic_hidden: jax.Array | None = None,
    *,
    weights: tuple[jax.Array, jax.Array] | None = None,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the loss and its parts; ``advantage`` (T, B) is weighted by trust but not normalised.

    ``hidden`` and ``critic_hidden`` are the memory of actor and critic before the first step.

    With ``joint_ratio`` the ratio is the product of those of all robots of a world (Lin et al., TiZero, 2023).

    The critic learns returns in units of their deviation (Yu et al., 2022), so that its loss has the same scale in all
    tasks.

    With the labels of a teacher, ``weights`` are those of the actor's part and of the divergence
    KL(teacher || student), which is added.
    """
    logits, _ = agent.act(parameters, batch.features, hidden, batch.fresh)
    distribution = agent.distribution
    log_probability = distribution.log_prob(logits, batch.action)
    counted, change = batch.counted, log_probability - batch.log_probability
    if config.joint_ratio:  # of all robots of a world that count, whose product is the change of the team
        apart = by_robot(jnp.where(counted, change, 0.0), config.team_size, 1)
        change = jnp.repeat(jnp.sum(apart, axis=-1), config.team_size, axis=1)
    ratio = jnp.exp(change)
    scaled = _normalised(advantage, batch)
    clipped = jnp.clip(ratio, 1 - config.clip, 1 + config.clip)
    actor_loss = -_mean(jnp.minimum(ratio * scaled, clipped * scaled), counted)
    if critic_hidden is None:
        value = agent.value(parameters, batch.central)
    else:
        value, _ = agent.values(parameters, batch.central, critic_hidden, batch.fresh)
    target, scale = batch.value + advantage, agent.value_scale(parameters)
    value_loss = _mean(((value - target) / scale) ** 2, counted)
    entropy = _mean(distribution.entropy(logits, key), counted)
    rest = config.value_weight * value_loss - config.entropy * entropy
    total, taught = actor_loss + rest, {}
    if weights is not None:
        divergence = _mean(agent.divergence(logits, cast(jax.Array, batch.label)), counted)
        total, taught = weights[0] * actor_loss + rest + weights[1] * divergence, {"loss/divergence": divergence}
    return total, {
        **taught,
        "loss/actor": actor_loss,
        "loss/value": value_loss,
        "loss/entropy": entropy,
        "loss/ratio_off": _mean(jnp.abs(ratio - 1), counted),
        **value_statistics(value, target, counted, scale),
    }
