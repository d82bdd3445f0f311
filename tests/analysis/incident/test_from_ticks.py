"""Incidents that the control loops' own records tell: found where a run was spoilt, and not in the run as it was."""

from dataclasses import replace

import numpy as np
import pytest
from tests.sim.recorded_run import record_run

from testudo_analysis.incident import IncidentKind, find_incidents
from testudo_analysis.incident.tick_incidents import root_code
from testudo_analysis.replay.replayed_team import one_team
from testudo_hardware.spec import load_robot
from testudo_runs.alignment import prepare_run
from testudo_runs.run_reader import PlantEvent

FROM, TO = 60, 100
"""Ticks that are spoilt."""


@pytest.fixture(scope="module")
def artefact(make_artefact):
    return make_artefact("gritsbot_x")


@pytest.fixture(scope="module")
def clean(artefact):
    run = record_run(artefact, load_robot("gritsbot_x"), seconds=5.0)
    for name in run.robots:  # what computing took here is another machine's business
        run = spoilt(run, name, lambda tick: replace(tick, duration_s=0.002), 0, 10_000)
    return run


def found(run, artefact):
    return find_incidents(one_team(replace(prepare_run(run), contract=artefact.contract)))


def spoilt(run, robot, change, begin=FROM, end=TO):
    """Return the run with ticks of a robot changed."""
    ticks = [change(tick) if begin <= tick.sequence < end else tick for tick in run.ticks[robot]]
    return replace(run, ticks={**run.ticks, robot: tuple(tick for tick in ticks if tick is not None)})


def braked(reason):
    return lambda tick: replace(tick, reason=reason, status="braked", shielded_world=None)


def test_a_run_in_which_nothing_went_wrong_has_no_incidents(clean, artefact):
    assert found(clean, artefact) == []


def test_lost_odometry_is_a_stop_by_its_code_and_the_silence_is_named(artefact):
    run = record_run(artefact, load_robot("gritsbot_x"), seconds=5.0, silent=((0, 60, 80),))
    incident = next(item for item in found(run, artefact) if item.kind is IncidentKind.STOP)
    assert (incident.robots, incident.code) == (("r0",), "stale_pose")
    assert incident.begin_s == pytest.approx(62 * 0.033, abs=0.1)
    assert "its pose source sent nothing for 0.7" in incident.cause


def test_a_stop_that_is_held_goes_back_to_its_first_code(clean, artefact):
    def change(tick):
        return braked("policy_error: boom" if tick.sequence == FROM else "holding: policy_error: boom")(tick)

    (incident,) = found(spoilt(clean, "r1", change), artefact)
    assert (incident.kind, incident.code) == (IncidentKind.STOP, "policy_error")
    assert incident.value == pytest.approx((TO - FROM - 1) * 0.033, abs=1e-6)
    assert "no finite command" in incident.cause


def test_a_stop_is_named_after_what_held_it_longest_and_tells_what_came_first(clean, artefact):
    def change(tick):
        return braked("stale_pose" if tick.sequence < FROM + 5 else "fault: no_response: blocked")(tick)

    (incident,) = found(spoilt(clean, "r1", change), artefact)
    assert incident.code == "no_response"
    assert incident.what.endswith("after stale_pose")
    assert "wheel blocked" in incident.cause


@pytest.mark.parametrize("reason", ["idle", "armed"])
def test_an_operators_stop_is_no_incident(clean, artefact, reason):
    assert found(spoilt(clean, "r1", braked(reason)), artefact) == []


def test_a_brake_of_the_guard_is_told_with_the_guards_own_reason(clean, artefact):
    (incident,) = found(spoilt(clean, "r1", braked("holding: guard_brakes: second_publisher")), artefact)
    assert incident.kind is IncidentKind.GUARD_BRAKE
    assert "another node publishes commands" in incident.what


def test_a_robot_that_never_drove_says_why(clean, artefact):
    whole = spoilt(clean, "r2", braked("too_close: r1"), 0, 10_000)
    incident = next(item for item in found(whole, artefact) if item.kind is IncidentKind.STOP)
    assert incident.what == "r2 never drove: too_close"
    assert "move one of them" in incident.cause


@pytest.mark.parametrize(
    ("reason", "before", "code"),
    [
        ("stale_pose", "", "stale_pose"),
        ("holding: stale_pose", "", "stale_pose"),
        ("holding", "pose_jump", "pose_jump"),
        ("fault: brakes_weak: 3 mm", "", "brakes_weak"),
        ("armed", "", "armed"),
        ("stopped: estop", "", "estop"),
    ],
)
def test_the_root_of_a_reason(reason, before, code):
    assert root_code(reason, before) == code


def deaf(peer, age_s):
    """Return a change that makes what a robot knows of a peer old."""

    def change(tick):
        slot = tick.neighbour_names.index(peer)
        ages = list(tick.neighbour_age_s)
        ages[slot] = age_s
        return replace(tick, neighbour_age_s=tuple(ages))

    return change


def test_old_knowledge_of_a_peer_is_found_and_lost_messages_are_named(clean, artefact):
    (incident,) = found(spoilt(clean, "r0", deaf("r1", 0.9)), artefact)
    assert (incident.kind, incident.robots, incident.value) == (IncidentKind.STALE_PEER, ("r0", "r1"), 0.9)
    assert "messages were lost in one direction: r1 sent" in incident.cause
    assert found(spoilt(clean, "r0", deaf("r1", 0.3)), artefact) == []


def test_old_knowledge_both_ways_is_a_link_that_is_down_both_ways(clean, artefact):
    run = spoilt(spoilt(clean, "r0", deaf("r1", 0.9)), "r1", deaf("r0", 0.8))
    first, second = found(run, artefact)
    assert "lost in both directions" in first.cause
    assert "lost in both directions" in second.cause


def test_a_peer_whose_process_was_gone_is_told_from_lost_messages(clean, artefact):
    begin, end = (clean.ticks["r1"][k].stamp_s for k in (FROM, TO))
    run = spoilt(spoilt(clean, "r0", deaf("r1", 0.9)), "r1", lambda tick: None, FROM - 2, TO + 2)
    said = tuple(message for message in clean.announcements["r1"] if not begin <= message.stamp_s <= end)
    run = replace(run, announcements={**run.announcements, "r1": said})
    stale = next(item for item in found(run, artefact) if item.kind is IncidentKind.STALE_PEER)
    assert "the process of r1 had ended" in stale.cause


def test_a_peer_that_did_not_know_where_it_was_told_nothing(clean, artefact):
    begin, end = (clean.ticks["r1"][k].stamp_s for k in (FROM, TO))
    said = tuple(message for message in clean.announcements["r1"] if not begin <= message.stamp_s <= end)
    run = spoilt(spoilt(clean, "r0", deaf("r1", 0.9)), "r1", braked("no_pose"))
    run = replace(run, announcements={**run.announcements, "r1": said})
    stale = next(item for item in found(run, artefact) if item.kind is IncidentKind.STALE_PEER)
    assert "r1 sent no state: r1 braked" in stale.cause


def test_late_ticks_are_found_and_a_busy_computer_told_from_one_slow_process(clean, artefact):
    def late(tick):
        return replace(tick, late_s=0.03)

    (alone,) = found(spoilt(clean, "r0", late, 70, 73), artefact)
    assert alone.kind is IncidentKind.LATE_TICK
    assert alone.what.startswith("3 ticks of r0 began up to 30 ms late")
    assert "its process did not run in time" in alone.cause
    slow, *_ = found(spoilt(clean, "r0", lambda tick: replace(tick, late_s=0.03, duration_s=0.05), 70, 73), artefact)
    assert "its own computation took up to 50 ms" in slow.cause
    both = found(spoilt(spoilt(clean, "r0", late, 70, 73), "r1", late, 70, 73), artefact)
    assert [item.kind for item in both] == [IncidentKind.LATE_TICK] * 2
    assert "the computer was busy: r1 was late" in both[0].cause


def test_ticks_that_are_missing_count_as_late(clean, artefact):
    incidents = found(spoilt(clean, "r0", lambda tick: None, 70, 74), artefact)
    assert [item.kind for item in incidents] == [IncidentKind.LATE_TICK]
    assert incidents[0].value == pytest.approx(4 * 0.033, abs=1e-6)


def test_contacts_that_the_plant_alone_has_seen_are_incidents(clean, artefact):
    stamp = clean.ticks["r0"][80].stamp_s
    events = (
        PlantEvent(stamp - 1.0, "state", {"contacts": 0, "separation_m": 0.3, "closest": ["r0", "r1"]}),
        PlantEvent(stamp, "state", {"contacts": 4, "separation_m": 0.13, "closest": ["r0", "r1"]}),
        PlantEvent(stamp + 0.5, "state", {"contacts": 4, "separation_m": 0.13, "closest": ["r0", "r1"]}),
    )
    (incident,) = found(replace(clean, events=events), artefact)
    assert (incident.kind, incident.robots) == (IncidentKind.CONTACT, ("r0", "r1"))
    assert found(replace(clean, events=events[:1]), artefact) == []


def test_a_contact_after_commands_that_passed_unchecked_says_that_the_shield_did_nothing(clean, artefact):
    def unchecked(tick):
        return replace(tick, status="passed", nominal_world=(0.15, 0.0), shielded_world=(0.15, 0.0))

    run = clean
    for name in clean.robots:
        run = spoilt(run, name, unchecked, 1, 10_000)
    # the truth of one robot moved onto another's way: what the others believed of it does not matter here
    truth = dict(run.truth)
    beside = 0.12 + 0.01 * np.abs(np.linspace(-1, 1, len(truth["r0"].stamp_s)))
    truth["r1"] = replace(truth["r1"], position_world=truth["r0"].position_world + beside[:, None] * [0.0, 1.0])
    run = replace(run, truth=truth, odometry=truth)
    contact = next(item for item in found(run, artefact) if item.kind is IncidentKind.CONTACT)
    assert "the shield changed nothing" in contact.cause
