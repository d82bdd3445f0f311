"""An honest record infers its commands again; a record with one changed number does not."""

import json
import math
from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pytest
from tests.sim.recorded_run import record_run

from testudo_analysis.commands import replay as verb
from testudo_analysis.replay import (
    ALTERABLE,
    TOLERANCE,
    alter,
    mutations_detected,
    reinfer,
)
from testudo_analysis.replay.input_sources import Announcements, check_goals, check_neighbours, check_poses
from testudo_analysis.replay.reinference_checks import FieldErrors
from testudo_analysis.replay.tick_replay import AFTER_A_LOSS
from testudo_deploy.contract.messages import TickRecord
from testudo_deploy.fleet.policy_groups import Follow
from testudo_deploy.monitoring.assumption_monitor import AssumptionMonitor
from testudo_deploy.shield.caution import Caution
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_runs.run_reader import Track


def with_tick(run, robot, sequence, **changes):
    """Return the run with some numbers of one tick changed."""
    ticks = [replace(tick, **changes) if tick.sequence == sequence else tick for tick in run.ticks[robot]]
    return replace(run, ticks={**run.ticks, robot: tuple(ticks)})


def without_ticks(run, robot, sequences):
    kept = tuple(tick for tick in run.ticks[robot] if tick.sequence not in sequences)
    return replace(run, ticks={**run.ticks, robot: kept})


def part(run, first, last):
    """Return the run with the ticks from the first to the last sequence number alone."""
    ticks = {name: tuple(t for t in items if first <= t.sequence <= last) for name, items in run.ticks.items()}
    return replace(run, ticks=ticks)


@pytest.fixture(scope="module")
def passage(recorded):
    """Return the part in which the shield acts and a robot loses its odometry: less to infer again."""
    return part(recorded, 50, 110)


def through_json(run):
    """Return the run as it is after its ticks went through their envelope."""
    ticks = {name: tuple(TickRecord.decode(tick.encode()) for tick in items) for name, items in run.ticks.items()}
    return replace(run, ticks=ticks)


@pytest.mark.parametrize(
    ("name", "hidden_size"), [("gritsbot_x", 0), ("gritsbot_x", 4), ("crazyflie_2x", 4), ("robomaster_s1", 4)]
)
def test_an_honest_run_infers_its_commands_again(make_artefact, name, hidden_size):
    artefact = make_artefact(name, hidden_size)
    spec = load_robot(name)
    period = spec.control_period_s
    run = record_run(artefact, spec, seconds=1.5, noise_m=0.002, lag=1.2, delay=0.8)
    result = reinfer(through_json(run), artefact)
    assert result.error <= TOLERANCE
    assert result.passed
    for robot in result.robots:
        assert (robot.lost, robot.unverified) == (0, 0)
        assert robot.reinferred + sum(robot.skipped.values()) == robot.ticks == round(1.5 / period)
        assert robot.decisions == -(-robot.reinferred // 10)
        assert all(check.compared for check in robot.fields)


def test_the_run_used_here_has_a_shield_that_acts(recorded):
    ticks = [tick for ticks in recorded.ticks.values() for tick in ticks]
    assert sum(tick.status == "projected" for tick in ticks) > 20
    assert sum(tick.status == "passed" for tick in ticks) > 20


def test_a_part_of_an_honest_run_infers_its_commands_too(passage, make_artefact):
    """The control of all the parts with one changed number below."""
    result = reinfer(passage, make_artefact("gritsbot_x"))
    assert result.passed
    assert result.error <= TOLERANCE


def test_braked_ticks_are_skipped_by_reason_and_must_have_sent_zero(recorded, passage, make_artefact):
    artefact = make_artefact("gritsbot_x")
    first = reinfer(recorded, artefact).robots[0]
    assert first.skipped["stale_pose"] > 0
    assert first.skipped["peer_unheard"] > 0
    braked = next(t for t in recorded.ticks["r0"] if t.reason == "stale_pose")
    moving = with_tick(passage, "r0", braked.sequence, sent_command=(0.05, 0.0))
    assert not reinfer(moving, artefact).passed


@pytest.mark.parametrize("field", ALTERABLE)
def test_one_altered_input_is_caught(passage, make_artefact, field):
    altered, robot, sequence = alter(passage, field, 1e-3)
    (before,) = (t for t in passage.ticks[robot] if t.sequence == sequence)
    (after,) = (t for t in altered.ticks[robot] if t.sequence == sequence)
    changed = [f.name for f in fields(before) if getattr(before, f.name) != getattr(after, f.name)]
    assert changed == [field]
    result = reinfer(altered, make_artefact("gritsbot_x"))
    assert result.error > TOLERANCE
    assert not result.passed
    assert [check.robot for check in result.robots if check.error > TOLERANCE] == [robot]


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("measured_velocity", lambda v: (v[0] + 1e-3, v[1])),
        ("pending_time_s", lambda v: (v[0] + 1e-3, *v[1:])),
        ("pending_commands", lambda v: ((v[0][0] + 1e-3, v[0][1]), *v[1:])),
        ("control_point_world", lambda v: (v[0], v[1] + 1e-3)),
        ("neighbour_control_velocity_world", lambda v: ((v[0][0] + 1e-3, v[0][1]), *v[1:])),
        ("neighbour_valid", lambda v: (False,) * len(v)),
        ("hidden_after", lambda v: (v[0] + 1e-3, *v[1:])),
        ("nominal_world", lambda v: (v[0] + 1e-3, v[1])),
        ("shielded_world", lambda v: (v[0], v[1] - 1e-3)),
        ("sent_command", lambda v: (v[0], v[1] + 1e-3)),
        ("decided", lambda v: not v),
        ("neighbour_age_s", lambda v: v[:1]),
        ("estimate_position_world", lambda _: None),
    ],
)
def test_every_other_number_that_counts_is_caught_too(passage, make_artefact, field, change):
    near = min(
        (t for t in passage.ticks["r1"] if t.status == "projected" and not t.decided),
        key=lambda t: abs(t.sequence - 90),
    )
    alone = replace(passage, ticks={"r1": passage.ticks["r1"]})
    spoilt = with_tick(alone, "r1", near.sequence, **{field: change(getattr(near, field))})
    assert not reinfer(spoilt, make_artefact("gritsbot_x")).passed


def test_lost_ticks_leave_the_rest_provable(recorded, make_artefact):
    artefact = make_artefact("gritsbot_x")
    alone = replace(recorded, ticks={"r1": recorded.ticks["r1"]})
    result = reinfer(without_ticks(alone, "r1", range(52, 57)), artefact)
    check = result.robots[0]
    assert check.lost == 5
    assert check.skipped[AFTER_A_LOSS] > 0
    assert result.error <= TOLERANCE


def test_lost_announcements_leave_inputs_unverified_and_not_wrong(passage, make_artefact):
    artefact = make_artefact("gritsbot_x")
    kept = tuple(m for m in passage.announcements["r2"] if not 80 <= m.sequence < 90)
    run = replace(passage, announcements={**passage.announcements, "r2": kept})
    result = reinfer(run, artefact)
    assert result.passed
    assert [robot.unverified for robot in result.robots] == [10, 10, 0]


@pytest.mark.parametrize(("lost", "wrong"), [((), True), ((4,), False), ((2,), False), ((6,), False), ((8,), True)])
def test_of_a_peer_that_stands_an_age_may_be_that_of_a_word_that_was_lost(recorded, lost, wrong):
    """Sequences 3 to 5 announce the same; the tick's age is that of none that is there, and 1 and 9 are elsewhere."""
    tick = next(tick for tick in recorded.ticks["r0"] if len(tick.neighbour_age_s) == 2)
    slot = tick.neighbour_names.index("r2")
    base = next(m for m in recorded.announcements["r2"] if "r0" in m.echoes)
    told = [
        replace(
            base,
            sequence=k,
            echoes={"r0": ("epoch", tick.stamp_s - 0.1 * k, k)},
            control_point_world=tuple(x + (not 3 <= k <= 5) * (1.0 + k) for x in base.control_point_world),
        )
        for k in range(1, 10)
        if k not in lost
    ]

    def column(values, value):
        return tuple(value if k == slot else old for k, old in enumerate(values))

    heard = replace(
        tick,
        neighbour_control_point_world=column(tick.neighbour_control_point_world, base.control_point_world),
        neighbour_control_velocity_world=column(tick.neighbour_control_velocity_world, base.control_velocity_world),
        neighbour_age_s=column(tick.neighbour_age_s, 0.45),
    )
    errors = FieldErrors({"neighbours": ""})
    unverified = check_neighbours(errors, "r0", [heard], {"r2": Announcements.of(told)})
    [check] = errors.checks()
    assert (unverified, check.compared) == ((0, 1) if wrong else (1, 0))
    assert (check.error > TOLERANCE) == wrong


def test_a_restarted_process_counts_from_zero_again(make_artefact):
    artefact = make_artefact("gritsbot_x")
    first = record_run(artefact, load_robot("gritsbot_x"), seconds=1.0)
    ticks = {
        name: tuple(
            sorted(
                (*items, *(replace(t, stamp_s=t.stamp_s + 50.0) for t in items)),
                key=lambda t: t.sequence,
            )
        )
        for name, items in first.ticks.items()
    }
    result = reinfer(replace(first, ticks=ticks, announcements={}), artefact)
    memory = next(check for check in result.fields if check.name == "memory")
    assert memory.error == 0.0
    assert memory.compared == result.ticks


def test_another_policy_does_not_infer_the_commands(passage, make_artefact):
    assert not reinfer(passage, make_artefact("gritsbot_x", 0)).passed


def test_a_run_without_a_command_proves_nothing(recorded, make_artefact):
    braked = {name: tuple(t for t in ticks if t.reason) for name, ticks in recorded.ticks.items()}
    result = reinfer(replace(recorded, ticks=braked), make_artefact("gritsbot_x"))
    assert result.error <= TOLERANCE
    assert not result.passed
    with pytest.raises(TestudoError, match="no tick record"):
        reinfer(replace(recorded, ticks={}), make_artefact("gritsbot_x"))


def test_the_negative_control_runs_over_all_inputs(passage, make_artefact):
    found = mutations_detected(passage, make_artefact("gritsbot_x"), amount=1e-3)
    assert [item.field for item in found] == list(ALTERABLE)
    assert all(item.caught and item.error > TOLERANCE for item in found)


def test_values_for_json_hold_no_infinity(passage, make_artefact):
    spoilt = with_tick(passage, "r0", 100, estimate_yaw=None)
    values = reinfer(spoilt, make_artefact("gritsbot_x")).to_dict()
    assert json.loads(json.dumps(values, allow_nan=False))["error"] is None
    assert values["passed"] is False


@pytest.mark.parametrize("changes", [{"pose_stamp_s": None}, {"neighbour_age_s": ()}])
def test_a_tick_whose_numbers_are_missing_deviates_infinitely(passage, make_artefact, changes):
    """It cannot have been computed; the ticks around it are inferred all the same."""
    result = reinfer(part(with_tick(passage, "r0", 100, **changes), 95, 105), make_artefact("gritsbot_x"))
    sent = next(check for check in result.robots[0].fields if check.name == "sent")
    assert (sent.error, sent.sequence) == (math.inf, 100)
    assert result.robots[1].error <= TOLERANCE


@pytest.fixture
def on_disk(passage, make_artefact, monkeypatch):
    """Return a part of the recorded run with its policy, read instead of a folder."""
    artefact = make_artefact("gritsbot_x")
    run = replace(passage, folder=artefact.path.parent)
    monkeypatch.setattr(verb, "read_run", lambda *_: run)
    return run


def test_the_verb_tells_by_its_status(on_disk, tmp_path, capsys):
    file = tmp_path / "replay.json"
    assert verb.replay(tmp_path, json=file) == 0
    shown = capsys.readouterr().out
    values = json.loads(file.read_text())
    assert values["reinference"]["passed"] is True
    assert values["open_loop"]["reference"] == "truth"
    assert np.isfinite(values["open_loop"]["rows"][0]["errors"]["p99"])
    assert "passed" in shown
    assert "stale_pose" in shown
    assert verb.replay(tmp_path, mode="reinference", alter=True, json=file) == 1
    values = json.loads(file.read_text())
    assert "open_loop" not in values
    assert values["altered"] is True
    assert values["reinference"]["passed"] is False


def test_goals_of_a_follower_are_those_that_its_leader_announced_and_a_lost_one_is_no_error():
    """And a goal that is farther from all of them than the leader went meanwhile is an error."""
    leader = [SimpleNamespace(sequence=k, position_world=(0.01 * k, 0.0)) for k in (0, 1, 2, 5, 6)]
    for goal, deviates, unverified in (
        ((0.02, 0.0, 1.0), False, 0),
        ((0.034, 0.0, 1.0), False, 1),
        ((0.2, 0.0, 1.0), True, 0),
    ):
        errors = FieldErrors({"goal": "announced"})
        found = check_goals(
            errors,
            [SimpleNamespace(sequence=0, goal_world=goal)],
            (0.0, 0.0, 1.0),
            leader,
            Follow("g0", (0.0, 0.0, 1.0)),
        )
        assert found == unverified
        assert any(check.error > 1e-6 for check in errors.checks()) == deviates


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_deviation_that_is_not_finite_counts_as_infinite(bad):
    errors = FieldErrors({"sent": "again"})
    errors.add("sent", 7, (0.0, bad), (0.0, 0.0))
    errors.add("sent", 8, (0.0, 0.1), (0.0, 0.0))
    [check] = errors.checks()
    assert (check.error, check.sequence) == (math.inf, 7)


def test_a_pose_deviates_by_its_difference_from_odometry():
    stamps = np.array([1.0, 1.1])
    odometry = Track(stamps, stamps, np.array([[0.0, 0.0], [0.1, 0.0]]), np.zeros(2), np.zeros((2, 2)))
    used = {"measured_velocity": (0.0, 0.0), "pose_stamp_s": 1.1}
    for place, yaw, error in (((0.1, 0.0), 2 * math.pi, 0.0), ((0.1, 0.02), 0.0, 0.02), ((0.1, 0.0), -0.03, 0.03)):
        errors = FieldErrors({"pose": "odometry"})
        tick = SimpleNamespace(sequence=0, measured_position_world=place, measured_yaw=yaw, **used)
        assert check_poses(errors, [tick], odometry) == 0
        assert errors.checks()[0].error == pytest.approx(error, abs=1e-12)


def test_a_memory_that_the_tick_before_did_not_leave_is_caught(recorded, make_artefact):
    """The memory before and after a held tick are both changed: they agree with each other only."""
    ticks = recorded.ticks["r1"]
    held = next(tick.sequence for tick in ticks[60:] if not tick.decided and not tick.reason)

    def changed(tick):
        hidden = tuple(value + 0.01 for value in tick.hidden_before)
        return replace(tick, hidden_before=hidden, hidden_after=hidden) if tick.sequence == held else tick

    near = tuple(changed(tick) for tick in ticks if abs(tick.sequence - held) <= 12)
    result = reinfer(replace(recorded, ticks={"r1": near}), make_artefact("gritsbot_x"))
    assert next(check for check in result.fields if check.name == "memory").error == pytest.approx(0.01)
    assert not result.passed


def test_a_single_lost_tick_is_counted(recorded, make_artefact):
    near = tuple(tick for tick in recorded.ticks["r1"] if tick.sequence != 52 and tick.sequence < 70)
    check = reinfer(replace(recorded, ticks={"r1": near}), make_artefact("gritsbot_x")).robots[0]
    assert check.lost == 1
    assert check.error <= TOLERANCE


def test_a_robot_outside_of_its_file_is_inferred_with_its_lower_speed(make_artefact, monkeypatch):
    """What the monitor found is recorded, so that its memory is not needed; another number, or none, is caught."""
    caution = Caution(0.07, 0.02)
    monkeypatch.setattr(AssumptionMonitor, "_conclude", lambda monitor: setattr(monitor, "_found", caution))
    artefact = make_artefact("gritsbot_x")
    run = record_run(artefact, load_robot("gritsbot_x"), seconds=1.5, noise_m=0.002)
    careful = [tick for tick in run.ticks["r0"] if tick.caution and tick.status != "braked"]
    assert len(careful) > 20
    assert reinfer(through_json(run), artefact).passed
    tick = max(careful, key=lambda tick: np.linalg.norm(tick.shielded_world))
    near = part(run, tick.sequence - 12, tick.sequence + 1)
    assert reinfer(near, artefact).passed
    for wrong in ((), (0.05, 0.02)):
        assert not reinfer(with_tick(near, "r0", tick.sequence, caution=wrong), artefact).passed
