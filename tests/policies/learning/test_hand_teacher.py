"""The hand-written velocities as a teacher: what they label is the action that gives their command."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.policies.quick import TINY

from testudo_hardware.errors import TestudoError
from testudo_policies.commands.train import _teacher_text
from testudo_policies.hand_written import HAND_WRITTEN
from testudo_policies.learning.builder import build
from testudo_policies.learning.hand_teacher import distribution_of
from testudo_policies.networks.observation_encoding import Features
from testudo_policies.networks.waypoint_choice import WaypointChoice

pytestmark = pytest.mark.usefixtures("quick")

TAUGHT = replace(TINY, teacher=HAND_WRITTEN, imitation=1.0)


@pytest.fixture(scope="module")
def features():
    """Frames at any angle, robots of different speed."""
    random = np.random.default_rng(0)
    angle, blank = random.uniform(-np.pi, np.pi, 50), jnp.zeros((50, 1))
    frame, speed = np.stack([np.cos(angle), np.sin(angle)], axis=-1), random.uniform(0.3, 1.0, (50, 1))
    point = jnp.asarray(random.normal(size=(50, 2)))
    return Features(blank, blank[:, None], blank, jnp.zeros((50, 2)), jnp.asarray(frame), speed=speed, point=point)


def test_its_label_is_the_action_of_the_command(features):
    agent = build(TAUGHT).agent
    random = np.random.default_rng(1)
    heading, share = random.uniform(-np.pi, np.pi, 50), random.uniform(0, 0.97, (50, 1))
    command = agent.speed_limit_m_s * features.speed * share * np.stack([np.cos(heading), np.sin(heading)], axis=-1)
    found = agent.command(features, agent.distribution.mode(distribution_of(agent, features, command)))
    np.testing.assert_allclose(found, command, atol=1e-6)


def test_its_label_of_way_points_is_the_nearest_one(features):
    choice = WaypointChoice(2, 0.2, None)
    agent = replace(build(TAUGHT).agent, waypoints=choice)
    weights = choice.postprocess(jnp.arange(50) % choice.count)
    chosen = agent.command(features, weights) + 0.02 * np.random.default_rng(2).uniform(-1, 1, (50, 2))
    np.testing.assert_array_equal(choice.mode(distribution_of(agent, features, chosen)), weights)


def test_the_divergence_of_way_points_is_that_by_hand():
    choice, scores = WaypointChoice(2, 0.2, None), jnp.log(jnp.array([0.2, 0.2, 0.2, 0.2, 0.2]))
    teacher = jnp.log(jnp.array([0.6, 0.1, 0.1, 0.1, 0.1]))
    expected = 0.6 * np.log(3) + 0.4 * np.log(0.5)
    assert float(choice.divergence(scores, teacher)) == pytest.approx(expected, abs=1e-6)
    assert float(choice.divergence(teacher, teacher)) == pytest.approx(0, abs=1e-6)


def test_a_run_names_it_and_robots_that_talk_cannot_imitate_it():
    assert _teacher_text(HAND_WRITTEN) == HAND_WRITTEN
    with pytest.raises(TestudoError, match="--teacher hand-written: found --message 2, expected 0"):
        build(replace(TAUGHT, message=2)).learner  # noqa: B018


@pytest.mark.slow
@pytest.mark.parametrize("command", ["velocity", "waypoints"])
def test_a_student_comes_to_act_as_it_does(command):
    taught = replace(TAUGHT, scenario="foraging", command=command, decisions=64_000)
    learner = build(replace(taught, width=32, worlds=16, epochs=4, learning_rate=0.005)).learner
    update, state, found = jax.jit(learner.update), learner.start(jax.random.key(0)), []
    for _ in range(60):
        state, metrics = update(state)
        found.append(float(metrics["loss/divergence"]))
    assert float(metrics["teacher/reward_weight"]) == 0
    assert np.mean(found[-5:]) < 0.6 * found[0]
