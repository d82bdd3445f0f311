"""H2O with its own mechanism: gap, weights, penalty and ratio against numbers computed by hand, and one update."""

from dataclasses import dataclass, replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.policies.quick import TINY

from testudo_policies.improve.discriminators import ACTION, NEXT, STATE, Discriminators
from testudo_policies.improve.h2o import (
    H2O,
    PENALTY,
    Lesson,
    clipped_ratio,
    drawn,
    gap_penalty,
    gap_weights,
    pairs,
    penalty_of_cql,
)
from testudo_policies.learning.builder import build
from testudo_policies.learning.rollout import begin, collect_rollout
from testudo_policies.train_config import suggested

pytestmark = pytest.mark.usefixtures("quick")


def test_weights_are_the_shares_of_the_clipped_gaps_of_simulated_transitions():
    # 30 is clipped to 10, -1 to nothing, and the last one is real: 2 and 10 of 12
    weights = gap_weights(jnp.array([2.0, 30.0, -1.0, 5.0]), jnp.array([True, True, True, False]))
    np.testing.assert_allclose(weights, [2 / 12, 10 / 12, 0, 0], atol=1e-6)


def test_the_ratio_is_clipped_to_at_most_one_and_at_least_a_hundred_thousandth():
    found = clipped_ratio(jnp.log(jnp.array([0.25, 4.0, 1e-9])))
    np.testing.assert_allclose(found, [0.25, 1.0, 1e-5], rtol=1e-5)


def test_the_penalty_is_the_log_of_the_weighted_sum_of_exp_less_the_mean_of_real_values():
    value, weights = jnp.array([1.0, 3.0, 5.0, 7.0]), jnp.array([0.25, 0.75, 0.0, 0.0])
    real = jnp.array([False, False, True, True])
    expected = np.log(0.25 * np.e + 0.75 * np.e**3) - 6.0
    assert float(gap_penalty(value, weights, real)) == pytest.approx(expected, rel=1e-6)
    slope = jax.grad(gap_penalty)(value, weights, real)
    # down where the simulation is wrong, the more so where the value is high; up on real data
    low, high = 0.25 * np.e, 0.75 * np.e**3
    np.testing.assert_allclose(slope, [low / (low + high), high / (low + high), -0.5, -0.5], rtol=1e-5)


def test_the_penalty_of_cql_is_the_mean_over_the_data_of_how_far_other_actions_are_above_it():
    value, chosen = jnp.array([1.0, 2.0, 9.0]), jnp.array([True, True, False])
    others = jnp.log(jnp.array([[1.0, 2.0, 5.0], [3.0, 6.0, 5.0]]))  # means of exp Q / density: 2, 4, 5
    expected = ((np.log(2) - 1) + (np.log(4) - 2)) / 2
    assert float(penalty_of_cql(value, others, chosen)) == pytest.approx(expected, rel=1e-5)


def test_a_gap_is_minus_the_mean_log_ratio_about_the_next_state():
    real = {STATE: jnp.zeros((4, 1)), ACTION: jnp.zeros((4, 1)), NEXT: jnp.array([[-2.0], [2.0], [-2.0], [2.0]])}

    class Linear(Discriminators):
        def log_ratio(self, classifiers, motion, known):
            return jnp.where(known, 3.0 * motion[NEXT][..., 0], 0.0)

    judges = Linear(None, real, jnp.ones(4, bool))
    motion = {STATE: jnp.zeros((2, 1)), ACTION: jnp.zeros((2, 1)), NEXT: jnp.array([[1.0], [1.0]])}
    noise = jnp.array([[[1.0], [1.0]], [[-2.0], [0.0]]])  # in deviations of the real data, which are 2
    gap = judges.gap(None, motion, jnp.array([True, False]), noise)
    np.testing.assert_allclose(gap, [-(3 * 3.0 + 3 * -3.0) / 2, 0.0])


def learner_of(**changes):
    config, _ = suggested(replace(TINY, algorithm="masac", replay=64))
    components = build(config)
    return H2O(components.config, components.agent, components.environment, **changes)


def test_the_critics_loss_is_that_written_out_by_hand():
    value, target = jnp.array([[1.0, 2.0, 3.0, 4.0]]), jnp.array([[0.0, 0.0, 1.0, 1.0]])
    lesson = Lesson(
        jnp.array([[False, False, True, True]]),
        jnp.array([[1.0, 0.25, 1.0, 1.0]]),
        jnp.array([[0.5, 0.5, 0.0, 0.0]]),
    )

    class Judged(H2O):
        @property
        def discriminators(self):
            return SimpleNamespace()

    made = learner_of()
    h2o = Judged(made.config, made.agent, made.environment, lesson=lesson)
    steps = SimpleNamespace(teaches=jnp.ones((2, 4), bool))
    bellman = (1.0 + 0.25 * 4.0) / 2 + (4.0 + 9.0) / 2
    penalty = np.log(0.5 * np.e + 0.5 * np.e**2) - 3.5
    found = float(h2o.critic_loss(None, None, steps, value, target))
    assert found == pytest.approx(bellman + PENALTY * penalty, rel=1e-5)
    # without weights both halves count alike, and nothing is lowered
    alike = replace(lesson, ratio=jnp.ones((1, 4)))
    plain = H2O(made.config, made.agent, made.environment, lesson=alike, weighted=False)
    assert float(plain.critic_loss(None, None, steps, value, target)) == pytest.approx(2.5 + 6.5)
    # a transition that does not teach, such as one that was cut off, counts nowhere
    cut = SimpleNamespace(teaches=jnp.array([[True, False, True, True]] * 2))
    assert float(plain.critic_loss(None, None, cut, value, target)) == pytest.approx(1.0 + 6.5)


def recorded_of(learner, key):
    config, agent, environment = learner.config, learner.agent, learner.environment
    parameters = learner.init(key).parameters
    _, batch, _ = collect_rollout(
        agent, environment, parameters, begin(agent, environment, key, 3), key, config.rollout,
        agent.distribution.sample_no_postprocessing,
    )  # fmt: skip
    return pairs(replace(batch, memory=None))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Rewards:
    """A batch of rewards alone."""

    reward: jax.Array


def test_pairs_are_steps_with_their_next_ones_and_are_drawn_as_whole_teams():
    batch = {"reward": jnp.arange(12.0).reshape(3, 4)}  # three steps of two worlds with two robots
    joined = pairs(batch)["reward"]
    np.testing.assert_array_equal(joined, [[0, 1, 2, 3, 4, 5, 6, 7], [4, 5, 6, 7, 8, 9, 10, 11]])
    chosen = Rewards(joined)
    first, after = drawn(chosen, 2, 50, jax.random.key(0)).reward
    np.testing.assert_array_equal(first[1::2], first[::2] + 1)  # the robots of a world stay beside each other
    np.testing.assert_array_equal(after, first + 4)
    assert set(np.asarray(first[::2]).tolist()) == {0, 2, 4, 6}


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{}, {"weighted": False}, {"simulate": False, "conservative": 1.0}, {"simulate": False}]
)
def test_an_update_from_simulation_and_run_is_finite_and_changes_the_policy_after_the_warm_up(options):
    plain = learner_of()
    recorded = recorded_of(plain, jax.random.key(3))
    learner = learner_of(recorded=recorded, warm_up=1, **options)
    state = jax.jit(learner.init)(jax.random.key(0))
    update = jax.jit(learner.update)
    first, metrics = update(state)
    assert all(np.all(np.isfinite(value)) for value in jax.tree.leaves(metrics))
    assert ("h2o/ratio" in metrics) == (not options)
    same = jax.tree.map(lambda a, b: bool(jnp.all(a == b)), first.parameters.actor, state.parameters.actor)
    assert all(jax.tree.leaves(same))
    second, _ = update(first)
    changed = jax.tree.map(lambda a, b: bool(jnp.any(a != b)), second.parameters.actor, first.parameters.actor)
    assert any(jax.tree.leaves(changed))
