"""The spread of ways and velocities that a robot file announces, against closed forms and sampled processes."""

import numpy as np
import pytest
from scipy.stats import chi2, norm
from tests.deploy.noisy_robot import noisy

from testudo_deploy.monitoring.residual_spread import (
    SURE,
    VelocityNoise,
    WaySpread,
    largest_mean_square,
    pieces_in_one,
)
from testudo_hardware.motion.motion_noise import integral_deviation_s
from testudo_hardware.spec import load_robot

PLAIN = load_robot("gritsbot_x")
STILL = np.zeros(2)


def test_a_file_without_the_table_spreads_nothing():
    spread = WaySpread(PLAIN)
    spread.follow(0.02, np.array([0.2, 1.0]), np.array([5.0, 5.0]))
    assert spread.way_m2 == spread.turn_rad2 == (0.0, 0.0)
    assert spread.step_m2 == 0
    assert pieces_in_one(PLAIN, 2.0) == 1
    noise = VelocityNoise(PLAIN, 0.2, 12.0)
    assert noise.near_s == 0
    assert noise.variance(STILL, STILL).tolist() == [0, 0]
    assert noise.inflation(np.ones(2), 0.02).tolist() == [1, 1]


def test_the_way_of_a_piece_by_the_closed_form():
    """Two seconds at rest: the integral of the process; the largest axis is along, and both axes add up."""
    spec = noisy(PLAIN, along_deviation=0.02, across_deviation=0.01, turn_deviation=0.1, correlation_s=0.7)
    spread = WaySpread(spec)
    for _ in range(1000):
        spread.follow(0.002, STILL, STILL)
    square = integral_deviation_s(2.0, 0.7) ** 2
    assert spread.way_m2 == pytest.approx((0.02**2 * square, (0.02**2 + 0.01**2) * square), rel=5e-3)
    assert spread.turn_rad2 == pytest.approx((0.1**2 * square,) * 2, rel=5e-3)
    assert spread.step_m2 == pytest.approx((0.02**2 + 0.01**2) * 0.002**2)
    spread.begin()
    assert spread.way_m2 == (0, 0)


def test_errors_that_grow_with_speed_and_its_change():
    spec = noisy(PLAIN, along_share=0.1, along_timing=0.02, turn_share=0.2, correlation_s=1e6)
    spread, moving, changing = WaySpread(spec), np.array([-0.2, 0.5]), np.array([1.0, 0.0])
    for _ in range(100):
        spread.follow(0.02, moving, changing)
    assert spread.way_m2[0] == pytest.approx((2.0 * (0.1 * 0.2 + 0.02 * 1.0)) ** 2, rel=1e-4)
    assert spread.turn_rad2[0] == pytest.approx((2.0 * 0.2 * 0.5) ** 2, rel=1e-4)
    assert VelocityNoise(spec, 0.2, 12.0).variance(moving, changing) == pytest.approx([0.04**2, 0.1**2])
    # an error of timing that stays shifts the delay by four of its standard deviations at most
    assert VelocityNoise(spec, 0.2, 12.0).near_s == pytest.approx(SURE * 0.02, rel=1e-4)


def test_correlated_pieces_say_less_of_their_mean():
    """The variance of a mean of 200 pieces, sampled from a first-order process of which neighbours share a half."""
    rng, rho, many = np.random.default_rng(0), 0.5, 4000
    values = rng.normal(size=many)
    sums = values.copy()
    for _ in range(199):
        values = rho * values + np.sqrt(1 - rho**2) * rng.normal(size=many)
        sums += values
    sampled = (sums / 200).var() * 200
    spec = noisy(PLAIN, along_deviation=0.01, correlation_s=2.0 / np.log(2))
    assert pieces_in_one(spec, 2.0) == pytest.approx((1 + rho) / (1 - rho)) == pytest.approx(sampled, rel=0.06)


@pytest.mark.parametrize(("count", "tolerance"), [(1, 0.1), (10, 0.02), (1000, 0.001)])
def test_the_largest_mean_square_is_a_quantile_of_chi_square(count, tolerance):
    exact = chi2.isf(norm.sf(SURE), count) / count
    assert exact <= largest_mean_square(count) <= exact * (1 + tolerance)
