"""Forecasts that learn from past runs cover runs of known variation as often as they say; fleets alone do not."""

import numpy as np
import pytest

from testudo_analysis.forecast.past_runs import PastRun, left_out_coverage, past_errors, with_past_errors
from testudo_analysis.forecast.scoring import interval

ROBOTS, FLEETS, HORIZON_S, TRIALS = 4, 100, 60.0, 200
FLEET_S = 0.004
"""Deviation of a latency in the sampled fleets [s]."""


def a_run(rng, bias_s, of_run_s, of_robot_s):
    """Return a run whose latencies are those of its fleets plus effects, and the fleets."""
    middle = rng.uniform(0.09, 0.12, ROBOTS)
    fleets = middle[:, None] + FLEET_S * rng.standard_normal((ROBOTS, FLEETS))
    seen = middle + FLEET_S * rng.standard_normal(ROBOTS) + bias_s
    seen += of_run_s * rng.standard_normal() + of_robot_s * rng.standard_normal(ROBOTS)
    names = [f"latency.r{k}" for k in range(ROBOTS)]
    return PastRun(dict(zip(names, seen, strict=True)), dict(zip(names, fleets, strict=True)))


def coverages(runs, bias_s, of_run_s, of_robot_s):
    """Return how often the 80 % interval holds the next run, with what past runs say and without."""
    rng, held = np.random.default_rng(1), []
    for trial in range(TRIALS):
        *past, following = (a_run(rng, bias_s, of_run_s, of_robot_s) for _ in range(runs + 1))
        with_past = with_past_errors(following.sampled, past_errors(past, HORIZON_S), HORIZON_S, trial)
        for name, seen in following.observed.items():
            ends = (interval(of[name], 0.8) for of in (with_past, following.sampled))
            held.append([low <= seen <= high for low, high in ends])
    return np.mean(held, axis=0)


@pytest.mark.parametrize("runs", [3, 8])
@pytest.mark.parametrize("effects", [(0.0, 0.006, 0.004), (0.006, 0.0, 0.005)], ids=["between runs", "bias, robots"])
def test_intervals_cover_a_run_that_varies_by_more_than_its_fleets(runs, effects):
    with_past, without = coverages(runs, *effects)
    assert 0.74 <= with_past <= 0.85
    assert without < 0.6  # control: what the fleets alone say


def test_past_runs_tell_before_the_next_one_how_good_a_forecast_is():
    rng = np.random.default_rng(5)
    runs = [a_run(rng, 0.006, 0.004, 0.004) for _ in range(60)]
    found = left_out_coverage(runs, HORIZON_S)
    assert found.numbers == 60 * ROBOTS
    assert 0.74 <= found.in_80 / found.numbers <= 0.86
    assert 0.91 <= found.in_95 / found.numbers <= 0.98
    assert left_out_coverage(runs[:3], HORIZON_S).numbers == 0  # the other two say nothing


def test_runs_that_vary_as_their_fleets_do_hardly_widen_them():
    with_past, without = coverages(8, 0.0, 0.0, 0.0)
    assert without == pytest.approx(0.8, abs=0.03)
    assert 0.76 <= with_past <= 0.85


def test_bias_and_scatter_are_the_figures_by_hand():
    fleets = {"least_separation": np.array([0.3, 0.5] * 10)}  # variance 0.2 / 19
    runs = [PastRun({"least_separation": 0.4 + error}, fleets) for error in (0.1, 0.3, 0.8)]
    (found,) = past_errors(runs, HORIZON_S)
    assert (found.kind, found.runs) == ("least_separation", 3)
    assert (found.bias, found.degrees) == pytest.approx((0.4 / np.sqrt(0.2 / 19), 2))
    # variance of a new run 0.13, a third of it again for the mean of three, over that of the fleets
    assert found.deviation**2 == pytest.approx(0.13 * 4 / 3 / (0.2 / 19) - 1)


def test_values_of_several_robots_in_a_run_count_by_how_much_they_agree():
    # fleets of deviation 0.001 about 0.1
    fleets = {f"latency.r{k}": 0.1 + 0.001 * np.sqrt(0.95) * np.array([-1.0, 1.0] * 10) for k in range(2)}

    def errors(of):
        names = list(fleets)
        return past_errors([PastRun(dict(zip(names, 0.1 + np.array(row), strict=True)), fleets) for row in of], 60.0)[0]

    agree = errors([(0.01, 0.01), (0.02, 0.02), (0.03, 0.03)])
    assert agree.degrees == pytest.approx(2)  # as many as of three values
    assert agree.deviation**2 == pytest.approx(100 * 4 / 3 - 1)
    # means of the runs agree: mean square within is 200, and half of it counts beside that between
    apart = errors([(0.01, 0.03), (0.01, 0.03), (0.03, 0.01)])
    assert apart.degrees == pytest.approx(3)
    assert apart.deviation**2 == pytest.approx(100 - 1)


def test_two_runs_say_nothing_and_times_that_are_none_neither_count_nor_move():
    rng = np.random.default_rng(0)
    assert past_errors([a_run(rng, 0.0, 0.0, 0.0) for _ in range(2)], HORIZON_S) == ()
    drives = 10 + np.linspace(0, 1, 20)
    fleets = {"time_to_goal.r0": np.append(drives, HORIZON_S), "time_to_goal.r1": np.zeros(21)}
    late = {"time_to_goal.r0": 20.0, "time_to_goal.r1": 0.0}
    stuck = PastRun({"time_to_goal.r0": HORIZON_S}, fleets)
    (found,) = past_errors([PastRun(late, fleets)] * 3 + [stuck], HORIZON_S)
    assert found.runs == 3
    shift = np.log(20) - np.log(drives).mean()  # about twice as slow
    assert found.bias == pytest.approx(shift / np.log(drives).std(ddof=1))
    moved = with_past_errors(fleets, [found], HORIZON_S, 0)
    assert moved["time_to_goal.r0"][:-1] == pytest.approx(drives * np.exp(shift))
    assert moved["time_to_goal.r0"][-1] == HORIZON_S
    assert (moved["time_to_goal.r1"] == 0).all()
