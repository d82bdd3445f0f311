"""State of a training run, the report of an update, and a gradient step that nothing unsound passes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import jax
import jax.numpy as jnp
import optax

from testudo_policies.learning.episode_window import METRIC
from testudo_policies.learning.losses import Batch
from testudo_policies.learning.rollout import RolloutState, StepFigures, critic_features, flat
from testudo_policies.networks.agent import Agent, AgentParameters
from testudo_policies.networks.observation_encoding import Features
from testudo_sim.environment import Environment
from testudo_sim.physics.neighbour_cells import CROWD

Metrics = dict[str, jax.Array]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    """The complete state of a run, for an exact resume."""

    parameters: AgentParameters
    optimiser: Any
    rollout: RolloutState
    key: jax.Array
    updates: jax.Array  # () int: number of finished updates
    replay: Any = None  # what a learner from replay keeps besides: target networks, buffer


def first_features(agent: Agent, environment: Environment, rollout: RolloutState) -> tuple[Features, Features]:
    """Return features (B, ...) of actor and critic at the start of a run, from which networks get their shapes."""
    features = flat(agent.encode(environment.signals(rollout.worlds)))
    if not agent.config.central_critic:
        return features, features
    # parameters are for the normalisation of the actor's inputs only, which a central critic does not read
    return features, critic_features(agent, environment, cast(Any, None), rollout.worlds, features)


def report(
    batch: Batch, figures: StepFigures, environment: Environment, rollout: RolloutState, losses: Metrics
) -> Metrics:
    """Return the figures of an update: episodes, contacts, use of the shield, and the losses.

    ``reward/<term>`` are the parts of ``train/reward``, and ``metric/<name>`` what the scenario counts in a decision.
    """
    metrics = figures.metrics
    summary = episode_counts(batch, environment.team.size) | {
        "train/contacts": jnp.sum(metrics.contacts),
        "shield/intervention_rate": jnp.mean(metrics.interventions),
        "shield/brake_rate": jnp.mean(metrics.braked),
        "shield/change_m_s": jnp.mean(jnp.nan_to_num(metrics.change_m_s, posinf=0.0, neginf=0.0)),
        "shield/separation_m": jnp.min(metrics.separation_m),
        **{f"reward/{name}": jnp.mean(value) for name, value in figures.terms.items()},
        **{f"{METRIC}{name}": jnp.mean(value) for name, value in figures.counts.items()},
        **losses,
    }
    if environment.team.size >= CROWD:
        summary["train/peers_left_out"] = jnp.max(metrics.left_out)
    if rollout.worlds.difficulty is not None:
        summary["train/difficulty"] = jnp.mean(rollout.worlds.difficulty)
    return summary


def episode_counts(batch: Batch, team: int) -> Metrics:
    """Return mean reward of a robot and decision, worlds whose episodes ended, and those that ended in success.

    ``train/not_counted`` is the number of decisions of robots that do not count, see `Batch.counted`.
    """
    done = batch.terminated | batch.truncated
    return {
        "train/reward": jnp.mean(batch.reward),
        "train/episodes": jnp.sum(done) / team,
        "train/successes": jnp.sum(batch.terminated) / team,
        "train/not_counted": jnp.sum(~batch.counted),
    }


def gradient_step(
    loss: Callable[[Any], tuple[jax.Array, Metrics]],
    optimiser: optax.GradientTransformation,
    learned: Any,
    state: Any,
    name: str = "all",
) -> tuple[Any, Any, Metrics]:
    """Return parameters and optimiser state after one step down a loss; its parts, and ``gradient/<name>``, its norm.

    A step whose gradient is not finite is left out.
    """
    (_, losses), gradient = jax.value_and_grad(loss, has_aux=True)(learned)
    changes, moved = optimiser.update(gradient, state, learned)
    after = optax.apply_updates(learned, changes)
    norm = optax.tree.norm(gradient)
    sound = jnp.isfinite(norm)
    learned, state = jax.tree.map(lambda new, old: jnp.where(sound, new, old), (after, moved), (learned, state))
    return learned, state, losses | {f"gradient/{name}": jnp.where(sound, norm, 0.0)}


def typed(value: Any) -> jax.Array:
    """Return a strongly typed value, as a checkpoint restores it; else a resumed run compiles another program."""
    value = jnp.asarray(value)
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return value
    return jnp.asarray(value, value.dtype)
