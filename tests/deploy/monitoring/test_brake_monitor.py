"""The watch over the brakes, on a robot in small steps with clocks, delays and poses as on the ground."""

import math

import array_api_strict
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.deploy.body import Body, measured
from tests.deploy.noisy_robot import noisy
from tests.deploy.tiny_policy import draft_contract
from tests.effort import examples

from testudo_deploy.control.control_loop import ControlLoop
from testudo_deploy.control.state_prediction import PendingCommands
from testudo_deploy.monitoring.brake_monitor import begin_brake_monitor, brake_margin_terms, update_brake_monitor
from testudo_deploy.shield.residual_margin import BOUND
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_deploy.shield.velocity_projection import Arena
from testudo_hardware.motion import MotionState
from testudo_hardware.motion.motion_model import actuator_command, effective_command
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import load_robot

FAST, SLOW = ("crazyflie_2x", "robomaster_s1"), ("gritsbot_x", "turtlebot4")
ROBOTS = FAST + SLOW
WEAK = dict.fromkeys(ROBOTS, 0.7) | {"crazyflie_2x": 0.5}
"""Share of the brakes that is too weak: what the interval of the lag leaves to a drone is more than 30 percent."""


@settings(max_examples=examples(40), deadline=None)
@given(
    name=st.sampled_from(ROBOTS),
    shares=st.tuples(*(st.floats(0, 1) for _ in range(3))),
    wishes=st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1), st.integers(1, 25)), min_size=2, max_size=6),
    seed=st.integers(0, 1000),
)
def test_a_robot_within_its_intervals_raises_no_alarm(name, shares, wishes, seed):
    """Any lag, delay and scale of its file, any commands, irregular ticks, the full error of the pose."""
    body, random = Body(name, *shares), np.random.default_rng(seed)
    spec, size = body.spec, body.spec.dimension
    delay = spec.quantities["dynamics.command_delay"]
    sent = PendingCommands(spec.command_delay_s, spec.dead_man_s)
    pose, stamp_s = measured(body, np.zeros(size)), 0.0
    watch = begin_brake_monitor(spec, pose, np.array(True))
    for along, across, count in wishes:
        wish = np.zeros(size)
        wish[:2] = along * spec.control_point_speed_m_s, across * (3.0 if spec.kind == DIFFERENTIAL_DRIVE else 1.0)
        effective = effective_command(body.model, wish)
        for _ in range(count):
            sent.push(body.now_s, effective)
            body.send(effective)
            body.move(min(spec.control_period_s * random.uniform(0.8, 1.3), spec.dead_man_s))
            before_s, stamp_s = stamp_s, body.now_s
            pieces = sent.may_act(before_s, stamp_s, (delay.low, delay.high), np.zeros(size))
            pose = measured(body, random.normal(size=size))
            watch, excess = update_brake_monitor(
                spec, watch, pose, np.array(True), pieces, np.array(stamp_s - before_s)
            )
            assert excess <= 0


def stop_from_top_speed(body, seconds=2.0):
    """Drive a control loop at top speed, then want to stand; return the records from then on."""
    spec, size = body.spec, body.spec.dimension
    wish = np.zeros(size)
    wish[0] = 2 * spec.control_point_speed_m_s

    class Policy:
        contract = draft_contract(spec).replace(arena=Arena((-50.0,) * size, (50.0,) * size), decision_ticks=1)

        def step(self, signals, hidden):
            return wish, hidden

    loop = ControlLoop(Policy(), spec, robot="r0", peers=(), goal_world=(0.0,) * size, epoch="e")
    records = []
    for number in range(math.ceil(4 / spec.control_period_s)):
        if number == math.ceil(seconds / spec.control_period_s):
            records.clear()
            wish[:] = 0
        state = body.state
        loop.on_odometry(body.now_s, body.now_s, tuple(state.position_world), float(state.yaw), tuple(state.velocity))
        body.move(0.02)
        records.append(loop.tick(body.now_s))
        body.send(effective_command(body.model, np.array(records[-1].sent_command)))
        body.move(spec.control_period_s - 0.02)
    return records


@pytest.mark.parametrize("name", FAST)
def test_weak_brakes_raise_the_alarm_and_the_robot_stays_braked(name):
    records = stop_from_top_speed(Body(name, brakes=WEAK[name]))
    alarms = [record.reason.startswith("brakes_weak: ") for record in records]
    first = alarms.index(True)
    assert first * load_robot(name).control_period_s < 0.8
    assert all(alarms[first:])
    assert all(record.status == "braked" and not any(record.sent_command) for record in records[first:])
    assert records[first].reason.count(" m on, expected at most ") == 1


@pytest.mark.parametrize("name", FAST)
def test_a_robot_that_seemed_to_roll_back_before_it_started_is_watched_when_it_brakes(name):
    """Noise of the odometry at rest began a watch the other way, which once went on for all of a short drive."""
    body = Body(name, brakes=WEAK[name])
    spec, size = body.spec, body.spec.dimension
    delay, sent = spec.quantities["dynamics.command_delay"], PendingCommands(spec.command_delay_s, spec.dead_man_s)
    noise, wish = np.zeros(size), np.zeros(size)
    noise[0] = -0.013
    pose = measured(body, np.zeros(size))
    watch = begin_brake_monitor(spec, MotionState(pose.position_world, pose.yaw, noise), np.array(True))
    excess_m = []
    for tick in range(round(1.9 / spec.control_period_s)):
        wish[0] = spec.speed_limit_m_s if tick * spec.control_period_s < 0.9 else 0.0
        effective = effective_command(body.model, wish)
        sent.push(body.now_s, effective)
        body.send(effective)
        before_s = body.now_s
        body.move(spec.control_period_s)
        pieces = sent.may_act(before_s, body.now_s, (delay.low, delay.high), np.zeros(size))
        watch, excess = update_brake_monitor(
            spec, watch, measured(body, np.zeros(size)), np.array(True), pieces, np.array(body.now_s - before_s)
        )
        excess_m.append(float(excess))
    assert max(excess_m) > 0


@pytest.mark.parametrize("name", ROBOTS)
@pytest.mark.parametrize("corner", [0.0, 1.0])
def test_brakes_at_the_ends_of_the_intervals_raise_none(name, corner):
    records = stop_from_top_speed(Body(name, corner, corner, corner))
    assert {record.reason for record in records} == {""}


@pytest.mark.parametrize("name", FAST)
def test_residual_motion_of_the_file_is_no_weak_brake(name):
    """A velocity that is off by its whole bound and stays so, in the direction of the braking."""

    def reasons(*, known):
        body = Body(name, 1.0, 1.0, 1.0)
        body.drift = np.zeros(body.spec.dimension)
        body.drift[0] = 0.1
        if known:
            body.spec = noisy(body.spec, along_deviation=0.1 / BOUND)
        return {record.reason.partition(":")[0] for record in stop_from_top_speed(body)}

    assert reasons(known=True) == {""}
    assert "brakes_weak" in reasons(known=False)


def overshoot_m(name, brakes, lag=0.5):
    """Return how far behind its predicted place of rest a robot stops from top speed."""
    body = Body(name, lag, brakes=brakes)
    spec = body.spec
    top = np.zeros(spec.dimension)
    top[0] = spec.speed_limit_m_s
    body.state = MotionState(0 * top, np.array(0.0), top)
    rest = body.model.rest_position(body.state)
    for _ in range(round(4 / spec.control_period_s)):
        # as hard as planned, then to rest
        stop = body.model.stopping_point(body.state)
        body.queue = [(0.0, effective_command(body.model, actuator_command(body.model, stop, 0 * top)))]
        body.move(spec.control_period_s)
    return float(np.linalg.norm(body.state.position_world - rest))


@pytest.mark.parametrize("name", ROBOTS)
def test_an_alarm_is_owed_only_where_weak_brakes_leave_the_tube(name):
    """A slow robot with such brakes stays within the error that its tube is inflated by: nothing to tell."""
    error_m = stop_tube_parameters(load_robot(name)).tube_error_m
    assert overshoot_m(name, 1.0) < error_m
    assert (overshoot_m(name, WEAK[name]) > error_m) == (name in FAST)


def test_the_terms_are_those_of_the_file():
    terms = {term.name: term.value_m for term in brake_margin_terms(load_robot("crazyflie_2x"))}
    assert terms == pytest.approx({"localisation": 0.012, "tick": 3.5 * 0.02**2})


def test_what_may_have_acted_is_cut_at_the_ends_of_the_delays():
    """Sent at 0 and 0.03, delay 0.02 to 0.04: from 0.05 to 0.07 either may act, then the second alone."""
    sent = PendingCommands(0.03, 0.1)
    for number, time_s in ((1.0, 0.0), (2.0, 0.03)):
        sent.push(time_s, np.array([number]))
    pieces = sent.may_act(0.05, 0.09, (0.02, 0.04), np.zeros(1))
    assert [share for share, _ in pieces] == pytest.approx([0.5, 0.5])
    assert [sorted(float(command[0]) for command in commands) for _, commands in pieces] == [[1.0, 2.0], [2.0]]
    ((share, commands),) = sent.may_act(-1.0, 0.0, (0.02, 0.04), np.zeros(1))
    assert (share, [float(command[0]) for command in commands]) == (1.0, [0.0])


@pytest.mark.parametrize("name", ROBOTS)
def test_the_body_keeps_to_the_array_standard(name):
    spec, random = load_robot(name), np.random.default_rng(0)
    size = spec.dimension
    drawn = [random.normal(size=(size, 50)) for _ in range(5)]

    def run(asarray):
        place, speed, later, first, second = (asarray(values) for values in drawn)
        yes, angle = asarray(np.ones(50, bool)), asarray(drawn[0][0])
        watch = begin_brake_monitor(spec, MotionState(place, angle, speed), yes)
        pieces = [(asarray(np.full(50, 0.4)), [0.3 * first, 0.1 * second]), (asarray(np.full(50, 0.6)), [0.1 * second])]
        time_s = asarray(np.full(50, spec.control_period_s))
        watch, excess = update_brake_monitor(spec, watch, MotionState(later, angle, 0.9 * speed), yes, pieces, time_s)
        return [*vars(watch).values(), excess]

    for strict, plain in zip(run(array_api_strict.asarray), run(np.asarray), strict=True):
        np.testing.assert_allclose(np.asarray(strict), plain)
