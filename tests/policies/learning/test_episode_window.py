"""Return and success of the newest episodes of a training run."""

import numpy as np
import pytest

from testudo_hardware.errors import TestudoError
from testudo_policies.learning.episode_window import Aim, EpisodeWindow

HORIZON, ROLLOUT, WORLDS = 20, 8, 400


def course(random, share, updates):
    """Yield the metrics of worlds of which a share succeeds, after 1 to 5 decisions, and the others fail at the end."""
    left = np.zeros(WORLDS, int)
    good = np.zeros(WORLDS, bool)

    def begin(which):
        good[which] = random.random(which.sum()) < share
        left[which] = np.where(good[which], random.integers(1, 6, which.sum()), HORIZON)

    begin(np.ones(WORLDS, bool))
    for _ in range(updates):
        successes = episodes = 0
        for _ in range(ROLLOUT):
            left[:] -= 1
            done = left == 0
            successes, episodes = successes + (done & good).sum(), episodes + done.sum()
            begin(done)
        yield {"train/successes": successes, "train/episodes": episodes, "train/reward": 0.5}


def test_success_is_that_of_all_episodes_from_the_first_figure_on():
    """The control: at the first update alone every episode that ends is a success."""
    window = EpisodeWindow(HORIZON, ROLLOUT, WORLDS * ROLLOUT)
    rows = list(course(np.random.default_rng(0), 0.3, 12))
    assert rows[0]["train/successes"] == rows[0]["train/episodes"] > 0
    shown = [window.add(row) for row in rows]
    assert shown[:2] == [{}, {}]  # 16 decisions are less than an episode
    assert all(0.2 < figures["train/success"] < 0.45 for figures in shown[2:])
    episodes = sum(row["train/episodes"] for row in rows[-3:])
    assert shown[-1]["train/return"] == pytest.approx(0.5 * 3 * ROLLOUT * WORLDS / episodes)


def test_what_a_scenario_counts_is_told_for_an_episode():
    window = EpisodeWindow(HORIZON, ROLLOUT, WORLDS * ROLLOUT)
    row = {"train/successes": 0, "train/episodes": WORLDS / 2.5, "train/reward": 0.0, "metric/deliveries": 0.1}
    shown = [window.add(row) for _ in range(3)]
    assert "episode/deliveries" not in shown[1]
    assert shown[2]["episode/deliveries"] == pytest.approx(0.1 * HORIZON)
    # a log that an earlier version began has no such figure: it is known once the window is full of it
    window = EpisodeWindow(HORIZON, ROLLOUT, WORLDS * ROLLOUT)
    earlier = {name: value for name, value in row.items() if not name.startswith("metric/")}
    shown = [window.add(one) for one in (earlier, row, row, row)]
    assert ["episode/deliveries" in one for one in shown] == [False, False, False, True]


def test_an_aim_is_reached_by_known_figures_only():
    aim = Aim.parsed("success=0.98")
    assert aim == Aim("success", 0.98)
    assert not aim.is_reached({})
    assert not aim.is_reached({"train/success": 0.97, "train/return": 2.0})
    assert aim.is_reached({"train/success": 0.98})
    assert not aim.is_reached({"train/success": 1.0, "train/difficulty": 0.4})
    assert Aim.parsed("return=-1.5").is_reached({"train/return": -1.4})
    assert Aim.parsed("") is None


def test_a_curve_is_flat_when_it_has_risen_and_rises_no_more():
    def end(curve):
        aim, random = Aim.parsed("flat"), np.random.default_rng(1)
        found = (n for n, value in enumerate(curve) if aim.is_reached({"train/return": value + random.normal(0, 0.1)}))
        return next(found, None)

    rising = [5 * (1 - np.exp(-n / 20)) for n in range(400)]
    assert 60 < end(rising) < 200  # 95 to 99.99 % of the rise
    assert end([0.0] * 400) is None  # nothing has been learned yet
    assert end([n / 100 for n in range(400)]) is None
    assert end([0.0] * 100 + rising) > 160  # a late rise is waited for
    assert not Aim.parsed("flat").is_reached({})


@pytest.mark.parametrize("text", ["success", "success=high", "reward=1", "success=nan"])
def test_another_aim_is_refused(text):
    with pytest.raises(TestudoError, match="expected success=NUMBER, return=NUMBER or flat"):
        Aim.parsed(text)
