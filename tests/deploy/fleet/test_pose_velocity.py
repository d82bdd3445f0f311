"""Velocities from poses alone: exact for constant acceleration after a known delay, and hard to confuse."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.effort import examples

from testudo_deploy.fleet.pose_velocity import (
    DELAY_SHARE,
    NOISE_SHARE,
    WINDOW_S,
    VelocityFilter,
    filter_delay_s,
    filter_window_s,
    noise_gain,
)
from testudo_hardware.frames import wrapped
from testudo_hardware.links.wire import PoseReading
from testudo_hardware.spec import load_robot

DRONE, GROUND, BASE = load_robot("crazyflie_2x"), load_robot("turtlebot4"), load_robot("robomaster_s1")
RATES_HZ = [20.0, 60.0, 100.0, 240.0]


def run(taker, stamps, position, yaw):
    """Return what a filter gives for a motion, of the samples that give something."""
    results = [taker.take(PoseReading(t, position(t), yaw(t))) for t in stamps]
    return [result for result in results if result is not None]


@pytest.mark.parametrize("rate_hz", RATES_HZ)
def test_a_ramp_and_a_parabola_come_out_exact_of_the_moment_of_the_stamp(rate_hz):
    start, speed, pull = np.array([1.0, -2.0, 0.5]), np.array([0.4, -0.2, 0.1]), np.array([-0.5, 0.3, 0.2])
    stamps = 100.0 + np.arange(40) / rate_hz

    def position(t):
        return tuple(start + speed * (t - 100.0) + 0.5 * pull * (t - 100.0) ** 2)

    found = run(VelocityFilter(DRONE, rate_hz), stamps[: int(0.8 * rate_hz) + 4], position, lambda t: 0.3)
    assert found
    for located in found:
        moment_s = located.reading.stamp_s
        assert located.reading.position_world == pytest.approx(position(moment_s), abs=1e-9)
        assert located.reading.velocity == pytest.approx(tuple(speed + pull * (moment_s - 100.0)), abs=1e-8)
        assert located.reading.yaw == pytest.approx(0.3)
        assert located.age_s == pytest.approx(filter_delay_s(rate_hz, WINDOW_S), abs=1e-6)


@pytest.mark.parametrize("rate_hz", RATES_HZ)
def test_the_age_is_that_of_the_moment_behind_the_newest_sample(rate_hz):
    taker, last = VelocityFilter(DRONE, rate_hz), None
    for t in 50.0 + np.arange(20) / rate_hz:
        located = taker.take(PoseReading(float(t), (0.0, 0.0, 1.0), 0.0))
        if located is not None:
            last = located
            assert located.reading.stamp_s + located.age_s == pytest.approx(t, abs=1e-9)
    assert last is not None


@pytest.mark.parametrize("rate_hz", RATES_HZ)
def test_noise_is_amplified_by_what_is_stated(rate_hz):
    rng, sigma = np.random.default_rng(0), 0.001
    taker, velocities = VelocityFilter(DRONE, rate_hz), []
    for k in range(4000):
        located = taker.take(PoseReading(k / rate_hz, tuple(sigma * rng.standard_normal(3)), 0.0))
        if located is not None:
            velocities.append(located.reading.velocity)
    assert np.std(velocities) == pytest.approx(sigma * noise_gain(rate_hz, WINDOW_S), rel=0.1)
    assert taker.restarts == 0


def test_the_figures_in_the_documentation_hold():
    assert filter_delay_s(100.0, WINDOW_S) == pytest.approx(0.03)
    assert 0.002 * noise_gain(100.0, WINDOW_S) == pytest.approx(0.04, abs=0.003)


@pytest.mark.parametrize(
    ("spec", "rate_hz", "sigma_m", "window_s"),
    [
        (DRONE, 100.0, 0.0005, 0.06),
        (DRONE, 1000.0, 0.0005, 0.06),
        (DRONE, 20.0, 0.0005, 0.1),
        (GROUND, 100.0, 0.01, 0.1),
    ],
)
def test_the_span_is_as_short_as_noise_allows(spec, rate_hz, sigma_m, window_s):
    assert filter_window_s(spec, rate_hz, sigma_m, spec.pose_max_age_s) == pytest.approx(window_s)


@given(st.sampled_from([DRONE, GROUND, BASE]), st.floats(20, 400), st.floats(0, 0.02), st.floats(0.06, 0.15))
def test_a_longer_span_is_quiet_enough_or_as_long_as_the_age_limit_allows(spec, rate_hz, sigma_m, max_age_s):
    window_s = filter_window_s(spec, rate_hz, sigma_m, max_age_s)
    shortest = max(WINDOW_S, 2 / rate_hz) + 1 / rate_hz
    assert window_s <= max(shortest, 2 * DELAY_SHARE * max_age_s + 1e-9)
    if window_s <= 2 * DELAY_SHARE * max_age_s - 1 / rate_hz - 1e-9:
        assert sigma_m * noise_gain(rate_hz, window_s) <= NOISE_SHARE * spec.speed_limit_m_s * (1 + 1e-9)


def test_wheels_are_told_forward_speed_and_turn_rate_across_the_seam_of_the_angle():
    speed, rate = 0.2, 1.5

    def yaw(t):
        return wrapped(math.pi - 0.2 + rate * t)

    def position(t):
        angle = math.pi - 0.2 + rate * t
        return (speed / rate * math.sin(angle), -speed / rate * math.cos(angle))

    taker = VelocityFilter(GROUND, 100.0)
    found = run(taker, np.arange(60) / 100.0, position, yaw)
    assert (taker.restarts, len(found)) == (0, 54)
    assert {located.reading.yaw > 0 for located in found} == {True, False}
    for located in found:
        assert located.reading.velocity[0] == pytest.approx(speed, rel=(rate * 0.03) ** 2 / 10 + 1e-4)
        assert located.reading.velocity[1] == pytest.approx(rate, abs=1e-9)
        assert wrapped(located.reading.yaw - yaw(located.reading.stamp_s)) == pytest.approx(0.0, abs=1e-9)


def test_a_robot_that_backs_up_facing_y_has_a_negative_forward_speed():
    found = run(VelocityFilter(GROUND, 100.0), np.arange(20) / 100.0, lambda t: (3.0, -0.2 * t), lambda t: math.pi / 2)
    assert found[-1].reading.velocity == pytest.approx((-0.2, 0.0), abs=1e-9)


def test_a_base_is_told_its_velocity_in_the_world():
    found = run(VelocityFilter(BASE, 100.0), np.arange(20) / 100.0, lambda t: (3.0, 0.4 * t), lambda t: math.pi / 2)
    assert found[-1].reading.velocity == pytest.approx((0.0, 0.4), abs=1e-9)


def steady(taker, count, *, begin=0, speed=0.3):
    """Feed a steady flight at 100 Hz and return the last result."""
    located = None
    for k in range(begin, begin + count):
        located = taker.take(PoseReading(k / 100, (speed * k / 100, 0.0, 1.0), 0.0))
    return located


def test_duplicates_and_late_samples_change_nothing():
    taker, plain = VelocityFilter(DRONE, 100.0), VelocityFilter(DRONE, 100.0)
    steady(taker, 20)
    steady(plain, 20)
    for stamp_s, x in ((0.19, 0.057), (0.19, 9.0), (0.15, 9.0)):
        assert taker.take(PoseReading(stamp_s, (x, 0.0, 1.0), 0.0)) is None
    assert taker.refused == 3
    assert steady(taker, 1, begin=20) == steady(plain, 1, begin=20)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, 1e300])
@pytest.mark.parametrize("field", ["stamp_s", "position", "yaw"])
def test_a_sample_that_is_not_finite_changes_nothing(wrong, field):
    taker, plain = VelocityFilter(DRONE, 100.0), VelocityFilter(DRONE, 100.0)
    steady(taker, 20)
    steady(plain, 20)
    sample = PoseReading(
        wrong if field == "stamp_s" else 0.2,
        (wrong if field == "position" else 0.06, 0.0, 1.0),
        wrong if field == "yaw" else 0.0,
    )
    assert taker.take(sample) is None
    assert taker.refused == 1
    assert steady(taker, 1, begin=21) == steady(plain, 1, begin=21)


def test_a_stamp_from_the_future_is_refused():
    taker = VelocityFilter(DRONE, 100.0)
    steady(taker, 20)
    assert taker.take(PoseReading(0.205, (0.06, 0.0, 1.0), 0.0), received_s=0.2) is None
    assert taker.refused == 1
    assert taker.take(PoseReading(0.2, (0.06, 0.0, 1.0), 0.0), received_s=0.2) is not None


@pytest.mark.parametrize("later_s", [0.5, 3600.0, -0.5, -3600.0])
def test_after_a_gap_or_a_clock_that_was_set_the_fit_begins_anew(later_s):
    taker = VelocityFilter(DRONE, 100.0)
    steady(taker, 30)
    times = [k / 100 for k in range(10)]
    results = [taker.take(PoseReading(0.3 + later_s + t, (0.5 + 0.2 * t, 0.0, 1.0), 0.0)) for t in times]
    assert results[:6] == [None] * 6
    assert taker.restarts == 1
    assert results[-1].reading.velocity == pytest.approx((0.2, 0.0, 0.0), abs=1e-7)


def test_a_jump_is_never_taken_for_a_fast_motion():
    taker = VelocityFilter(DRONE, 100.0)
    steady(taker, 30, speed=0.0)
    results = [taker.take(PoseReading(0.3 + k / 100, (0.2, 0.0, 1.0), 0.0)) for k in range(10)]
    assert results[:6] == [None] * 6
    assert all(max(map(abs, located.reading.velocity)) < 1e-9 for located in results[6:])
    assert results[-1].reading.position_world == pytest.approx((0.2, 0.0, 1.0))


def test_one_wild_sample_leaves_no_trace_in_what_comes_after():
    taker = VelocityFilter(DRONE, 100.0)
    steady(taker, 30, speed=0.0)
    taker.take(PoseReading(0.3, (5.0, 0.0, 1.0), 0.0))
    results = [taker.take(PoseReading(0.31 + k / 100, (0.0, 0.0, 1.0), 0.0)) for k in range(10)]
    assert results[-1].reading.position_world == pytest.approx((0.0, 0.0, 1.0), abs=1e-12)
    assert all(max(map(abs, found.reading.velocity)) < 1e-9 for found in results if found is not None)


def test_a_yaw_that_flips_begins_anew():
    taker = VelocityFilter(DRONE, 100.0)
    steady(taker, 30, speed=0.0)
    assert taker.take(PoseReading(0.3, (0.0, 0.0, 1.0), math.pi)) is None
    assert taker.restarts == 1


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.floats(0.004, 0.016), min_size=30, max_size=60),
    st.tuples(*[st.floats(-0.7, 0.7)] * 3),
    st.tuples(*[st.floats(-1, 1)] * 3),
    st.floats(-3.1, 3.1),
    st.floats(-1000, 1000),
    st.floats(0, 1e6),
)
def test_uneven_stamps_leave_constant_acceleration_exact(steps, speed, pull, yaw, east, start_s):
    times = np.cumsum(steps)
    assume(np.linalg.norm(np.abs(speed) + times[-1] * np.abs(pull)) < 1.0)

    def position(t):
        return tuple(np.array([east, 0.0, 1.0]) + np.array(speed) * t + 0.5 * np.array(pull) * t * t)

    taker = VelocityFilter(DRONE, 100.0)
    for t in times:
        located = taker.take(PoseReading(start_s + t, position(t), yaw))
        if located is None:
            continue
        moment_s = located.reading.stamp_s - start_s
        assert located.reading.velocity == pytest.approx(tuple(np.array(speed) + np.array(pull) * moment_s), abs=2e-6)
        assert located.reading.position_world == pytest.approx(position(moment_s), abs=2e-7)
        assert WINDOW_S / 2 - 1e-5 <= located.age_s <= (WINDOW_S + 0.016) / 2 + 1e-5
    assert taker.restarts == 0


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(-0.3, 0.3), st.floats(-50, 50), st.floats(-50, 50), st.floats(-10, 10)),
        min_size=5,
        max_size=60,
    )
)
def test_whatever_comes_a_result_is_finite_and_older_than_the_newest_sample(samples):
    taker, stamp_s, newest_s = VelocityFilter(GROUND, 60.0), 10.0, -math.inf
    for step_s, x, y, yaw in samples:
        stamp_s += step_s
        newest_s = stamp_s
        located = taker.take(PoseReading(stamp_s, (x, y), yaw))
        if located is not None:
            reading = located.reading
            assert all(map(math.isfinite, (*reading.position_world, reading.yaw, *reading.velocity)))
            assert reading.stamp_s < newest_s
            assert located.age_s > 0
