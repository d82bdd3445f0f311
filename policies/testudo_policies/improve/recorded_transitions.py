"""Transitions of a real run in the form of a rollout, for learning from both (`Tuner`)."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import MotionState
from testudo_policies.dataset.episodes import DatasetEpisode
from testudo_policies.improve.fine_tuning import RecordedTransitions
from testudo_policies.learning.builder import TrainingComponents
from testudo_policies.learning.losses import Batch
from testudo_policies.learning.rollout import critic_features, flat
from testudo_policies.networks.agent import AgentParameters
from testudo_policies.networks.observation_encoding import encode, out_of_goal_frame
from testudo_sim.online_task.task_state import make_task

_EDGE = 0.999
"""Largest action: at 1 the normal variable before the squashing is infinite."""


def recorded_of(
    episodes: Sequence[DatasetEpisode], workshop: TrainingComponents, behaviour: AgentParameters
) -> RecordedTransitions:
    """Return the transitions of some episodes as sequences as long as a rollout.

    The actions count as drawn from the policy that drove the robots; a deployed policy sends its most probable action,
    so they say nothing about which action would have been better, only what came of this one.

    Args:
        episodes: of one task.
        workshop: networks, rollout length and minibatches.
        behaviour: parameters of the policy that drove the robots.

    Raises:
        TestudoError: there is no whole decision in them.
    """
    length, parts = workshop.config.rollout, workshop.config.minibatches
    made = [
        _sequence(episode, workshop, behaviour, begin, length)
        for episode in episodes
        for begin in range(0, len(episode), length)
    ]
    if not made:
        raise TestudoError("the run holds no whole decision to learn from")
    joined = jax.tree.map(lambda *x: jnp.concatenate(x, axis=1), *[(r.batch, r.last, r.weight) for r in made])
    hidden = jnp.concatenate([r.hidden for r in made])
    robots = len(hidden)
    # minibatches are of one size: some sequences come twice
    wanted = -(-robots // parts) * parts
    rows = jnp.arange(wanted) % robots
    batch, last, weight = jax.tree.map(lambda x: x[:, rows], joined)
    return RecordedTransitions(batch, hidden[rows], last, weight)


def _sequence(
    episode: DatasetEpisode, workshop: TrainingComponents, behaviour: AgentParameters, begin: int, length: int
) -> RecordedTransitions:
    """Return the decisions of an episode from one on, filled up with the last one."""
    agent, count = workshop.agent, len(episode.robots)
    rows = np.minimum(np.arange(begin, begin + length), len(episode) - 1)
    whole = np.arange(begin, begin + length) < len(episode)
    signals, after = (
        {name: jnp.asarray(value[rows]) for name, value in named.items()}
        for named in (episode.signals, episode.next_signals)
    )
    features, next_features = encode(signals), encode(after)
    central, last = (
        _central(workshop, behaviour, state[rows], told, own)
        for state, told, own in (
            (episode.state, episode.signals["neighbour_velocity_world"][rows], features),
            (episode.next_state, episode.next_signals["neighbour_velocity_world"][rows], next_features),
        )
    )
    action = _action(agent, features, jnp.asarray(episode.actions[rows]).reshape(length, count, -1))
    hidden = jnp.asarray(episode.hidden[begin]).reshape(count, -1)[:, : agent.config.memory]
    fresh = np.zeros((length, count), bool)
    fresh[0] = begin == 0
    logits, _ = agent.act(behaviour, features, hidden, jnp.asarray(fresh))
    ends = np.repeat(whole[:, None], count, axis=1)
    zero = jnp.zeros((length, count))
    batch = Batch(
        features,
        central,
        jnp.asarray(fresh),
        action,
        agent.distribution.log_prob(logits, action),
        zero,
        zero,
        jnp.asarray(episode.rewards[rows]),
        jnp.asarray(episode.terminals[rows][:, None] & ends),
        jnp.asarray((episode.truncations[rows] | ~whole)[:, None] | ~ends),
    )
    return RecordedTransitions(batch, hidden, last, jnp.asarray(episode.valid[rows] & ends, jnp.float32))


def _action(agent: Any, features: Any, velocity_world: jax.Array) -> jax.Array:
    """Return the actions before the squashing (T, N, D) that command these velocities."""
    mirrored = features.goal_frame * jnp.array([1.0, -1.0])
    action = out_of_goal_frame(velocity_world, mirrored) / agent.speed_limit_m_s
    return jnp.arctanh(jnp.clip(action, -_EDGE, _EDGE))


def _central(
    workshop: TrainingComponents, behaviour: AgentParameters, state: np.ndarray, told: np.ndarray, own: Any
) -> Any:
    """Return what the critic reads (T, N, ...) of recorded states (T, S)."""
    environment, agent = workshop.environment, workshop.agent
    if not agent.config.central_critic:
        return agent.normalise(behaviour, own)
    size, count = agent.dimension, own.own.shape[1]
    parts = state.reshape(len(state), count, -1).astype(np.float32)
    place, yaw, velocity, goals = (
        parts[..., :size],
        parts[..., size],
        parts[..., size + 1 : 2 * size + 1],
        parts[0, :, 2 * size + 1 :],
    )
    motion = MotionState(*(jnp.asarray(x.T) for x in (place, yaw, velocity)))
    stop = environment.team.model.stopping_point(motion)
    # what robot i + 1 told is what robot i heard in its first slot
    spoken = jnp.asarray(np.roll(told[:, :, 0], 1, axis=1).T)
    task = jax.tree.map(
        lambda x: jnp.broadcast_to(x, (*x.shape[:-1], len(state))), make_task(environment.scenario, goals)
    )
    world = SimpleNamespace(
        team=SimpleNamespace(physics=motion, announced=[jnp.concatenate([stop.position_world, spoken])]), task=task
    )
    found = critic_features(agent, environment, behaviour, world, flat(own))
    return jax.tree.map(lambda x: x.reshape(len(state), count, *x.shape[1:]), found)
