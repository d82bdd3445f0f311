"""The control loop: every doubt ends in a brake with its code, and every tick in a complete record."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.effort import examples

from testudo_deploy.contract.messages import PeerMessage, TickRecord
from testudo_deploy.control.state_prediction import estimate_state
from testudo_hardware.motion import MotionState, motion_model
from testudo_hardware.motion.motion_model import effective_command

ROBOTS = ("gritsbot_x", "crazyflie_2x", "robomaster_s1")
BAD = (math.nan, math.inf, -math.inf, 1e200, -1e200)


def braked(record, reason):
    """Assert that a record is a brake with this code, complete and fit to be sent."""
    assert record.reason.partition(":")[0] == reason, record.reason
    assert record.status == "braked"
    assert all(value == 0 for value in record.sent_command)
    assert record.shielded_world is None
    assert record.nominal_world is None
    assert TickRecord.decode(record.encode()) == record


@pytest.mark.parametrize("name", ROBOTS)
def test_a_tick_with_all_it_needs_drives(name, make_loop):
    rig = make_loop(name)
    record = rig.tick()
    assert (record.status, record.reason) == ("passed", "")
    assert record.decided
    assert record.nominal_world == pytest.approx([0.05] * rig.spec.dimension)
    assert record.shielded_world == pytest.approx(record.nominal_world)
    assert any(record.sent_command)
    assert record.hidden_after == (1.0, 1.0)
    assert record.pose_stamp_s == pytest.approx(rig.now_s - 0.02)


@pytest.mark.parametrize("name", ROBOTS)
def test_a_record_is_complete_and_can_be_sent(name, make_loop):
    rig = make_loop(name, peers=("r1", "r2"))
    for _ in range(5):
        record = rig.tick()
    assert TickRecord.decode(record.encode()) == record
    unset = {field.name for field in dataclasses.fields(record) if getattr(record, field.name) is None}
    assert unset == set()
    size = rig.spec.dimension
    assert record.neighbour_names == ("r1", "r2")
    assert [len(point) for point in record.neighbour_control_point_world] == [size, size]
    assert record.neighbour_valid == (True, True)
    assert record.sequence == 4
    assert len(record.pending_commands) == len(record.pending_time_s) > 0


def test_the_record_says_what_was_used_so_that_the_estimate_can_be_redone(make_loop):
    rig = make_loop()
    rig.policy.answer = lambda signals, hidden: (np.array([0.03, 0.04]), hidden)
    for period_s in (0.033, 0.04, 0.02, 0.06, 0.033):
        record = rig.tick(period_s)
    model = motion_model(rig.spec)
    measured = MotionState(
        *map(np.array, (record.measured_position_world, record.measured_yaw, record.measured_velocity))
    )
    again = estimate_state(model, measured, [np.array(c) for c in record.pending_commands], record.pending_time_s)
    assert tuple(again.position_world) == record.estimate_position_world
    assert float(again.yaw) == record.estimate_yaw
    assert tuple(again.velocity) == record.estimate_velocity
    assert tuple(model.stopping_point(again).position_world) == record.control_point_world


def test_pending_commands_at_irregular_ticks_are_the_ones_that_were_sent(make_loop):
    rig = make_loop()
    sent = []
    for period_s in (0.033, 0.05, 0.01, 0.033, 0.07):
        record = rig.tick(period_s)
        sent.append((rig.now_s, record.sent_command))
    # the last tick, at its own time t, looks back to its pose at t - 0.02 and ahead by the delay, 0.05
    delay_s, dead_man_s = rig.spec.command_delay_s, rig.spec.dead_man_s
    begin, end, acts = rig.now_s - 0.02, rig.now_s + delay_s, []
    for time_s, command in reversed(sent[:-1]):
        low, high = max(time_s + delay_s, begin), min(end, time_s + delay_s + dead_man_s)
        if high > low:
            acts.append((command, high - low))
        end = min(end, time_s + delay_s)
    model = motion_model(rig.spec)
    assert record.pending_time_s == pytest.approx([time_s for _, time_s in acts])
    for got, (command, _) in zip(record.pending_commands, acts, strict=True):
        assert got == pytest.approx(effective_command(model, np.array(command)))


def test_the_policy_runs_at_its_period_and_is_held_between(make_loop):
    rig = make_loop(decision_ticks=3)
    answers = iter(np.linspace(0.01, 0.05, 5))
    rig.policy.answer = lambda signals, hidden: (np.full(2, next(answers)), hidden + 1)
    records = [rig.tick() for _ in range(7)]
    assert [record.decided for record in records] == [True, False, False, True, False, False, True]
    assert [record.nominal_world[0] for record in records] == [0.01] * 3 + [0.02] * 3 + [0.03]
    assert [record.hidden_after[0] for record in records] == [1, 1, 1, 2, 2, 2, 3]
    assert [record.hidden_before[0] for record in records] == [0, 1, 1, 1, 2, 2, 2]


def test_the_signals_are_those_of_the_contract(make_loop):
    rig = make_loop(peers=("r1", "r2", "r3"))
    rig.tick()
    shapes = {name: value.shape for name, value in rig.policy.signals[0].items()}
    expected = {
        signal.name: tuple(3 if axis == "neighbours" else axis for axis in signal.shape)
        for signal in rig.policy.contract.signals
    }
    assert shapes == expected
    assert rig.policy.signals[0]["goal_world"].tolist() == [1.0, 1.0]
    assert rig.policy.signals[0]["neighbour_valid"].tolist() == [1.0, 1.0, 1.0]


def test_without_a_pose_it_brakes(make_loop):
    rig = make_loop()
    braked(rig.tick(sees=False), "no_pose")
    assert rig.loop.announcement(rig.now_s) is None


def test_a_stale_pose_brakes_from_the_first_tick_beyond_its_age(make_loop):
    rig = make_loop()
    limit = rig.spec.pose_max_age_s
    rig.tick()
    stamp_s = rig.now_s - 0.02
    reasons = []
    for _ in range(6):
        record = rig.tick(sees=False)
        reasons.append((rig.now_s - stamp_s > limit, record.reason))
    assert [old for old, _ in reasons] == [False, False, True, True, True, True]
    assert all(reason == ("stale_pose" if old else "") for old, reason in reasons)
    braked(record, "stale_pose")
    assert rig.loop.announcement(rig.now_s) is None  # it does not know where it is
    assert rig.tick().reason == ""


def test_a_peer_that_was_never_heard_brakes(make_loop):
    rig = make_loop(peers=("r1", "r2"))
    rig.see()
    rig.hear("r1")
    record = rig.loop.tick(rig.now_s + 0.01)
    braked(record, "peer_unheard")
    assert "r2" in record.reason
    assert "r1" not in record.reason


def test_the_announcement_exists_before_peers_are_heard(make_loop):
    """Else all robots would wait for each other for ever."""
    rig = make_loop()
    braked(rig.tick(hears=False), "peer_unheard")
    message = rig.loop.announcement(rig.now_s)
    assert message.control_velocity_world == (0.0, 0.0)
    assert PeerMessage.decode(message.encode()) == message


@pytest.mark.parametrize(("peer", "goes_on"), [("q0", False), ("r1", True)])
def test_past_a_silent_peer_goes_the_earlier_robot_only(make_loop, peer, goes_on):
    """No code of its own: the gap grows over r0, unless rule R4 bounds where the peer can be."""
    rig = make_loop(peers=(peer,), at=(0.0, 0.0))
    rig.policy.answer = lambda signals, hidden: (np.array([0.1, 0.1]), hidden)
    assert any(rig.tick().sent_command)
    for _ in range(600):
        record = rig.tick(hears=False)
    assert record.reason == ""
    assert record.neighbour_age_s[0] > 19
    assert (record.shielded_world != pytest.approx((0.0, 0.0), abs=1e-9)) == goes_on


@pytest.mark.parametrize("age_s", [-0.01, -1.0])
def test_a_pose_from_the_future_is_refused(make_loop, age_s):
    rig = make_loop()
    assert not rig.see(age_s=age_s)
    assert rig.loop.refused_poses == 1
    braked(rig.tick(sees=False), "no_pose")


def test_a_pose_received_early_from_a_later_time_brakes_until_that_time(make_loop):
    rig = make_loop()
    rig.hear()
    assert rig.loop.on_odometry(rig.now_s + 0.5, rig.now_s + 0.5, (0.0, 0.0), 0.0, (0.0, 0.0))
    braked(rig.loop.tick(rig.now_s), "clock_backwards")


@pytest.mark.parametrize("step_s", [0.0, -0.01, -50.0])
def test_a_clock_that_does_not_advance_brakes(make_loop, step_s):
    rig = make_loop()
    for _ in range(3):
        rig.tick()
    record = rig.loop.tick(rig.now_s + step_s)
    braked(record, "clock_backwards")
    assert rig.tick().reason == ""


@pytest.mark.parametrize("step_s", [-3600.0, -0.2])
def test_after_a_jump_back_nothing_of_before_counts_and_it_drives_again(make_loop, step_s):
    """It brakes, asks for a pose and for its peers anew, and goes on by the new clock."""
    rig = make_loop(peers=("r1",))
    for _ in range(3):
        rig.tick()
    rig.now_s += step_s
    codes = [rig.loop.tick(rig.now_s + 0.01 * k).reason.partition(":")[0] for k in range(3)]
    assert codes == ["clock_backwards", "clock_backwards", "no_pose"]
    rig.now_s += 0.05
    assert rig.tick().reason == ""


@pytest.mark.parametrize("now_s", [math.nan, math.inf, -math.inf])
def test_a_clock_that_is_no_number_brakes(make_loop, now_s):
    rig = make_loop()
    rig.tick()
    record = rig.loop.tick(now_s)
    assert record.status == "braked"
    assert record.sent_command == (0.0, 0.0)


@pytest.mark.parametrize("name", ROBOTS)
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("where", ["position", "yaw", "velocity", "stamp"])
def test_a_pose_that_is_no_measurement_is_refused(name, bad, where, make_loop):
    rig = make_loop(name)
    size = rig.spec.dimension
    values = {"stamp": rig.now_s, "position": (0.0,) * size, "yaw": 0.0, "velocity": (0.0,) * size}
    values[where] = (0.0,) * (size - 1) + (bad,) if where in ("position", "velocity") else bad
    taken = rig.loop.on_odometry(values["stamp"], rig.now_s, values["position"], values["yaw"], values["velocity"])
    if where == "stamp" and bad == -1e200:
        return
    assert not taken
    assert rig.loop.refused_poses == 1
    braked(rig.tick(sees=False), "no_pose")


@pytest.mark.parametrize(("position", "velocity"), [((0.0,), (0.0, 0.0)), ((0.0, 0.0), (0.0,) * 3)])
def test_a_pose_of_another_dimension_is_refused(make_loop, position, velocity):
    rig = make_loop()
    assert not rig.loop.on_odometry(rig.now_s, rig.now_s, position, 0.0, velocity)


def test_an_old_pose_does_not_replace_a_newer_one(make_loop):
    rig = make_loop()
    assert rig.see(age_s=0.01)
    assert not rig.see(age_s=0.02, position=(3.0, 3.0))
    assert not rig.see(age_s=0.01, position=(3.0, 3.0))
    assert rig.tick(0.01, sees=False).measured_position_world == (0.0, 0.0)


def test_a_policy_that_raises_brakes_and_is_asked_again(make_loop):
    rig = make_loop()
    good = rig.policy.answer

    def fail(signals, hidden):
        raise RuntimeError("no memory")

    rig.tick()
    rig.policy.answer = fail
    rig.tick()
    rig.tick()
    record = rig.tick()
    braked(record, "policy_error")
    assert "no memory" in record.reason
    assert record.hidden_after == record.hidden_before
    braked(rig.tick(), "policy_error")
    rig.policy.answer = good
    assert rig.tick().decided


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_policy_that_answers_no_number_never_gets_through(make_loop, bad):
    """The artefact refuses it already; this is the second net."""
    rig = make_loop()
    rig.policy.answer = lambda signals, hidden: (np.array([0.05, bad]), hidden)
    with np.errstate(all="ignore"):
        braked(rig.tick(), "policy_error")


@pytest.mark.parametrize("answer", [None, 3, np.zeros(3), np.zeros((2, 2)), "text", np.array([None, 1.0])])
def test_a_policy_that_answers_nonsense_brakes(make_loop, answer):
    rig = make_loop()
    rig.policy.answer = lambda signals, hidden: (answer, hidden)
    record = rig.tick()
    assert record.status == "braked"
    assert record.sent_command == (0.0, 0.0)
    record.encode()


def test_whatever_breaks_inside_ends_in_a_brake(make_loop, monkeypatch):
    rig = make_loop()
    rig.tick()
    monkeypatch.setattr(rig.loop._peers, "table", lambda now_s: 1 / 0)
    record = rig.tick()
    braked(record, "internal_error")
    assert "ZeroDivisionError" in record.reason


def test_the_announcement_is_the_stopping_point_and_the_velocity_that_was_let_through(make_loop):
    rig = make_loop()
    rig.policy.answer = lambda signals, hidden: (np.array([0.03, 0.04]), hidden)
    record = rig.tick()
    message = rig.loop.announcement(rig.now_s + 0.001)
    assert message.control_point_world == record.control_point_world
    assert message.control_velocity_world == record.shielded_world
    assert message.position_world == record.estimate_position_world
    assert message.stamp_s == rig.now_s + 0.001
    assert message.sample_age_s == pytest.approx(0.021)
    assert message.contract == rig.policy.contract.contract_hash


def test_a_brake_is_announced_as_standing(make_loop):
    rig = make_loop()
    rig.tick()
    rig.policy.answer = lambda signals, hidden: 1 / 0
    for _ in range(3):
        record = rig.tick()
    braked(record, "policy_error")
    assert rig.loop.announcement(rig.now_s).control_velocity_world == (0.0, 0.0)


def test_the_announcement_echoes_what_was_heard_when_the_tick_began(make_loop):
    """Regression: an echo heard after the tick would make what it says look younger than it is."""
    rig = make_loop()
    rig.tick()
    before = rig.loop.announcement(rig.now_s)
    rig.hear()
    assert rig.loop.announcement(rig.now_s).echoes == before.echoes
    rig.tick(hears=False)
    assert rig.loop.announcement(rig.now_s).echoes["r1"][1] > before.echoes["r1"][1]


def test_sequence_numbers_of_announcements_grow(make_loop):
    rig = make_loop()
    sequences = []
    for _ in range(3):
        rig.tick()
        sequences.append(rig.loop.announcement(rig.now_s).sequence)
    assert sequences == [1, 2, 3]


def test_the_command_is_what_the_shield_let_through(make_loop):
    """A policy that drives straight into a peer: the shield stands between."""
    rig = make_loop(at=(1.7, 2.0))
    rig.policy.answer = lambda signals, hidden: (np.array([0.2, 0.0]), hidden)
    record = rig.tick()
    assert record.status == "projected"
    assert record.shielded_world[0] < 0.2
    assert record.change_m_s == pytest.approx(math.dist(record.nominal_world, record.shielded_world))


FLOATS = st.floats(allow_nan=True, allow_infinity=True)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(200))
@given(data=st.data())
def test_whatever_arrives_a_tick_never_raises_and_never_sends_what_is_not_finite(make_loop, data):
    """Random poses, echoes, policies and clocks: the record can always be sent, unless time is no number."""
    rig = make_loop()
    for _ in range(data.draw(st.integers(1, 6))):
        rig.now_s += data.draw(st.sampled_from([0.033, 0.0, -0.5, 0.2, 1e-9]))
        if data.draw(st.booleans()):
            rig.loop.on_odometry(
                data.draw(st.one_of(st.just(rig.now_s - 0.01), FLOATS)),
                rig.now_s,
                (data.draw(FLOATS), 0.0),
                data.draw(FLOATS),
                (data.draw(FLOATS), data.draw(FLOATS)),
            )
        else:
            rig.see(velocity=(data.draw(st.floats(-1, 1)), data.draw(st.floats(-9, 9))))
        rig.hear(point=(data.draw(st.floats(-1e307, 1e307)), 0.0), echo_s=rig.now_s - 0.01)
        answer = np.array([data.draw(FLOATS), data.draw(st.floats(-1, 1))])
        rig.policy.answer = lambda signals, hidden, answer=answer: (answer, hidden)
        with np.errstate(all="ignore"):
            record = rig.loop.tick(rig.now_s)
        assert all(map(math.isfinite, record.sent_command))
        assert (record.status == "braked") == bool(record.reason)
        if record.status == "braked":
            assert record.sent_command == (0.0, 0.0)
        assert TickRecord.decode(record.encode()) == record
        announcement = rig.loop.announcement(rig.now_s)
        if announcement is not None:
            announcement.encode()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_memory_that_is_not_finite_does_not_stay_in_the_policy(make_loop, bad):
    rig = make_loop()
    rig.policy.answer = lambda signals, hidden: (np.array([0.05, 0.0]), np.full_like(hidden, bad))
    record = rig.tick()
    assert record.status == "braked"
    assert record.reason.startswith("policy_error")
    assert record.hidden_after == record.hidden_before
