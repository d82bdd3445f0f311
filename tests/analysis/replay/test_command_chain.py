"""Every change of one message on a command's way contradicts the topic before it; the unchanged way does not."""

from dataclasses import replace

import numpy as np
import pytest
from tests.analysis.replay.driven_run import driven

from testudo_analysis.replay.command_chain import compare_chain
from testudo_analysis.replay.link_findings import LINKS
from testudo_runs.tracks import CommandTrack


@pytest.fixture(scope="module")
def run(recorded):
    """Return a run in which guards and drivers of this project passed the commands on."""
    return driven(recorded)


def with_row(track, row, **changes):
    """Return the track with one other row."""
    columns = {name: getattr(track, name).copy() for name in ("stamp_s", "received_s", "command", "yaw_rate")}
    for name, change in changes.items():
        columns[name][row] += change
    return CommandTrack(**columns)


def taken(track, rows):
    return CommandTrack(track.stamp_s[rows], track.received_s[rows], track.command[rows], track.yaw_rate[rows])


def moving(track):
    """Return a row in the middle in which the robot drives."""
    rows = np.flatnonzero(np.abs(track.command[:, 0]) > 0.02)
    return int(rows[len(rows) // 2])


def test_the_way_of_an_honest_run_is_whole(run):
    chain = compare_chain(run)
    assert chain.deviations == ()
    assert chain.passed
    assert set(chain.compared) == set(LINKS)
    assert min(chain.compared.values()) > 100


CHANGES = {
    "changed": lambda track, row: with_row(track, row, command=(0.01, 0.0)),
    "missing": lambda track, row: taken(track, np.delete(np.arange(len(track.stamp_s)), row)),
    "inserted": lambda track, row: taken(track, np.insert(np.arange(len(track.stamp_s)), row, row)),
    "moved": lambda track, row: with_row(track, row, received_s=0.2),
}


@pytest.mark.parametrize("topic", ["commanded", "sent", "applied"])
@pytest.mark.parametrize("kind", CHANGES)
def test_one_change_of_a_command_is_named(run, topic, kind):
    tracks = getattr(run, topic)
    changed = replace(run, **{topic: {**tracks, "r1": CHANGES[kind](tracks["r1"], moving(tracks["r1"]))}})
    chain = compare_chain(changed)
    assert not chain.passed
    assert {one.robot for one in chain.deviations} == {"r1"}
    assert chain.sentences


@pytest.mark.parametrize("topic", ["commanded", "sent", "applied"])
def test_all_commands_rewritten_by_a_factor_contradict_the_topic_before(run, topic):
    """Regression: every cmd_vel of a bag could be halved, and re-inference passed."""
    halved = {name: replace(track, command=0.5 * track.command) for name, track in getattr(run, topic).items()}
    assert not compare_chain(replace(run, **{topic: halved})).passed


def ended(run):
    """Return the run as lock-step ends it: time stands still, the guard reports, then the policy sends its brake."""
    name = run.fleet.robots[0].name
    policy, last = run.commanded[name], run.guard[name][-1]
    stamp_s = float(policy.stamp_s[-1])
    refused, since_s = last.counts[1], stamp_s - last.stamp_s + last.since_s
    counts = (len(policy.stamp_s), refused, *last.counts[2:])
    report = last._replace(stamp_s=stamp_s, received_s=stamp_s, since_s=since_s, counts=counts)
    braked = {topic: with_brake(getattr(run, topic)[name], stamp_s) for topic in ("commanded", "sent")}
    reports = tuple(one for one in run.guard[name] if one.stamp_s < stamp_s)
    return replace(
        run,
        guard={**run.guard, name: (*reports, report)},
        **{topic: {**getattr(run, topic), name: track} for topic, track in braked.items()},
    )


def with_brake(track, stamp_s):
    """Return the track with a zero command behind its last one."""
    row = [np.append(column, stamp_s) for column in (track.stamp_s, track.received_s)]
    return CommandTrack(*row, np.vstack([track.command, np.zeros(2)]), np.append(track.yaw_rate, 0.0))


def test_the_brake_at_the_end_of_a_lock_step_run_comes_after_the_last_report_of_its_stamp(run):
    """Regression: a report that fell on the last tick made "more commands than the guard received" of every robot."""
    assert compare_chain(ended(run)).sentences == ()


@pytest.mark.parametrize("kind", CHANGES)
def test_the_brake_at_the_end_excuses_no_other_command(run, kind):
    whole = ended(run)
    changed = CHANGES[kind](whole.commanded["r0"], moving(whole.commanded["r0"]))
    assert not compare_chain(replace(whole, commanded={**whole.commanded, "r0": changed})).passed


def test_a_second_brake_at_the_end_and_a_command_of_another_size_there_are_found(run):
    whole = ended(run)
    policy = whole.commanded["r0"]
    twice = with_brake(policy, float(policy.stamp_s[-1]))
    for track in (twice, with_row(policy, -1, command=(0.01, 0.0))):
        assert not compare_chain(replace(whole, commanded={**whole.commanded, "r0": track})).passed


def test_two_brakes_at_the_end_are_found_without_the_reports_of_a_guard(run):
    """Regression: every zero command at the last stamp was excused, however many there were."""
    whole = replace(ended(run), guard={})
    policy = whole.commanded["r0"]
    twice = with_brake(policy, float(policy.stamp_s[-1]))
    assert not compare_chain(whole).sentences
    found = compare_chain(replace(whole, commanded={**whole.commanded, "r0": twice}))
    assert [one.kind for one in found.deviations if one.link == "decision"] == ["inserted"]


def with_report(run, change, at=0.6):
    reports = [*run.guard["r0"]]
    change(reports, int(at * len(reports)))
    return replace(run, guard={**run.guard, "r0": tuple(reports)})


@pytest.mark.parametrize(
    "changes",
    [
        {"code": "silence"},
        {"counts": (10, 5, 0, 0)},
        {"counts": (10**6, 0, 0, 0)},
        {"stamp_s": 1.0},
        {"since_s": 0.0},
        {"sentence": "all is well"},
        {"level": 1},
        {"name": "r1: guard"},
        {"hardware": "r1"},
        {"life": "another"},
    ],
)
def test_a_changed_report_of_the_guard_is_found(run, changes):
    def change(reports, row):
        reports[row] = reports[row]._replace(**changes)

    assert not compare_chain(with_report(run, change)).passed


def test_a_missing_repeated_or_moved_report_of_the_guard_is_found(run):
    def swap(reports, row):
        reports[row : row + 2] = reversed(reports[row : row + 2])

    for change in (lambda found, row: found.pop(row), lambda found, row: found.insert(row, found[row]), swap):
        assert not compare_chain(with_report(run, change)).passed


def test_a_missing_repeated_or_moved_tick_is_found(run):
    for rows in ([0, 2], [0, 1, 1, 2], [1, 0, 2]):
        ticks = [*run.ticks["r0"]]
        ticks[60:63] = [ticks[60 + row] for row in rows]
        assert not compare_chain(replace(run, ticks={**run.ticks, "r0": tuple(ticks)})).passed


def test_messages_that_the_recorder_lost_in_real_time_are_named_and_no_failure(run):
    """Under load it loses messages of every topic; what is there must still agree."""
    keep = np.random.default_rng(0).random(len(run.sent["r0"].stamp_s)) > 0.1
    lossy = replace(
        run,
        info={**run.info, "lock_step": False},
        commanded={**run.commanded, "r0": taken(run.commanded["r0"], keep[: len(run.commanded["r0"].stamp_s)])},
        sent={**run.sent, "r0": taken(run.sent["r0"], keep)},
    )
    chain = compare_chain(lossy)
    assert chain.passed
    assert {one.kind for one in chain.deviations} == {"missing"}
    halved = {name: replace(track, command=0.5 * track.command) for name, track in lossy.sent.items()}
    assert not compare_chain(replace(lossy, sent=halved)).passed


def test_a_run_without_these_topics_is_compared_as_far_as_it_goes(recorded):
    chain = compare_chain(replace(recorded, info={"lock_step": True}))
    assert chain.passed
    assert chain.compared == {}
