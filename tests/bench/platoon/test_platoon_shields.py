"""The exact shield against a game search, the braking rule against the exact shield, and cars against integration."""

from functools import cache

import numpy as np
import pytest

from testudo_bench.platoon.cars import CarSpec, advance, at_rest, gap_course
from testudo_bench.platoon.shields import BrakingShield, Grid, exact_shield, tabulated

SMALL = CarSpec(slowest_m_s=-2.0, fastest_m_s=4.0, gap_limit_m=14.0)
FULL = CarSpec()


def safe_second(spec, gap, rate, change):
    """Return whether a gap is safe in a second, looked at every 1/8 s, which holds every turning point of the grid."""
    times = np.linspace(0.0, 1.0, 9)
    course = gap + rate * times + 0.5 * change * times**2
    return bool(np.all((course > 0) & (course < spec.gap_limit_m)))


def test_the_exact_shield_admits_what_survives_a_game_of_a_minute():
    """Brute force: some own acceleration survives every acceleration of the front car, second by second."""
    speeds, choices = (-2, 0, 2, 4), (-2, 0, 2)

    @cache
    def survives(own, front, gap, seconds):
        return seconds == 0 or any(lasts(own, front, gap, a, seconds) for a in choices)

    @cache
    def lasts(own, front, gap, a, seconds):
        return own + a in speeds and all(
            safe_second(SMALL, gap, front - own, b - a)
            and survives(own + a, front + b, gap + front - own + (b - a) // 2, seconds - 1)
            for b in choices
            if front + b in speeds
        )

    admitted = exact_shield(SMALL).table
    own, front, gap = (x.reshape(-1).astype(int) for x in Grid(SMALL).states)
    expected = [[lasts(*state, a, 60) for state in zip(own, front, gap, strict=True)] for a in choices]
    np.testing.assert_array_equal(admitted, expected)
    assert 0 < admitted.sum() < admitted.size


def test_the_exact_shield_of_the_paper_has_the_known_size():
    shield = exact_shield(FULL)
    assert np.any(shield.table, axis=0).sum() == 30_746
    assert shield.rounds == 16


@pytest.mark.parametrize(
    "spec",
    [FULL, SMALL, CarSpec(gap_limit_m=80.0), CarSpec(slowest_m_s=0.0), CarSpec(slowest_m_s=0.0, fastest_m_s=8.0)],
    ids=str,
)
def test_the_braking_rule_admits_exactly_what_the_exact_shield_admits(spec):
    np.testing.assert_array_equal(tabulated(BrakingShield(spec)).table, exact_shield(spec).table)


def test_a_gap_limit_too_small_for_both_sides_is_seen_by_the_exact_shield_only():
    """Negative control of the comparison, and the limit of the rule: its two sides can leave nothing at 60 m."""
    spec = CarSpec(gap_limit_m=60.0)
    rule, exact = tabulated(BrakingShield(spec)).table, exact_shield(spec).table
    assert np.sum(rule & ~exact) > 0
    assert not np.any(exact & ~rule)


def test_states_under_the_rule_stay_safe_off_the_grid_and_never_run_out_of_choices():
    """Any speeds and gaps, and a front car that accelerates by any amount: 100,000 pairs."""
    random, shield = np.random.default_rng(0), BrakingShield(FULL)
    own, front = random.uniform(FULL.slowest_m_s, FULL.fastest_m_s, (2, 100_000))
    gap = random.uniform(0.0, FULL.gap_limit_m, 100_000)
    theirs = np.clip(random.choice([-2.0, 2.0, random.uniform(-2, 2)], 100_000), -10 - front, 20 - front)
    admitted = shield.admits(own, front, gap)
    for index, acceleration in enumerate(FULL.accelerations_m_s2):
        chosen = admitted[index]
        end, low, high = gap_course(gap, front - own, theirs - acceleration, np.asarray(1.0))
        assert np.all((low[chosen] > 0) & (high[chosen] < FULL.gap_limit_m))
        after = shield.admits(own + acceleration, front + theirs, end)
        # an own speed within 2 m/s of its limit has no whole step left towards it, off the grid
        room = (own + acceleration >= FULL.slowest_m_s + 2) & (own + acceleration <= FULL.fastest_m_s - 2)
        assert np.all(np.any(after, axis=0)[chosen & room])
    assert admitted.any(axis=0).mean() > 0.4


def test_a_gap_has_its_extremes_between_the_ends():
    random = np.random.default_rng(1)
    gap, rate, change = random.uniform(0, 50, 500), random.uniform(-30, 30, 500), random.uniform(-4, 4, 500)
    change[:50] = 0.0
    times = np.linspace(0.0, 3.0, 3001)[:, None]
    course = gap + rate * times + 0.5 * change * times**2
    end, low, high = gap_course(gap, rate, change, np.asarray(3.0))
    np.testing.assert_allclose(end, course[-1], atol=1e-9)
    np.testing.assert_allclose(low, course.min(axis=0), atol=1e-5)
    np.testing.assert_allclose(high, course.max(axis=0), atol=1e-5)


def test_cars_with_a_lag_move_as_their_equations_integrate():
    lag, state = 0.5, at_rest(2, 1, 20.0)
    place, speed, commanded = np.array([0.0, -20.0, -40.0]), np.zeros(3), np.zeros(3)
    steps = 20_000
    for accelerations in ([2.0, 0.0, 2.0], [-2.0, 2.0, 2.0], [0.0, -2.0, 2.0]):
        chosen = np.array(accelerations)
        state = advance(FULL, state, chosen[:, None], lag)
        for _ in range(steps):
            middle = commanded + chosen * 0.5 / steps
            place, speed = place + speed / steps, speed + (middle - speed) / lag / steps
            commanded = commanded + chosen / steps
        np.testing.assert_allclose(state.actual_speed_m_s[:, 0], speed, atol=1e-3)
        np.testing.assert_allclose(state.actual_gap_m(lag)[:, 0], place[:-1] - place[1:], atol=1e-3)
