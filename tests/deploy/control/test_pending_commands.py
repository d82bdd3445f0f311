"""Commands on their way: which act when, at irregular ticks too, and what the estimate makes of them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testudo_deploy.control.state_prediction import PendingCommands, estimate_state, pending_time_s, predict_state
from testudo_hardware.motion import LagResponse, MotionState, motion_model
from testudo_hardware.spec import load_robot

DELAY_S, DEAD_MAN_S = 0.05, 0.1


def sent(*times):
    """Return commands numbered 1, 2, ... that were sent at these times."""
    pending = PendingCommands(DELAY_S, DEAD_MAN_S)
    for number, time_s in enumerate(times, 1):
        pending.push(time_s, np.array([float(number), 0.0]))
    return pending


def acting(pending, stamp_s, now_s):
    commands, durations = pending.since(stamp_s, now_s)
    return [(float(command[0]), pytest.approx(time_s)) for command, time_s in zip(commands, durations, strict=True)]


def test_at_regular_ticks_the_newest_command_comes_first():
    """Sent at 0, 0.03, 0.06; pose of 0.055; now 0.09: from 0.055 to 0.14 commands 1, 2, 3 act."""
    assert acting(sent(0.0, 0.03, 0.06), 0.055, 0.09) == [(3, 0.03), (2, 0.03), (1, 0.025)]


def test_at_irregular_ticks_each_acts_until_the_next_does():
    assert acting(sent(0.0, 0.01, 0.07), 0.055, 0.09) == [(3, 0.02), (2, 0.06), (1, 0.005)]


def test_after_the_dead_man_time_zero_acts():
    """The only command acts from 0.05 to 0.15; then the driver stops."""
    assert acting(sent(0.0), 0.06, 0.25) == [(0, 0.15), (1, 0.09)]


def test_a_gap_between_commands_is_bridged_with_zero():
    assert acting(sent(0.0, 0.2), 0.1, 0.22) == [(2, 0.02), (0, 0.1), (1, 0.05)]


def test_before_the_first_command_zero_acts():
    """Regression: that time was left out, so that a robot which moved already was taken to stand."""
    assert acting(sent(0.0, 0.03), 0.01, 0.05) == [(2, 0.02), (1, 0.03), (0, 0.04)]


def test_nothing_was_sent_yet():
    assert acting(PendingCommands(DELAY_S, DEAD_MAN_S), 0.0, 1.0) == []


def test_what_acted_before_the_pose_does_not_count():
    assert acting(sent(0.0, 0.03), 0.081, 0.05) == [(2, 0.019)]


@given(
    gaps=st.lists(st.floats(1e-4, 0.4), min_size=1, max_size=20),
    age_s=st.floats(0, 0.5),
    wait_s=st.floats(0, 0.3),
)
def test_the_times_add_up_to_the_time_that_is_to_be_bridged(gaps, age_s, wait_s):
    times = np.cumsum(gaps)
    now_s = times[-1] + wait_s
    stamp_s = now_s - age_s
    commands, durations = sent(*times).since(stamp_s, now_s)
    assert sum(durations) == pytest.approx(age_s + DELAY_S, abs=1e-9)
    assert all(time_s > 0 for time_s in durations)
    numbers = [command[0] for command in commands if command[0] > 0]
    assert numbers == sorted(numbers, reverse=True)


def test_a_clock_that_steps_back_does_not_break_it():
    pending = sent(10.0, 10.03, 4.0, 4.03)
    commands, durations = pending.since(4.0, 4.05)
    assert all(np.isfinite(durations))
    assert len(commands) == len(durations)


@pytest.mark.parametrize("name", ["gritsbot_x", "crazyflie_2x", "robomaster_s1"])
@pytest.mark.parametrize("age_s", [0.0, 0.02, 0.047, 0.06])
def test_at_regular_ticks_simulation_and_robot_predict_the_same(name, age_s):
    """The simulation's fixed slots against the robot's list of what it really sent."""
    spec = load_robot(name)
    model, period = motion_model(spec), spec.control_period_s
    rng = np.random.default_rng(3)
    count = math.ceil((0.06 + spec.command_delay_s) / period) + 1
    commands = rng.uniform(-0.1, 0.1, (count, spec.dimension))
    pending = PendingCommands(spec.command_delay_s, spec.dead_man_s)
    for k in reversed(range(count)):
        pending.push(1.0 - (k + 1) * period, commands[k])
    state = MotionState(rng.uniform(-1, 1, spec.dimension), np.array(0.4), rng.uniform(-0.1, 0.1, spec.dimension))
    robot = estimate_state(model, state, *pending.since(1.0 - age_s, 1.0))
    times = pending_time_s(spec, np.array(age_s), count)
    simulated = predict_state(model, state, commands, LagResponse.create(times, np.array(spec.velocity_lag_s)))
    for one, two in zip(vars(robot).values(), vars(simulated).values(), strict=True):
        assert one == pytest.approx(two, abs=1e-12)


def test_the_estimate_is_the_motion_that_follows():
    """A robot that moves by the model exactly is where the estimate said, delay included."""
    spec = load_robot("gritsbot_x")
    model, rng = motion_model(spec), np.random.default_rng(4)
    fine = LagResponse.create(np.array(1e-3), np.array(spec.velocity_lag_s))
    pending = PendingCommands(spec.command_delay_s, spec.dead_man_s)
    times = 0.02 + np.cumsum(rng.uniform(0.01, 0.06, 12)).round(3)
    commands = rng.uniform(-0.1, 0.1, (12, 2))
    for time_s, command in zip(times, commands, strict=True):
        pending.push(time_s, command)
    state = MotionState(np.zeros(2), np.array(0.0), np.zeros(2))
    now_s, stamp_s, trace = times[-1] + 0.01, times[-1] - 0.06, {}
    for millisecond in range(round((now_s + spec.command_delay_s) * 1000)):
        trace[millisecond] = state
        arrived = np.flatnonzero(times + spec.command_delay_s <= millisecond / 1000 + 1e-9)
        acting_now = commands[arrived[-1]] if len(arrived) else np.zeros(2)
        state = model.step(state, acting_now, fine)
    measured = trace[round(stamp_s * 1000)]
    estimate = estimate_state(model, measured, *pending.since(stamp_s, now_s))
    assert estimate.position_world == pytest.approx(state.position_world, abs=2e-4)
    assert estimate.yaw == pytest.approx(state.yaw, abs=1e-9)
    assert estimate.velocity == pytest.approx(state.velocity, abs=1e-9)
