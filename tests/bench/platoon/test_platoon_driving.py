"""Safety of ten driven cars, what makes it fail, learners against the optimum, and the benchmark's tables."""

from dataclasses import replace

import numpy as np
import pytest

from testudo_bench.platoon import bench_platoon as bench
from testudo_bench.platoon import study
from testudo_bench.platoon.cars import CarSpec
from testudo_bench.platoon.driving import Task, drive, greedy_driver, random_driver
from testudo_bench.platoon.learners import Learning, learn
from testudo_bench.platoon.optimum import follower_optimum, team_optimum
from testudo_bench.platoon.planning import plan_cascade
from testudo_bench.platoon.policy_gradient import learn_together
from testudo_bench.platoon.shields import BrakingShield, Open, tabulated
from testudo_hardware.errors import TestudoError

SPEC = CarSpec()
TEN, THREE = Task(SPEC), Task(SPEC, cars=3)
BRAKING = tabulated(BrakingShield(SPEC))


@pytest.mark.parametrize("lag_s", [0.0, 0.08, 0.5])
@pytest.mark.parametrize("driver", [random_driver, greedy_driver])
def test_every_gap_stays_safe_under_the_rule_with_and_without_a_lag(driver, lag_s):
    outcome = drive(replace(TEN, lag_s=lag_s), BRAKING, driver, 200, seed=0)
    assert not outcome.unsafe.any()
    assert outcome.blocked == 0


def test_cars_without_a_shield_or_with_measured_places_in_place_of_stopping_points_do_not_stay_safe():
    """Negative controls: the same episodes show unsafe gaps."""
    assert drive(TEN, Open(SPEC), greedy_driver, 50, seed=0).unsafe.all()
    measured = replace(TEN, lag_s=0.5, sees_stopping_points=False)
    assert drive(measured, BrakingShield(SPEC), greedy_driver, 50, seed=0).unsafe.mean() > 0.2


@pytest.mark.parametrize("gap_m", [10.0, 50.0])
def test_greedy_driving_of_the_first_follower_costs_what_the_best_costs(gap_m):
    best = follower_optimum(BRAKING, gap_m)
    assert best.best_m == pytest.approx(best.greedy_m, rel=1e-12)
    assert 0.95 < best.greedy_is_best < 1
    driven = drive(replace(TEN, cars=2, start_gap_m=gap_m), BRAKING, greedy_driver, 1_000, seed=1).cost_m
    assert driven.mean() == pytest.approx(best.greedy_m, abs=4 * driven.std() / 1_000**0.5)


def test_a_team_that_knows_everything_drives_better_than_greedily():
    found = team_optimum()
    assert found.best_m < 0.99 * found.greedy_m
    assert 0 < found.greedy_is_best < 0.5


def test_a_planned_cascade_drives_as_greedily_as_the_best():
    planned = plan_cascade(THREE, BRAKING, 50, seed=0)
    found, greedy = (drive(THREE, BRAKING, driver, 200, seed=3).cost_m for driver in (planned, greedy_driver))
    np.testing.assert_array_equal(found, greedy)


def test_learning_under_the_shield_is_safe_and_ends_near_greedy_driving():
    learned = learn(THREE, BRAKING, Learning(episodes=400), seed=0)
    assert learned.unsafe_episodes == 0
    costs = [
        drive(THREE, BRAKING, driver, 300, seed=3).mean_cost_m
        for driver in (learned.driver, greedy_driver, random_driver)
    ]
    assert costs[1] <= costs[0] < 1.25 * costs[1] < 0.5 * costs[2]


def test_ppo_under_the_shield_is_safe_and_drives_as_greedily_as_greedy_driving():
    learned = learn_together(THREE, BRAKING, Learning(episodes=400), seed=0)
    assert learned.unsafe_episodes == 0
    found, greedy = (drive(THREE, BRAKING, driver, 300, seed=3) for driver in (learned.driver, greedy_driver))
    assert not found.unsafe.any()
    assert found.mean_cost_m <= 1.02 * greedy.mean_cost_m


def test_learning_without_the_shield_meets_unsafe_gaps():
    assert learn(THREE, Open(SPEC), Learning(episodes=50, cascade=False), seed=0).unsafe_episodes > 25
    assert learn_together(THREE, Open(SPEC), Learning(episodes=50), seed=0).unsafe_episodes > 25


def test_the_benchmark_keeps_what_is_done_when_it_is_stopped(monkeypatch):
    monkeypatch.setattr(bench, "QUICK", study.Budget(episodes=20, controls=20, learned=(2, 4), seeds=1, cars=3))

    def stop(text):
        if "seed 0" in text and " 4 episodes" in text:
            raise KeyboardInterrupt

    result = bench.bench_platoon(quick=True, say=stop)
    assert result.values["interrupted"]
    assert [row[2] for row in result.rows] == ["76,442", "76,442"]
    best, driving, learning = (more.rows for more in result.more)
    assert [row[0] for row in best] == ["1", "2"]
    assert {row[4] for row in driving if row[1] == "braking rule" and row[3] != "measured places"} == {"0 of 20"}
    assert [row[:2] for row in learning] == [
        (arm, "2")
        for arm in (
            "cascade",
            "all at once",
            "cascade without the shield",
            "PPO, all at once",
            "PPO without the shield",
            "planned cascade",
        )
    ]


def test_no_seed_is_refused():
    with pytest.raises(TestudoError, match="--repeats: found 0, expected at least 1"):
        bench.bench_platoon(repeats=0)
