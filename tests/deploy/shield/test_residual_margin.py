"""The residual motion of a robot file is in every margin, by numbers computed by hand, and holds what the process does.

A file without `[motion_noise]` has the margins that the shipped policies pin.
"""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.deploy.fine_motion import STEP_S, acting, drawn, limited, on_its_way, path_to_rest, random_command, roll
from tests.deploy.noisy_robot import noisy
from tests.deploy.shield.test_stop_tube import hull_distance, tube_of
from tests.effort import examples

from testudo_deploy.shield.margin_terms import stop_tube_terms
from testudo_deploy.shield.projection_margins import control_point_error_m, projection_parameters
from testudo_deploy.shield.residual_margin import (
    BOUND,
    RESIDUAL,
    RESIDUAL_HELD,
    fastest_m_s,
    longest_ahead_s,
    residual_drift_m,
    residual_way_m,
)
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_hardware.motion import motion_model
from testudo_hardware.motion.motion_noise import MotionNoise, channel_rates
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import load_robot, robot_files

ROBOTS = sorted(robot_files())
KINDS = ["gritsbot_x", "robomaster_s1", "crazyflie_2x"]
PLAIN = load_robot("gritsbot_x")
REST_M_S = 0.01  # slower than that a robot rests


def named(terms):
    return {term.name: term.value_m for term in terms}


@pytest.mark.parametrize("name", ROBOTS)
def test_a_file_without_the_table_has_no_term_and_nothing_grows(name):
    spec = load_robot(name)
    still = noisy(spec)  # a table of zeros is no motion either
    for each in (spec, still):
        assert not {RESIDUAL, RESIDUAL_HELD} & {
            *named(projection_parameters(each).terms),
            *named(stop_tube_terms(each)),
        }
        assert residual_way_m(each, 1.0, 0.1) == residual_drift_m(each, 1.0, 0.1) == 0
        assert fastest_m_s(each) == spec.control_point_speed_m_s
    assert projection_parameters(still) == projection_parameters(spec)
    assert stop_tube_parameters(still) == stop_tube_parameters(spec)
    assert "motion_noise" not in spec.to_dict()


def test_the_bound_by_hand_for_an_error_that_stays():
    """0.01 m/s along, from a pose of 0.11 s age: delay 0.06, hold 0.133, then 0.096 ln 24 and 0.24 / 5 until rest."""
    spec = noisy(PLAIN, along_deviation=0.01)
    ahead_s = 0.11 + 0.06 + 0.133
    assert longest_ahead_s(spec) == pytest.approx(ahead_s)
    rest_s = ahead_s + 0.096 * math.log(24) + 0.048
    assert residual_way_m(spec, ahead_s) == pytest.approx(4 * 0.01 * rest_s, rel=1e-3)
    assert named(stop_tube_terms(spec))[RESIDUAL] == pytest.approx(0.02625, abs=1e-5)
    # layer 1: a tick more, both robots, times kappa; and what it does in a hold over the share
    margins = projection_parameters(spec)
    assert named(margins.terms)[RESIDUAL] == pytest.approx(
        2 * margins.direction_factor * 0.04 * (rest_s + 0.033), rel=1e-3
    )
    assert named(margins.terms)[RESIDUAL_HELD] == pytest.approx(2 * 0.04 * 0.133 / 0.9, rel=1e-3)
    assert margins.peer_speed_m_s == pytest.approx(0.24, rel=1e-3)
    assert margins.separation_m == pytest.approx(sum(named(margins.terms).values()))


def test_the_bound_by_hand_for_the_other_parts():
    ahead_s, rest_s = 0.303, 0.303 + 0.096 * math.log(24) + 0.048
    # a short correlation: the integral grows with the root of the time
    short = noisy(PLAIN, along_deviation=0.01, correlation_s=0.02)
    ratio = rest_s / 0.02
    assert residual_way_m(short, ahead_s) == pytest.approx(0.04 * 0.02 * math.sqrt(2 * (ratio - 1 + math.exp(-ratio))))
    # a share of the speed: 0.24 m/s until it brakes, and 0.096 s of that until rest
    share = noisy(PLAIN, across_share=0.05)
    assert residual_way_m(share, ahead_s) == pytest.approx(0.2 * 0.24 * (ahead_s + 0.096), rel=1e-3)
    # 0.02 s of every change: 5 m/s² while older commands act, a reversal, and the brake
    timing = noisy(PLAIN, along_timing=0.02)
    assert residual_way_m(timing, ahead_s) == pytest.approx(0.08 * (5 * 0.17 + 3 * 0.24), rel=1e-3)
    # 0.05 rad/s turns what is ahead: the way and the look-ahead
    turn = noisy(PLAIN, turn_deviation=0.05)
    way = 0.24 * (ahead_s + 0.096)
    assert residual_way_m(turn, ahead_s, 0.035) == pytest.approx(0.2 * rest_s * (0.035 + way), rel=1e-3)
    assert residual_way_m(noisy(load_robot("crazyflie_2x"), turn_deviation=0.05), ahead_s) == 0
    # independent channels
    both = noisy(PLAIN, along_deviation=0.01, across_share=0.05)
    alone = residual_way_m(noisy(PLAIN, along_deviation=0.01), ahead_s), residual_way_m(share, ahead_s)
    assert residual_way_m(both, ahead_s) == pytest.approx(math.hypot(*alone))


@pytest.mark.parametrize("name", KINDS)
def test_every_number_of_the_table_makes_every_margin_wider(name):
    spec = load_robot(name)
    numbers = {
        f"{channel}_{part}": 0.02 for channel in ("along", "across") for part in ("deviation", "share", "timing")
    }
    for key in numbers:
        least, more = noisy(spec, **numbers), noisy(spec, **numbers | {key: 0.03})
        assert projection_parameters(more).separation_m > projection_parameters(least).separation_m
        assert projection_parameters(more).wall_m > projection_parameters(least).wall_m
        assert control_point_error_m(more) > control_point_error_m(least)
        for field in ("tube_error_m", "clearance_m", "wall_m", "untrusted_m", "untrusted_speed_m_s"):
            wider, tight = (getattr(stop_tube_parameters(each), field) for each in (more, least))
            assert wider > tight, (key, field)
    # the upper end of an interval counts, not the value
    table = dict(least.motion_noise)
    table["motion_noise.along_share"] = dataclasses.replace(table["motion_noise.along_share"], high=0.03)
    wide = dataclasses.replace(least, motion_noise=table)
    assert stop_tube_parameters(wide) == stop_tube_parameters(noisy(spec, **numbers | {"along_share": 0.03}))


def deviations(noise, velocity):
    """Return the deviations (C, S) of the errors of velocities (S, D) that change once in `STEP_S`."""
    change = np.gradient(velocity, STEP_S, axis=0)
    rates, changes = channel_rates(noise, velocity.T), channel_rates(noise, change.T)
    rows = zip(noise.channels, rates, changes, strict=True)
    return np.stack([each.deviation + each.share * rate + each.timing_s * more for each, rate, more in rows])


def deviation_of_sum(weights, correlation_s):
    """Return the standard deviation of the sum of a process of unit variance with weights (S, ...)."""
    kept, row, total = math.exp(-STEP_S / correlation_s), 0 * weights[0], 0.0
    for weight in weights:  # row: of what came before, by its correlation with now
        total += np.sum(weight * (2 * kept * row + weight))
        row = kept * row + weight
    return STEP_S * math.sqrt(total)


def at_rest(spec, velocity):
    """Return the first index from which on a robot with velocities (S, D) rests."""
    speed = np.linalg.norm(velocity, axis=1)
    if spec.kind == DIFFERENTIAL_DRIVE:
        speed = np.abs(velocity[:, 0]) + spec.wheel_base_m / 2 * np.abs(velocity[:, 1])
    return int(np.flatnonzero(speed > REST_M_S).max(initial=0)) + 2


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=examples(10), deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    part=st.sampled_from(["deviation", "share", "timing"]),
    correlation_s=st.sampled_from([0.02, 0.2, 2.0]),
    hectic=st.booleans(),
)
def test_the_bound_is_no_less_than_its_deviations_of_what_the_process_does(name, seed, part, correlation_s, hectic):
    """Any drive, of robots at the ends of their intervals, also commanded to and fro at every tick.

    The deviation of each displacement is computed from the process of the file along the drive, without the formulas
    of the bound.
    """
    plain, rng = load_robot(name), np.random.default_rng(seed)
    truth, ahead_m = drawn(plain, rng, ends=True), plain.look_ahead_m if plain.kind == DIFFERENTIAL_DRIVE else 0.0
    run, command = on_its_way(motion_model(plain), truth, rng), random_command(plain, rng)
    sent = run.sent
    if hectic:
        fast = limited(plain, 9 * np.array([1.0, rng.choice([0, 9]), 0])[: plain.dimension])
        sent, command = tuple((time_s, (-1) ** k * fast) for k, (time_s, _) in enumerate(sent)), -fast
    sent = ((run.age_s + plain.hold_s, 0 * command), (run.age_s, command), *sent)
    time_s = longest_ahead_s(plain) + 8 * truth.lag_s + 2 * plain.speed_limit_m_s / plain.acceleration_limit_m_s2
    places, yaws, velocity = roll(plain, truth, run.start, lambda t: acting(sent, truth, t), time_s)
    end = at_rest(plain, velocity)
    places, yaws, velocity = places[:end], yaws[:end], velocity[:end]
    for channel in ("along", "turn"):
        spec = noisy(plain, correlation_s=correlation_s, **{f"{channel}_{part}": 0.05})
        noise = MotionNoise.from_spec(spec)
        k = noise.names.index(channel)
        weights = deviations(noise, velocity)[k]
        if channel == "turn":
            if plain.kind != DIFFERENTIAL_DRIVE:
                continue
            tip = places[-1] + ahead_m * np.array([math.cos(yaws[-1]), math.sin(yaws[-1])])
            weights = weights[:, None] * (tip - places)
        found = deviation_of_sum(weights, correlation_s)
        assert found <= residual_way_m(spec, longest_ahead_s(spec), ahead_m) / BOUND


@pytest.mark.parametrize("name", KINDS)
def test_pushed_as_far_as_the_bound_a_body_leaves_the_old_tube_and_not_the_new_one(name):
    """The residual motion pushes one way from the pose until rest, in the worst of 16 directions."""
    plain = load_robot(name)
    deviation = 0.12 * plain.speed_limit_m_s
    spec = noisy(plain, along_deviation=deviation, across_deviation=deviation)
    model, worst = motion_model(plain), 0.0
    old, new = stop_tube_parameters(plain), stop_tube_parameters(spec)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        truth = drawn(plain, rng, ends=True)
        run, command = on_its_way(model, truth, rng), random_command(plain, rng)
        path = path_to_rest(plain, truth, run, command, plain.hold_s)
        moves = np.linalg.norm(np.diff(path, axis=0), axis=1) > REST_M_S * STEP_S
        pushed_s = STEP_S * np.cumsum(np.maximum.accumulate(moves[::-1])[::-1])
        tube = tube_of(model, run, command, new.hold_ticks)
        for angle in np.linspace(0, 2 * np.pi, 16, endpoint=False):
            way = np.zeros(path.shape)
            way[1:, :2] = BOUND * deviation * pushed_s[:, None] * np.array([math.cos(angle), math.sin(angle)])
            worst = max(worst, hull_distance(tube, (path + way)[::20]).max())
    assert worst > old.tube_error_m
    assert worst <= new.tube_error_m
