"""The pool of self-play by hand: who is drawn, what a match changes, and who has won an episode."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from testudo_policies.learning.opponents import Pool, empty_pool, expected_score, priorities, scores
from testudo_policies.networks.agent import AgentParameters


def parameters(value):
    return AgentParameters({"w": jnp.full(2, value)}, {"c": jnp.zeros(3)}, jnp.full(1, value), jnp.zeros(1), 0.0)


def pool_of(wins, rating, newest):
    made = empty_pool(parameters(0.0), 2, 3)
    return Pool(made.policies, jnp.int32(3), jnp.array(wins), jnp.array(rating), jnp.array(newest))


def test_opponents_that_win_are_drawn_as_the_square_of_their_share():
    there = jnp.array([True, True, True, False])
    found = priorities(jnp.array([[0.5, 0.0, 1.0, 0.0], [1.0, 1.0, 1.0, 0.0]]), there)
    np.testing.assert_allclose(found, [[0.2, 0.8, 0, 0], [1 / 3, 1 / 3, 1 / 3, 0]], atol=1e-6)


def test_draws_are_of_policies_that_are_there_and_lose_less():
    pool = pool_of([[0.0, 1.0, 0.5], [1.0, 0.0, 1.0]], np.full((2, 3), 1000.0), [1000.0, 1000.0])
    drawn = np.asarray(pool.drawn(jax.random.key(0), 500))
    assert np.mean(drawn[0] == 0) == pytest.approx(0.8, abs=0.05)
    assert set(drawn[0]) == {0, 2}
    assert set(drawn[1]) == {1}


def test_elo_expects_ten_to_one_at_four_hundred_points():
    assert float(expected_score(jnp.array(1400.0), jnp.array(1000.0))) == pytest.approx(10 / 11)


def test_a_match_moves_both_ratings_by_what_was_not_expected_and_the_share_of_wins_by_half():
    pool = pool_of(np.full((2, 3), 0.5), [[1000.0, 1400.0, 900.0], [1000.0] * 3], [1000.0, 1000.0])
    won, ended = np.zeros((2, 3)), np.zeros((2, 3))
    won[0, :2], ended[0, :2] = (8, 1), (8, 4)  # all of eight; one of four against the stronger one
    after = pool.after_match(jnp.array(won), jnp.array(ended))
    first, second = 16 * (1 - 0.5), 16 * (0.25 - 1 / 11)
    np.testing.assert_allclose(after.newest, [1000 + first + second, 1000], rtol=1e-6)
    np.testing.assert_allclose(after.rating[0], [1000 - first, 1400 - second, 900], rtol=1e-6)
    np.testing.assert_allclose(after.wins, [[0.75, 0.375, 0.5], [0.5] * 3], rtol=1e-6)


def test_a_new_policy_takes_the_next_place_with_the_rating_of_the_other_role():
    pool = empty_pool(parameters(0.0), 2, 2)
    pool = Pool(pool.policies, jnp.int32(1), pool.wins, pool.rating, jnp.array([1100.0, 950.0]))
    grown = pool.with_policy(parameters(7.0))
    assert int(grown.filled) == 2
    assert grown.policies.actor["w"].tolist() == [[0, 0], [7, 7]]
    assert grown.rating.tolist() == [[1000, 950], [1000, 1100]]
    assert jax.tree.leaves(grown.policies.critic) == []


def test_the_higher_return_wins_and_equal_ones_share():
    returns = jnp.array([[1.0, -1.0, 0.0], [-1.0, 2.0, 0.0]])
    assert scores(returns).tolist() == [[1, 0, 0.5], [0, 1, 0.5]]
