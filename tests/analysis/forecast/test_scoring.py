"""Scores agree with figures by hand, and only honest samples cover as often as they say."""

import numpy as np
import pytest

from testudo_analysis.forecast.forecast import QuantityForecast
from testudo_analysis.forecast.score_forecast import scored, summary
from testudo_analysis.forecast.scoring import crps, interval


def test_crps_is_the_figure_by_hand():
    # mean distance to 2: (2 + 1 + 1) / 3; mean distance of two samples: 2 (1 + 3 + 2) / 9
    assert crps(np.array([3.0, 0.0, 1.0]), 2.0) == pytest.approx(4 / 3 - 12 / 9 / 2)
    assert crps(np.array([5.0]), 2.0) == 3.0  # one sample: the absolute error
    assert crps(np.array([0.0, 0.0, 0.0, 1.0]), 1.0) == pytest.approx(0.75**2)  # yes or no: the Brier score


@pytest.mark.parametrize(("width", "low", "high"), [(1.0, 0.75, 0.85), (0.4, 0.0, 0.5), (3.0, 0.97, 1.0)])
def test_samples_as_wide_as_the_truth_cover_as_often_as_they_say(width, low, high):
    rng = np.random.default_rng(0)
    found = []
    for k in range(400):
        centre = rng.uniform(5, 15)
        samples = tuple(centre + width * rng.standard_normal(300))
        quantity = QuantityForecast(f"time_to_goal.r{k}", "s", samples, (centre + 2.0,), None)
        found.append(scored(quantity, centre + rng.standard_normal()))
    got = summary(found)
    assert low <= got["coverage_80"] <= high
    assert got["covered_of"] == 400
    assert got["crps_over_nominal"] < 0.7  # the nominal file is off by two deviations


def test_the_interval_of_few_samples_holds_the_next_value_as_often_as_it_says():
    drawn = np.random.default_rng(2).standard_normal((4000, 21))
    held = [low <= row[-1] <= high for row in drawn for low, high in [interval(row[:-1], 0.8)]]
    assert np.mean(held) == pytest.approx(0.8, abs=0.02)
    low, high = np.quantile(drawn[:, :-1], (0.1, 0.9), axis=1)  # control: quantiles of the samples themselves
    assert np.mean((low <= drawn[:, -1]) & (drawn[:, -1] <= high)) == pytest.approx(19 * 0.8 / 21, abs=0.02)
