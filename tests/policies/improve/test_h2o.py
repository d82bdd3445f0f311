"""Learning from simulation and a run: dynamics that differ are found, and what is not trusted pushes nothing."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from testudo_policies.improve.discriminators import (
    ACTION,
    NEXT,
    STATE,
    DiscriminatorConfig,
    Discriminators,
    flat_motion,
    motions,
)
from testudo_policies.learning.losses import Batch, advantages
from testudo_policies.networks.actor_critic import NetworkConfig
from testudo_policies.networks.agent import Agent
from testudo_policies.networks.observation_encoding import Features
from testudo_sim.scenarios.scenario import Observation

pytestmark = pytest.mark.usefixtures("quick")
QUICK = DiscriminatorConfig(width=32, steps=300, samples=256, learning_rate=3e-3)


def motion_of(key, count, gain, shift=0.0):
    """Return motions whose next velocity is ``gain`` times the action, drawn about ``shift``."""
    first, second, third = jax.random.split(key, 3)
    action = shift + jax.random.normal(first, (count, 2))
    after = gain * action + 0.1 * jax.random.normal(second, (count, 2))
    return {
        STATE: jax.random.normal(third, (count, 2)),
        ACTION: action,
        NEXT: jnp.concatenate([after, jnp.zeros((count, 1)), after], axis=-1),
    }


def judged(real, simulated):
    """Return the trust of simulated motions after learning to tell them from real ones."""
    known = jnp.ones(len(simulated[STATE]), bool)
    discriminators = Discriminators(QUICK, real, jnp.ones(len(real[STATE]), bool))
    classifiers, loss = jax.jit(discriminators.learn)(
        jax.jit(discriminators.init)(jax.random.key(0)), simulated, known, jax.random.key(1)
    )
    return np.asarray(discriminators.trust(classifiers, simulated, known)), float(loss)


def test_the_same_dynamics_are_trusted_even_where_the_actions_differ():
    real, simulated = motion_of(jax.random.key(1), 3000, 1.0), motion_of(jax.random.key(2), 3000, 1.0, shift=0.5)
    trust, _ = judged(real, simulated)
    assert np.median(trust) > 0.7


def test_other_dynamics_are_not_trusted():
    real, simulated = motion_of(jax.random.key(1), 3000, 0.5), motion_of(jax.random.key(2), 3000, 1.0)
    trust, _ = judged(real, simulated)
    large = np.abs(np.asarray(simulated[ACTION])).max(axis=1) > 1.0
    assert np.median(trust[large]) < 0.1
    assert np.median(trust[large]) < np.median(trust[~large])  # at rest both dynamics are alike


@pytest.mark.slow
def test_steps_without_a_motion_are_trusted_and_teach_nothing():
    real = motion_of(jax.random.key(1), 500, 0.5)
    simulated = {name: value.at[250:].set(1e3) for name, value in motion_of(jax.random.key(2), 500, 1.0).items()}
    known = jnp.arange(500) < 250
    discriminators = Discriminators(replace(QUICK, steps=5), real, jnp.ones(500, bool))
    classifiers, loss = jax.jit(discriminators.learn)(
        jax.jit(discriminators.init)(jax.random.key(0)), simulated, known, jax.random.key(1)
    )
    assert float(loss) < 2.0  # values of a thousand would be far off
    np.testing.assert_array_equal(discriminators.trust(classifiers, simulated, known)[250:], 1.0)


def test_advantages_with_trust_are_those_written_out_by_hand():
    reward, value, after = (jnp.array(x)[:, None] for x in ([1.0, 2.0, 3.0], [0.5, 0.5, 0.5], [0.5, 0.5, 1.0]))
    never = jnp.zeros((3, 1), bool)
    trust = jnp.array([1.0, 0.5, 0.2])[:, None]
    found = advantages(reward, value, after, never, never, 0.9, 0.8, trust)[:, 0]
    deltas = [1 + 0.9 * 0.5 - 0.5, 2 + 0.9 * 0.5 - 0.5, 3 + 0.9 * 1.0 - 0.5]
    last = 0.2 * deltas[2]
    middle = 0.5 * (deltas[1] + 0.72 * last)
    first = deltas[0] + 0.72 * middle
    np.testing.assert_allclose(found, [first, middle, last], rtol=1e-6)
    whole = advantages(reward, value, after, never, never, 0.9, 0.8, jnp.ones((3, 1)))
    np.testing.assert_array_equal(whole, advantages(reward, value, after, never, never, 0.9, 0.8))
    assert (advantages(reward, value, after, never, never, 0.9, 0.8, jnp.zeros((3, 1))) == 0).all()


@pytest.mark.parametrize("turn", [0.0, 2.0])
def test_a_motion_is_seen_from_the_robot_wherever_it_is(turn):
    agent = Agent(NetworkConfig(), 2, 0.2, Observation("goal_world", "goal_world"))
    # two steps, world: drives 0.1 m along its yaw, turning by 0.3 rad; the action asks for full speed ahead
    yaw, goal = np.array([0.4, 0.7]) + turn, np.array([1.5, 1.6]) + turn
    point = np.array([[1.0, 2.0], [1.0 + 0.1 * np.cos(yaw[0]), 2.0 + 0.1 * np.sin(yaw[0])]])
    velocity = np.array([[0.15, 0.2], [0.18, 0.1]])
    rows = [
        np.concatenate(
            [
                [1.0, 1.0],
                point[t],
                [np.cos(goal[t]), np.sin(goal[t])],
                [np.cos(yaw[t] - goal[t]), np.sin(yaw[t] - goal[t])],
                velocity[t],
            ]
        )
        for t in range(2)
    ]
    frame = np.stack([np.cos(goal), np.sin(goal)], axis=-1)
    features = Features(
        jnp.asarray(rows)[:, None],
        jnp.zeros((2, 1, 1, 7)),
        jnp.zeros((2, 1, 1)),
        jnp.zeros((2, 1, 2)),
        jnp.asarray(frame)[:, None],
    )
    ahead = np.stack([np.cos(yaw - goal), np.sin(yaw - goal)], axis=-1)[:, None]
    never = jnp.zeros((2, 1), bool)
    batch = Batch(
        features, features, never, jnp.arctanh(0.99 * ahead), *[jnp.zeros((2, 1))] * 4, never, never, ~never, never
    )
    found, known = jax.jit(lambda given: motions(agent, given))(batch)
    assert known[:, 0].tolist() == [True, False]  # what came of the last step is not in the batch
    np.testing.assert_allclose(found[STATE][0, 0], velocity[0], atol=1e-5)
    np.testing.assert_allclose(found[ACTION][0, 0], [0.2 * 0.99, 0.0], atol=1e-5)
    np.testing.assert_allclose(found[NEXT][0, 0], [0.1, 0.0, 0.3, *velocity[1]], atol=1e-5)
    assert flat_motion(found, known)[0][NEXT].shape == (2, 5)
    ended = replace(batch, terminated=jnp.ones((2, 1), bool))
    assert not motions(agent, ended)[1].any()
