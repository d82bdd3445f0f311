"""Targets and choices of the learners of action values, against numbers made by hand."""

import jax
import jax.numpy as jnp
import numpy as np

from testudo_policies.learning.team_values import TeamSteps, epsilon_greedy, lambda_returns, team_mean


def steps(reward, terminated, truncated):
    column = [jnp.array(x)[:, None] for x in (reward, terminated, truncated)]
    return TeamSteps(*column, jnp.ones((len(reward), 1, 2), bool))


def test_lambda_returns_by_hand():
    """Backwards by half steps: G = r + 0.5 (0.75 best + 0.25 G), nothing after the end, the own value after a cut."""
    best = jnp.array([7.0, 6.0, 5.0, 4.0, 8.0])[:, None]
    found = lambda_returns(steps([1.0, 2.0, 3.0, 4.0], [0, 1, 0, 0], [0, 0, 1, 0]), best, 0.5, 0.25)
    # the last step: 4 + 0.5 * 8; the third is cut: its own value 5; the second ended the task: 2
    np.testing.assert_allclose(found[:, 0], [1 + 0.5 * (0.75 * 6 + 0.25 * 2), 2.0, 5.0, 8.0], rtol=1e-6)


def test_a_cut_step_teaches_nothing_and_the_one_before_relies_on_the_value():
    cut = steps([1.0, 9.0], [0, 0], [0, 1])
    assert cut.teaches[:, 0].tolist() == [True, False]
    found = lambda_returns(cut, jnp.array([[0.0], [6.0], [-50.0]]), 0.5, 0.25)
    assert found[0, 0] == 1 + 0.5 * 6  # neither the reward of the cut step nor the next episode


def test_robots_that_do_not_count_are_left_out_of_the_team():
    values, counted = jnp.array([[1.0, 9.0], [3.0, 5.0], [7.0, 7.0]]), jnp.array([[1, 0], [1, 1], [0, 0]], bool)
    assert team_mean(values, counted).tolist() == [1.0, 4.0, 0.0]


def test_random_choices_have_their_share():
    scores = jnp.tile(jnp.array([0.0, 1.0, 0.5]), (3000, 1))
    for epsilon in (0.0, 0.3, 1.0):
        chosen = epsilon_greedy(jnp.float32(epsilon))(scores, jax.random.key(0))
        assert abs(float(jnp.mean(chosen == 1)) - (1 - epsilon * 2 / 3)) < 0.03
