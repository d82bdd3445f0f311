"""The watch over the response to commands: silent for any robot within its intervals, and it sees what is blocked."""

import math

import array_api_strict
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.deploy.body import STEP_S, Body, measured
from tests.deploy.noisy_robot import noisy
from tests.deploy.tiny_policy import draft_contract
from tests.effort import examples

from testudo_deploy.control.control_loop import ControlLoop
from testudo_deploy.control.pose_validator import MotionMonitor
from testudo_deploy.control.state_prediction import PendingCommands
from testudo_deploy.monitoring.actuation_monitor import (
    actuation_limits,
    begin_actuation_monitor,
    update_actuation_monitor,
)
from testudo_deploy.shield.residual_margin import BOUND
from testudo_deploy.shield.velocity_projection import Arena
from testudo_hardware.motion import MotionState
from testudo_hardware.motion.motion_model import effective_command
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import load_robot

WHEELED = ("gritsbot_x", "irobot_create", "turtlebot3_burger", "turtlebot4")
POINTS = ("crazyflie_2x", "robomaster_s1")
BLIND = ("turtlebot3_burger", "turtlebot4")
"""The error of two of their poses is about what they drive in 0.3 s."""
AGE_S, BEGIN_S = 0.02, 3.0


@settings(max_examples=examples(60), deadline=None)
@given(
    name=st.sampled_from(WHEELED + POINTS),
    shares=st.tuples(*(st.sampled_from([0.0, 0.5, 1.0]) | st.floats(0, 1) for _ in range(4))),
    wishes=st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1), st.integers(1, 40)), min_size=1, max_size=6),
    flips=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_a_robot_within_its_intervals_raises_no_alarm(name, shares, wishes, flips, seed):
    """Any lag, delay and scales of its file, any commands, irregular ticks, the full error of position and heading.

    Errors are anywhere within the bounds, or at one end and then, from some pose on, at the other.
    """
    body, random = Body(name, *shares), np.random.default_rng(seed)
    spec, size = body.spec, body.spec.dimension
    sent = PendingCommands(spec.command_delay_s, spec.dead_man_s)
    watch = MotionMonitor(spec, sent)
    watch.begin(measured(body, np.zeros(size)))
    stamp_s, sign, side = 0.0, 1.0, random.normal(size=size)
    for along, across, count in wishes:
        wish = np.zeros(size)
        wish[:2] = along * spec.control_point_speed_m_s, across * (3.0 if body.wheeled else 1.0)
        effective = effective_command(body.model, wish)
        for _ in range(count):
            sent.push(body.now_s, effective)
            body.send(effective)
            body.move(min(spec.control_period_s * random.uniform(0.8, 1.3), spec.dead_man_s))
            sign *= random.choice([1, -1], p=[0.9, 0.1])
            error, turned = (100 * sign * side, sign) if flips else (random.normal(size=size), random.uniform(-1, 1))
            before_s, stamp_s = stamp_s, body.now_s
            watch.follow(measured(body, error, turned), True, before_s, stamp_s, stamp_s)
            assert watch.unresponsive == ""


def drive(body, wish, seconds, *, blocked=(), random=None, guard=None):
    """Drive a control loop with a wish (D,); block what is named at `BEGIN_S`; return the records and their times."""
    spec, size = body.spec, body.spec.dimension

    class Policy:
        contract = draft_contract(spec).replace(arena=Arena((-50.0,) * size, (50.0,) * size), decision_ticks=1)

        def step(self, signals, hidden):
            return np.array(wish, float), hidden

    loop = ControlLoop(Policy(), spec, robot="r0", peers=(), goal_world=(0.0,) * size, epoch="e")
    records, steps = [], round(spec.control_period_s / STEP_S)
    for number in range(round(seconds / spec.control_period_s) * steps):
        if body.now_s >= BEGIN_S:
            body.blocked = blocked
        if number % steps == 0:
            error, turned = np.zeros(size), 0.0
            if random is not None:
                error, turned = random.normal(size=size) / 3, float(np.clip(random.normal() / 3, -1, 1))
            seen, stamp_s = measured(body, error, turned), body.now_s
        body.move(STEP_S)
        if number % steps == round(AGE_S / STEP_S) - 1:
            if guard is not None:
                guard(loop, body.now_s)
            loop.on_odometry(stamp_s, body.now_s, tuple(seen.position_world), float(seen.yaw), tuple(seen.velocity))
            records.append((body.now_s, loop.tick(body.now_s)))
            body.send(effective_command(body.model, np.array(records[-1][1].sent_command)))
    return records


def ahead(name, share=1.0):
    spec = load_robot(name)
    return (share * spec.speed_limit_m_s,) + (0.0,) * (spec.dimension - 1)


def first_alarm_s(records):
    """Return how long after the blockage the first alarm was raised."""
    return next((time_s for time_s, record in records if record.reason.startswith("no_response: ")), math.inf) - BEGIN_S


@pytest.mark.parametrize("name", WHEELED + POINTS)
def test_a_blocked_robot_is_told_within_300_ms_where_two_poses_can_tell(name):
    """At top speed; the bound is what the docstring of the module says of the least speed."""
    spec = load_robot(name)
    scale = spec.quantities["dynamics.speed_scale"].low
    shown_from_m_s = 2 * spec.position_error_m / (scale * (0.3 - AGE_S - 1.5 * spec.control_period_s))
    assert (shown_from_m_s > spec.speed_limit_m_s) == (name in BLIND)
    records = drive(Body(name), ahead(name), 4.0, blocked=("left", "right"))
    assert 0 < first_alarm_s(records) < (0.45 if name in BLIND else 0.3)
    late = [record for time_s, record in records if time_s >= BEGIN_S + first_alarm_s(records)]
    assert all(record.reason.startswith("no_response: ") for record in late)
    assert all(record.status == "braked" and not any(record.sent_command) for record in late)
    assert {record.reason for time_s, record in records if time_s < BEGIN_S} == {""}
    what, _, rest = late[0].reason.removeprefix("no_response: the ").partition(" is ")
    short_m, error_m = float(rest.split()[0]), float(rest.split()[-2])
    assert what == ("way ahead" if name in WHEELED else "way along x")
    assert error_m == pytest.approx(2 * spec.position_error_m)
    assert short_m >= error_m


@pytest.mark.parametrize("name", WHEELED)
@pytest.mark.parametrize("side", ["left", "right"])
def test_one_blocked_wheel_is_told_by_the_turn_within_300_ms(name, side):
    records = drive(Body(name), ahead(name), 4.0, blocked=(side,), random=np.random.default_rng(1))
    assert 0 < first_alarm_s(records) < 0.3
    alarm = next(record.reason for _, record in records if record.reason)
    assert f"the turn to the {'right' if side == 'left' else 'left'} is " in alarm


@pytest.mark.parametrize("name", [*POINTS, "irobot_create"])
def test_half_the_speed_shows_in_time_with_noise_too(name):
    times = [
        first_alarm_s(
            drive(Body(name), ahead(name, 0.5), 4.0, blocked=("left", "right"), random=np.random.default_rng(seed))
        )
        for seed in range(3)
    ]
    assert min(times) > 0
    assert max(times) < 0.32


@pytest.mark.parametrize("name", WHEELED + POINTS)
def test_an_actuator_that_gives_half_is_told(name):
    body = Body(name)
    body.scale *= 0.5
    alarms = [time_s for time_s, record in drive(body, ahead(name), 4.0) if record.reason.startswith("no_response: ")]
    assert alarms
    assert alarms[0] < 2.5  # the watch begins with any speed in any direction


@pytest.mark.parametrize("name", WHEELED + POINTS)
@pytest.mark.parametrize("corner", [0.0, 1.0])
def test_normal_driving_at_the_ends_of_the_intervals_raises_none(name, corner):
    records = drive(Body(name, corner, corner, corner, corner), ahead(name), 6.0, random=np.random.default_rng(2))
    assert not [record.reason for _, record in records if record.reason.startswith("no_response")]


@pytest.mark.parametrize(("name", "off_m_s"), [("gritsbot_x", 0.05), ("robomaster_s1", 0.1)])
def test_residual_motion_of_the_file_is_no_missing_response(name, off_m_s):
    """A velocity that is off by its whole bound and stays so; a blockage is still detected."""

    def reasons(*, known, blocked=()):
        body = Body(name, 0.0, 0.0, 0.0, 0.0)
        body.drift = np.zeros(body.spec.dimension)
        body.drift[0] = -off_m_s
        if known:
            body.spec = noisy(body.spec, along_deviation=off_m_s / BOUND)
        records = drive(body, ahead(name), 4.0, blocked=blocked)
        return {record.reason.partition(":")[0] for _, record in records}

    assert reasons(known=True) == {""}
    assert "no_response" in reasons(known=False)
    assert "no_response" in reasons(known=True, blocked=("left", "right"))


def test_a_robot_that_its_guard_brakes_need_not_move():
    def brakes(loop, now_s):
        loop.on_guard(passes=now_s < BEGIN_S, received_s=now_s)

    records = drive(Body("crazyflie_2x"), ahead("crazyflie_2x"), 4.5, blocked=("left", "right"), guard=brakes)
    assert {record.reason for _, record in records} == {""}


@pytest.mark.parametrize("dies", [True, False])
def test_while_the_guard_is_silent_nothing_is_said(dies):
    """It may be gone, and the driver brakes; if it comes back and passed everything on, the robot is to blame."""

    def silent(loop, now_s):
        if now_s < BEGIN_S - 0.1 or (not dies and now_s > BEGIN_S + 0.5):
            loop.on_guard(passes=True, received_s=now_s)

    alarm_s = first_alarm_s(
        drive(Body("robomaster_s1"), ahead("robomaster_s1"), 5.0, blocked=("left", "right"), guard=silent)
    )
    assert alarm_s == math.inf if dies else alarm_s == pytest.approx(0.52, abs=0.06)


def test_a_robot_that_stands_may_be_carried():
    """Whoever is told to stand falls short of nothing, wherever he is put and however he is turned."""
    spec = load_robot("gritsbot_x")
    watch = MotionMonitor(spec, PendingCommands(spec.command_delay_s, spec.dead_man_s))
    watch.begin(MotionState(np.zeros(2), np.array(0.0), np.zeros(2)))
    for number in range(1, 400):
        place = np.array([0.01 * number, 0.0])
        pose = MotionState(place, np.array(math.remainder(0.05 * number, math.tau)), np.zeros(2))
        watch.follow(pose, True, 0.033 * (number - 1), 0.033 * number, 0.033 * number)
    assert watch.finding == ""


def test_the_limits_are_those_of_the_file():
    limits = actuation_limits(load_robot("gritsbot_x"), np.array(0.0))
    assert limits.allowed.tolist() == pytest.approx([0.03, 0.0524] * 2)
    assert limits.low.tolist() == pytest.approx([0.8] * 4)
    assert limits.crosstalk.tolist() == pytest.approx([0.0, 0.4 / 0.105] * 2)


@pytest.mark.parametrize("name", WHEELED[:1] + POINTS)
def test_the_body_keeps_to_the_array_standard(name):
    spec, random = load_robot(name), np.random.default_rng(0)
    size = spec.dimension
    drawn = [random.normal(size=(size, 50)) for _ in range(4)]

    def run(asarray):
        place, later, first, second = (asarray(values) for values in drawn)
        yes, angle = asarray(np.ones(50, bool)), asarray(drawn[0][0])
        limits = actuation_limits(spec, angle)
        watch = begin_actuation_monitor(limits, MotionState(place, angle, first), yes)
        time_s = asarray(np.full(50, spec.control_period_s))
        for part in (0.2, 0.4):
            pose = MotionState(place + part * later, angle + part * later[0, ...], first)
            watch, excess = update_actuation_monitor(limits, watch, pose, yes, [first, second], time_s)
        return [*vars(watch).values(), excess]

    for strict, plain in zip(run(array_api_strict.asarray), run(np.asarray), strict=True):
        np.testing.assert_allclose(np.asarray(strict), plain)


def test_every_kind_is_watched():
    assert {load_robot(name).kind == DIFFERENTIAL_DRIVE for name in WHEELED} == {True}
    assert {load_robot(name).kind == DIFFERENTIAL_DRIVE for name in POINTS} == {False}


def test_weak_brakes_stay_found_although_later_poses_are_as_expected():
    spec = load_robot("gritsbot_x")
    monitor = MotionMonitor(spec, PendingCommands(spec.command_delay_s, spec.dead_man_s))
    stands = MotionState(np.zeros(2), np.array(0.0), np.zeros(2))
    monitor.begin(stands)
    monitor.weak = "brakes_weak: found"
    for k in range(5):
        monitor.follow(stands, True, 1.0 + 0.03 * k, 1.03 + 0.03 * k, 1.03 + 0.03 * k)
    assert monitor.finding == "brakes_weak: found"
