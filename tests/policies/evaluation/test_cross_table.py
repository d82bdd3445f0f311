"""The cross table: ratings by hand, who exploits whom, and that each robot drives by the policy of its side."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from tests.policies.quick import TINY
from tests.policies.untrained import untrained

from testudo_hardware.errors import TestudoError
from testudo_policies.commands.cross import tables
from testudo_policies.evaluation.cross_table import (
    CrossTable,
    Meeting,
    _meeting,
    cross_table,
    fitted_ratings,
)
from testudo_policies.evaluation.side_by_side import side_by_side

CHASE = replace(TINY, scenario="chase", sharing="role")


def met(returns, won=0.5):
    return Meeting(10, won, (returns, -returns), (0.1, 0.1))


TABLE = CrossTable(
    "chase",
    ("predator", "prey"),
    {("a", "a"): met(1.0), ("a", "b"): met(1.5), ("b", "a"): met(1.2), ("b", "b"): met(-0.5), ("c", "a"): met(1.7),
     ("c", "b"): met(0.0)},
)  # fmt: skip


def test_ratings_of_one_pair_are_the_logarithm_of_its_odds_with_one_more_draw():
    rows, columns = fitted_ratings(np.array([[1.0]]), np.array([[9.5]]))  # 10 of 10.5 with the draw: odds 20 to 1
    assert rows[0] - columns[0] == pytest.approx(400 * np.log10(20), abs=0.1)
    assert rows[0] + columns[0] == pytest.approx(2000)


def test_ratings_reproduce_the_shares_that_they_let_expect():
    true = np.array([1100.0, 900.0]), np.array([1200.0, 950.0, 850.0])
    won = 1 / (1 + 10 ** ((true[1][None] - true[0][:, None]) / 400))
    rows, columns = fitted_ratings(won, np.full(won.shape, 1e6))
    np.testing.assert_allclose(np.concatenate([rows, columns]), np.concatenate(true), atol=0.1)


def test_a_policy_is_exploited_by_what_the_best_opponent_earns_more_than_its_own_side():
    # the prey of a: its own predators earn 1.0, those of c 1.7
    assert TABLE.exploited("a", 1) == (pytest.approx(0.7), "c")
    # the predators of b: its own prey earns 0.5, no other more
    assert TABLE.exploited("b", 0) == (0.0, "b")
    assert TABLE.exploited("c", 0) is None  # a best response of predators has no side of its own
    assert [table.row_count for table in tables(TABLE)] == [3, 5]
    assert {row["policy"] for row in TABLE.to_dict()["exploited"]} == {"a", "b"}


def test_an_episode_is_won_by_the_higher_mean_return_of_a_side():
    returns = np.array([[1.0, 0, -1], [3.0, 0, 0], [-2.0, 0, 2]])
    found = _meeting(returns, np.array([0, 0, 1]))
    assert found.won == pytest.approx(0.5)  # won, equal, lost
    assert found.returns == pytest.approx((0.5, 0.0))


def test_each_robot_drives_by_the_policy_of_its_side_and_keeps_its_memory():
    def policy(number, memory):
        def step(signals, hidden):
            assert ("robot_number" in signals) == (memory == 2)
            return signals["place"] + number, hidden + number

        return replace(untrained(CHASE), policy=step, memory=memory, numbered=memory == 2)

    step, memory = side_by_side([policy(10, 2), policy(20, 1)], np.array([0, 0, 1]))
    place = jnp.arange(12.0).reshape(6, 2)
    command, hidden = step({"place": place, "robot_number": jnp.zeros((6, 1))}, jnp.zeros((6, memory)))
    np.testing.assert_allclose(command - place, np.array([10, 10, 20, 10, 10, 20])[:, None] * np.ones(2))
    assert hidden.tolist() == [[10, 10, 20]] * 6


def test_policies_of_another_game_and_games_without_two_roles_are_refused():
    chase, other = untrained(CHASE), untrained(replace(CHASE, team_size=3))
    with pytest.raises(TestudoError, match="cross: a and b differ in team size; expected one game"):
        cross_table({"a": chase, "b": other}, {}, 4, 0)
    with pytest.raises(TestudoError, match="cross: scenario 'navigation' has 0 roles here, expected two"):
        cross_table({"a": untrained(TINY)}, {}, 4, 0)
    with pytest.raises(TestudoError, match="cross: found no policy that plays predator"):
        cross_table({"a": chase}, {"a": "prey"}, 4, 0)
