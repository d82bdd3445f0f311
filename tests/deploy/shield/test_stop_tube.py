"""The stop tube holds the body: a fine roll-out of the true motion stays within the documented error of its hull.

The roll-out (`fine_motion.py`) shares no code with the motion models. A command may be stopped at any moment of its
hold, also between ticks. From the moment at which the command begins to act, a robot with the values of its file and
without measurement error stays within the term `bends` and what `limit_end_m` derives. The path before that does not
depend on the command; where it turns back it leaves the straight line by an arc. Only the sum of all terms covers both.
"""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.deploy.fine_motion import STEP_S, drawn, nominal, on_its_way, path_to_rest, random_command
from tests.deploy.shield.libraries import LIBRARIES, compiled
from tests.effort import examples

from testudo_deploy.shield.geometry import point_distance
from testudo_deploy.shield.margin_terms import stop_tube_terms
from testudo_deploy.shield.stop_tube import stop_tube, stop_tube_parameters, tube_segments
from testudo_hardware.motion import MotionState, motion_model
from testudo_hardware.motion.motion_model import effective_command
from testudo_hardware.spec import load_robot, robot_files

ROBOTS = sorted(robot_files())
TURNING_BACK_M = 8e-3
COARSE, REFINED = 4, 9
"""Stop times tried in a tick, and around the best of them in each of two refinements."""


def hull_distance(tube, path):
    """Return how far points of a path (S, D) are from segments that lie in the hull of a tube (D, P), (S,).

    These are the line from the measured place, and from every place of the held path a straight line to where the body
    rests from there. A fixed grid of stop times is too coarse: at 1 m/s the places of rest of a quarter of a tick are
    13 mm apart.
    """
    last = (tube.shape[1] - 3) // 2
    held, rest = tube[:, 1 : last + 2], tube[:, last + 2 :]

    def lines_at(times):
        tick = np.minimum(times.astype(int), last - 1)
        share = times - tick
        return (points[:, tick] * (1 - share) + points[:, tick + 1] * share for points in (held, rest))

    times = np.broadcast_to(np.linspace(0, last, COARSE * last + 1), (len(path), COARSE * last + 1))
    width, places = 1 / COARSE, path.T[:, :, None]
    for _ in range(3):
        distance = point_distance(places, *lines_at(times))
        best = np.take_along_axis(times, distance.argmin(axis=1)[:, None], axis=1)
        times = np.clip(best + width * np.linspace(-1, 1, REFINED), 0, last)
        width *= 2 / (REFINED - 1)
    return np.minimum(distance.min(axis=1), point_distance(path.T, tube[:, :1], tube[:, 1:2]))


def line_distance(tube, path):
    """Return how far points of a path (S, D) are from the lines of a tube, which R5 compares (S,)."""
    starts, ends = tube_segments(tube, (tube.shape[1] - 3) // 2)
    return point_distance(path.T[:, :, None], starts[:, None], ends[:, None]).min(axis=1)


def tube_of(model, run, command, ticks):
    return stop_tube(model, run.measured.position_world, run.estimate, effective_command(model, command), ticks)


def limit_end_m(spec, run):
    """Return how far the predicted body can be off because ticks in which the acceleration limit ends are simplified.

    The lag's error e is followed for one tick T as min(g e, a T) with g = 1 - exp(-T / lag). A limit that ends a time s
    after the start of the tick leaves a s + a lag (1 - exp(-(T - s) / lag)) in truth. Each change of command ends the
    limit at most once, and a velocity error lasts over pose age, delay, hold, lag and braking.
    """
    period, lag, most = spec.control_period_s, spec.velocity_lag_s, spec.acceleration_limit_m_s2
    end = np.linspace(0, period, 101)
    truth = most * end + most * lag * (1 - np.exp(-(period - end) / lag))
    model = np.minimum(-np.expm1(-period / lag) * most * (lag + end), most * period)
    commands = [command for _, command in run.sent]
    changes = 2 + sum(not np.array_equal(*pair) for pair in pairwise(commands))  # with the new command and its stop
    ahead_s = run.age_s + spec.command_delay_s + spec.hold_s
    lasts_s = ahead_s + lag + spec.speed_limit_m_s / most
    return changes * np.abs(model - truth).max() * lasts_s


def rest_spacing_m(tube):
    """Return half the distance of neighbouring places of rest: a stop between two ticks ends between their lines."""
    last = (tube.shape[1] - 3) // 2
    return np.linalg.norm(np.diff(tube[:, last + 2 :]), axis=0).max() / 2


def some_time(spec, rng):
    """Return for how long a command acts: whole ticks, any time, or all of the hold [s]."""
    ticks = spec.control_period_s * rng.integers(0, int(spec.hold_s / spec.control_period_s) + 1)
    held_s = rng.choice([ticks, rng.uniform(0, spec.hold_s), spec.hold_s])
    return STEP_S * np.floor(held_s / STEP_S + 1e-9)


@pytest.mark.parametrize("name", ROBOTS)
@settings(max_examples=examples(10), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), ends=st.booleans())
def test_the_body_stays_in_the_tube_within_its_error(name, seed, ends):
    """Whatever lag, delay and scale are within their intervals, pose late and noisy, brake at any moment."""
    spec, rng = load_robot(name), np.random.default_rng(seed)
    model, space = motion_model(spec), stop_tube_parameters(spec)
    truth = drawn(spec, rng, ends=ends)
    run, command = on_its_way(model, truth, rng), random_command(spec, rng)
    path = path_to_rest(spec, truth, run, command, some_time(spec, rng))
    tube = tube_of(model, run, command, space.hold_ticks)
    assert hull_distance(tube, path[::3]).max() <= space.tube_error_m
    assert line_distance(tube, path[::3]).max() <= space.tube_error_m


@pytest.mark.parametrize("name", ROBOTS)
@settings(max_examples=examples(10), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
@example(seed=82)
@example(seed=132)
@example(seed=60)
@example(seed=19)
def test_a_robot_as_described_leaves_the_tube_by_its_bends_and_the_end_of_the_limit_only(name, seed):
    spec, rng = load_robot(name), np.random.default_rng(seed)
    model, space, truth = motion_model(spec), stop_tube_parameters(spec), nominal(spec)
    run, command = on_its_way(model, truth, rng, noise=0), random_command(spec, rng)
    path = path_to_rest(spec, truth, run, command, some_time(spec, rng))
    bends = next(term.value_m for term in stop_tube_terms(spec) if term.name == "bends")
    tube = tube_of(model, run, command, space.hold_ticks)
    distance, allowed = hull_distance(tube, path), bends + limit_end_m(spec, run)
    begin = round((run.age_s + truth.delay_s) / STEP_S)
    assert distance[begin:].max() <= allowed
    assert line_distance(tube, path)[begin:].max() <= allowed + rest_spacing_m(tube)
    # before its command acts it may turn back by an arc above the straight line
    arc = spec.acceleration_limit_m_s2 * (run.age_s + truth.delay_s) ** 2 / 8
    assert distance[: begin + 1].max() <= max(TURNING_BACK_M, arc)


def worst(name, shorten_tube, seeds=25):
    """Return the farthest that a robot as described leaves a changed tube while or after its command acts [m]."""
    spec, found = load_robot(name), 0.0
    model, space, truth = motion_model(spec), stop_tube_parameters(spec), nominal(spec)
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        run, command = on_its_way(model, truth, rng, noise=0), random_command(spec, rng)
        path = path_to_rest(spec, truth, run, command, rng.choice([0.0, spec.hold_s]) // STEP_S * STEP_S)
        tube = shorten_tube(tube_of(model, run, command, space.hold_ticks), space.hold_ticks)
        begin = round((run.age_s + truth.delay_s) / STEP_S)
        found = max(found, hull_distance(tube, path[begin::3]).max())
    return found


@pytest.mark.parametrize("name", ROBOTS)
def test_braking_after_the_last_tick_alone_is_not_the_tube(name):
    """Negative control (shield.md): where the body rests if the command is stopped earlier is not on that path."""

    def last_brake_only(tube, ticks):
        return np.concatenate([tube[:, : ticks + 2], *[tube[:, -1:]] * (ticks + 1)], axis=1)

    assert worst(name, lambda tube, ticks: tube) < 0.003
    assert worst(name, last_brake_only) > 0.004


@pytest.mark.parametrize("name", ROBOTS)
def test_a_hold_of_one_tick_is_not_the_tube(name):
    """Negative control: T in place of T_hold, as if the command could not act longer than the next tick."""

    def one_tick(tube, ticks):
        return np.concatenate([tube[:, :3], tube[:, ticks + 2 : ticks + 4]], axis=1)

    assert worst(name, one_tick) > 0.01


@pytest.mark.parametrize("name", ["gritsbot_x", "crazyflie_2x"])
def test_the_tube_at_rest_is_a_point_and_straight_ahead_a_line(name):
    spec = load_robot(name)
    model, size = motion_model(spec), spec.dimension
    place = np.arange(1.0, size + 1)
    still = MotionState(place, np.array(0.0), np.zeros(size))
    tube = stop_tube(model, place, still, np.zeros(size), 4)
    assert tube.shape == (size, 11)
    assert np.abs(tube - place[:, None]).max() < 1e-12
    ahead = np.zeros(size)
    ahead[0] = 0.5 * spec.speed_limit_m_s
    driven = stop_tube(model, place, still, ahead, 4)
    assert np.abs(driven[1:] - place[1:, None]).max() < 1e-12
    assert (np.diff(driven[0, 1:6]) > 0).all()
    assert (driven[0, 6:] >= driven[0, 1:6]).all()
    # from the end: the way to rest at the speed reached there
    reached = ahead[0] * -np.expm1(-4 * spec.control_period_s / spec.velocity_lag_s)
    if reached < spec.acceleration_limit_m_s2 * spec.velocity_lag_s and name == "gritsbot_x":
        assert driven[0, -1] - driven[0, 5] == pytest.approx(reached * spec.velocity_lag_s, rel=1e-6)


@pytest.mark.parametrize("name", ["gritsbot_x", "turtlebot4", "crazyflie_2x"])
@pytest.mark.parametrize("asarray", LIBRARIES)
def test_all_libraries_agree(name, asarray):
    """One body: robots of a batch, and a candidate axis that broadcasts against their state."""
    spec, rng = load_robot(name), np.random.default_rng(0)
    model, size = motion_model(spec), spec.dimension
    state = [rng.uniform(-1, 1, shape) for shape in ((size, 1, 7), (1, 7), (size, 1, 7))]
    state[2] *= 0.5 * spec.speed_limit_m_s
    measured, command = state[0] + 0.01, rng.uniform(-0.2, 0.2, (size, 5, 7))
    expected = stop_tube(model, measured, MotionState(*state), command, 3)
    assert expected.shape == (size, 9, 5, 7)
    tube = compiled(lambda measured, state, command: stop_tube(model, measured, state, command, 3), asarray)
    found = tube(asarray(measured), MotionState(*map(asarray, state)), asarray(command))
    assert np.asarray(found) == pytest.approx(expected, abs=2e-5)
    one = MotionState(state[0][:, 0, 2], state[1][0, 2], state[2][:, 0, 2])
    alone = stop_tube(model, measured[:, 0, 2], one, command[:, 4, 2], 3)
    assert alone == pytest.approx(expected[:, :, 4, 2], abs=1e-12)
