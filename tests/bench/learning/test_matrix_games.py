"""HASAC's turns on matrix games that are known exactly, and what becomes of all robots that change at once."""

import numpy as np
import pytest

from testudo_bench.learning.matrix_games import GAMES, bench_games, play

# fixed points of p = softmax(R q / alpha), q = softmax(R^T p / alpha), in turns from uniform strategies
EXACT = {
    ("coordination", 1.0): (1.942, 0.568, [[0.445, 0.555], [0.445, 0.555]]),
    ("coordination", 0.3): (1.212, 1.151, [[0.021, 0.979], [0.021, 0.979]]),
    ("climbing", 1.0): (7.318, 6.70, [[0.0, 0.995, 0.005], [0.0, 0.725, 0.275]]),
    ("climbing", 0.3): (7.011, 6.97, None),
    ("penalty", 3.0): (4.12, 0.97, None),
    ("penalty", 10.0): (17.435, 4.226, None),
}


@pytest.mark.parametrize("game", GAMES, ids=lambda game: f"{game.name}-{game.temperature:g}")
def test_turns_reach_the_exact_figures_and_the_value_never_falls(game):
    value, reward, strategies = EXACT[game.name, game.temperature]
    for seed in (0, 1):  # other orders of the turns
        found = play(game, in_turns=True, seed=seed)
        assert found.value[-1] == pytest.approx(value, abs=0.02)
        assert found.reward[-1] == pytest.approx(reward, abs=0.02)
        assert found.largest_fall < 1e-4
        assert found.last_change < 1e-3
        if strategies:
            np.testing.assert_allclose(found.strategies[-1], strategies, atol=0.02)


@pytest.mark.parametrize(("game", "value", "reward"), [(GAMES[4], -4.7, -10.9), (GAMES[5], -26.9, -40.0)])
def test_all_at_once_go_round_in_a_circle_where_a_choice_has_a_penalty(game, value, reward):
    """Negative control: the same code with a single turn of all never comes to rest, and misses the reward."""
    found = play(game, in_turns=False)
    assert found.last_change > 0.4
    assert found.value[-2:].min() == pytest.approx(value, abs=0.1)
    assert found.reward[-2:].min() == pytest.approx(reward, abs=0.5)
    assert found.largest_fall > 1


def test_the_benchmark_says_both():
    values = bench_games().values["games"]
    penalty = values[4]
    assert penalty["in_turns"]["value"] - penalty["at_once"]["value"] > 4
    assert penalty["in_turns"]["largest_fall"] < 1e-4 < penalty["at_once"]["last_change"]
