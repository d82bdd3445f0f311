"""Each kind of incident that poses and commands tell is found where it is, and not in the same run without it."""

from dataclasses import replace

import numpy as np
import pytest
from tests.analysis.incident.stories import SPEC, ahead, driven, meeting, recording, story

from testudo_analysis.incident import IncidentKind, IncidentThresholds, find_incidents
from testudo_analysis.incident.incident import kept_apart_m, spans
from testudo_analysis.replay.replayed_team import commands_from, moment_at, one_team
from testudo_deploy.shield.arena import Arena
from testudo_hardware.errors import TestudoError
from testudo_runs.alignment import prepare


def kinds(told, **changes):
    bounds = replace(IncidentThresholds.of(told), **changes)
    return [incident.kind for incident in find_incidents(told, bounds)]


def only(told):
    (incident,) = find_incidents(told)
    return incident


def test_robots_that_pass_at_a_distance_leave_nothing_to_tell():
    assert kinds(meeting(0.4)) == []


def test_a_contact_is_found_with_its_depth_and_who_drove():
    incident = only(meeting(0.1))
    assert incident.kind is IncidentKind.CONTACT
    assert incident.robots == ("r0", "r1")
    assert incident.value == pytest.approx(0.1, abs=0.005)
    assert incident.begin_s < incident.at_s < incident.end_s
    assert "35 mm of overlap" in incident.what
    assert "r0 drove towards r1 at 0.15 m/s and r1 drove towards r0" in incident.cause


def test_a_small_overlap_of_measured_places_is_a_contact_with_a_probability():
    touching = 2 * meeting(0.1).spec.body_radius_m
    deviation = np.sqrt(2) * meeting(0.1).spec.position_error_m / 3
    graze, pass_by = only(meeting(touching - 0.5 * deviation)), only(meeting(touching + 0.5 * deviation))
    assert graze.kind is IncidentKind.CONTACT
    assert "may have touched" in graze.what
    assert f"probability of contact {graze.probability:.0%}" in graze.what
    assert 0.6 < graze.probability < 0.75  # half a standard deviation: 69 %
    assert pass_by.kind is IncidentKind.NEAR_CONTACT
    assert f"probability of contact {pass_by.probability:.0%}" in pass_by.what
    assert 0.25 < pass_by.probability < 0.4
    assert only(meeting(0.1)).probability > 0.999


def test_a_near_contact_is_one_below_what_the_shield_keeps_apart():
    incident = only(meeting(0.19))
    assert incident.kind is IncidentKind.NEAR_CONTACT
    assert incident.bound == pytest.approx(0.2925 - 0.07, abs=1e-3) == kept_apart_m(meeting(0.19))
    assert kinds(meeting(0.19), near_m=0.18) == []


def test_nothing_is_said_of_the_distance_while_a_robot_is_not_seen():
    whole = meeting(0.1)
    first = whole.robots[0]
    unseen = (first.trajectory.stamp_s > 2.5) & (first.trajectory.stamp_s < 5.8)
    cut = first.trajectory.take(~unseen)
    told = story(replace(first, trajectory=cut, believed=cut), whole.robots[1])
    assert IncidentKind.CONTACT not in kinds(told)
    assert IncidentKind.POSE_GAP in kinds(told)


def test_a_robot_that_touches_a_wall_is_found():
    alone = driven("r0", (0.0, 0.0), 0.0, ahead(0.15)), driven("r1", (0.0, 0.8), 0.0, ahead(0.0))
    incident = next(item for item in find_incidents(story(*alone, arena=Arena((-1.0, -1.0), (1.1, 1.0)))))
    assert incident.kind is IncidentKind.CONTACT
    assert incident.robots == ("r0",)
    assert kinds(story(*alone, arena=Arena((-1.0, -1.0), (1.5, 1.0)))) == []


def moved(robot, begin, end, by):
    """Return the robot with a belief that is off between two times."""
    wrong = (robot.trajectory.stamp_s >= begin) & (robot.trajectory.stamp_s < end)
    place = robot.trajectory.position_world + np.where(wrong[:, None], by, 0.0)
    return replace(robot, believed=replace(robot.trajectory, position_world=place))


@pytest.mark.parametrize(("until", "cause"), [(3.5, "a wrong pose"), (99.0, "a re-localisation")])
def test_a_jump_of_the_pose_is_found_and_told_from_a_re_localisation(until, cause):
    whole = meeting(0.6)
    incident = only(replace(whole, robots=(moved(whole.robots[0], 3.0, until, (0.0, 0.3)), whole.robots[1])))
    assert incident.kind is IncidentKind.POSE_JUMP
    assert incident.value == pytest.approx(0.3, abs=0.01)
    assert cause in incident.cause


def test_a_contact_of_a_robot_that_is_not_where_it_believes_to_be_says_so():
    whole = meeting(0.1)
    told = replace(whole, robots=(moved(whole.robots[0], 1.0, 99.0, (0.0, 0.4)), whole.robots[1]))
    contact = next(item for item in find_incidents(told) if item.kind is IncidentKind.CONTACT)
    assert "r0 was 400 mm from its own estimate" in contact.cause


def test_a_gap_in_the_poses_is_found_and_whether_all_robots_have_it():
    def with_gap(robot):
        kept = (robot.trajectory.stamp_s < 2.0) | (robot.trajectory.stamp_s > 2.6)
        cut = robot.trajectory.take(kept)
        return replace(robot, trajectory=cut, believed=cut)

    first, second = meeting(0.6).robots
    assert "only this robot" in only(story(with_gap(first), second)).cause
    both = find_incidents(story(with_gap(first), with_gap(second)))
    assert [item.kind for item in both] == [IncidentKind.POSE_GAP] * 2
    assert "also r1" in both[0].cause


def test_commands_beyond_the_actuators_are_found():
    fast = driven("r0", (-0.6, 0.0), 0.0, lambda t: (0.5 if 2 < t < 4 else 0.1, 0.0))
    still = driven("r1", (0.0, 1.0), 0.0, ahead(0.0))
    incident = only(story(fast, still))
    assert incident.kind is IncidentKind.SATURATION
    assert "the command (0.50, 0.00), within limits (0.20, 0.00)" in incident.what


@pytest.mark.parametrize(
    ("does", "cause"),
    [
        (lambda t: (0.18, 0.0) if t < 5 else (0.0, 0.0), "brakes weaker than described"),
        (lambda t: (0.18, 0.0) if t < 1 else (0.0, 0.0), "blocked wheel"),
    ],
)
def test_a_robot_that_does_not_do_as_told_is_found(does, cause):
    def told(t):
        return (0.18, 0.0) if t < 3 else (0.0, 0.0)

    others = driven("r1", (0.0, 1.0), 0.0, ahead(0.0))
    assert kinds(story(driven("r0", (-0.6, 0.0), 0.0, told), others)) == []
    incident = only(story(driven("r0", (-0.6, 0.0), 0.0, told, does=does), others))
    assert incident.kind is IncidentKind.NOT_FOLLOWING
    assert cause in incident.cause


@pytest.mark.parametrize(("stands", "found"), [(4.0, [IncidentKind.STOP]), (2.0, [])])
def test_a_stop_between_two_drives_is_found_and_whether_it_was_told(stands, found):
    def told(t):
        return (0.0, 0.0) if 2 < t < 2 + stands else (0.15, 0.0)

    whole = story(driven("r0", (-0.6, 0.0), 0.0, told), driven("r1", (0.0, 1.0), 0.0, ahead(0.0)))
    incidents = find_incidents(whole)
    assert [item.kind for item in incidents] == found
    assert all(item.cause == "its commands were to stand" for item in incidents)


@pytest.mark.parametrize(("goal", "found"), [((0.6, 0.0), [IncidentKind.DEADLOCK]), ((0.0, 0.05), [])])
def test_robots_that_stand_short_of_their_goals_are_a_deadlock(goal, found):
    def told(t):
        return (0.2, 0.0) if t < 3.0 else (0.0, 0.0)

    first = driven("r0", (-0.6, 0.0), 0.0, told, 12.0, goal=goal)
    second = driven("r1", (0.6, 1.0), np.pi, told, 12.0, goal=(-goal[0], 1.0))
    incidents = find_incidents(story(first, second))
    assert [item.kind for item in incidents] == found
    assert all(item.robots == ("r0", "r1") for item in incidents)


def test_without_goals_who_is_told_to_drive_and_stands_is_a_deadlock():
    blocked = driven("r0", (-0.6, 0.0), 0.0, ahead(0.15), 9.0, does=lambda t: (0.0, 0.0))
    still = driven("r1", (0.0, 1.0), 0.0, ahead(0.0), 9.0)
    assert IncidentKind.DEADLOCK in kinds(story(blocked, still))
    assert kinds(story(driven("r0", (-0.6, 0.0), 0.0, ahead(0.0), 9.0), still)) == []


def test_an_imported_recording_tells_the_same_story():
    told = meeting(0.1)
    read = one_team(prepare(recording(told)))
    one, other = only(told), only(read)
    assert (other.kind, other.robots) == (one.kind, one.robots)
    assert other.value == pytest.approx(one.value, abs=1e-6)
    assert np.allclose(
        read.robots[0].trajectory.velocity[20:-20], told.robots[0].trajectory.velocity[20:-20], atol=0.01
    )


def test_command_stamps_of_a_clock_ahead_are_corrected_and_are_no_incident():
    def wish(t):
        return (0.16, 0.0) if t % 4 < 2 else (0.04, 0.0)

    told = story(driven("r0", (-0.6, 0.0), 0.0, wish, 30.0), driven("r1", (0.6, 1.5), np.pi, wish, 30.0))
    whole, robots = recording(told), {}
    for name, robot in whole.robots.items():
        sent = robot.series["command"]
        ahead_s = replace(sent, stamp_s=sent.stamp_s + 3.0, received_s=sent.stamp_s + 0.002)
        robots[name] = replace(robot, series={**robot.series, "command": ahead_s})
    read = one_team(prepare(replace(whole, robots=robots)))
    assert find_incidents(read) == []
    assert all(robot.report.clocks["command"].corrected for robot in read.robots)


def test_nothing_is_said_of_the_speed_in_a_gap_of_the_poses():
    robot, other = meeting(0.6).robots
    stamps = robot.trajectory.stamp_s
    unseen = (stamps > 2.0) & (stamps < 4.0)
    blocked = driven("r0", (-0.6, 0.0), 0.0, ahead(0.15), does=lambda t: (0.0, 0.0) if 2.0 < t < 3.8 else (0.15, 0.0))
    cut = blocked.trajectory.take(~unseen)
    told = story(replace(blocked, trajectory=cut, believed=cut), other)
    assert IncidentKind.NOT_FOLLOWING not in kinds(told)
    assert IncidentKind.NOT_FOLLOWING in kinds(story(blocked, other))


def test_a_robot_that_nobody_saw_is_left_out_and_named():
    whole = recording(meeting(0.1))
    robot = next(iter(whole.robots.values()))
    blind = replace(robot, name="blind", series={"command": robot.series["command"]})
    read = one_team(prepare(replace(whole, robots=whole.robots | {"blind": blind})))
    assert [one.name for one in read.robots] == list(whole.robots)
    assert any(text.startswith("blind: neither pose nor odometry is recorded") for text in read.warnings)
    with pytest.raises(TestudoError, match="blind: found fewer than 2 poses"):
        one_team(prepare(replace(whole, robots={"blind": blind})))


def test_a_recording_without_a_kind_of_robot_asks_for_one():
    with pytest.raises(TestudoError, match=r"robots.r0: found no kind of robot.*--robot"):
        one_team(prepare(recording(meeting(0.3), robot_type="")))
    assert one_team(prepare(recording(meeting(0.3), robot_type=""), "turtlebot4")).spec.name == "turtlebot4"


def test_a_moment_lies_between_the_poses_and_outside_the_run_there_is_none():
    told = meeting(0.4)
    moment = moment_at(told, 3.0)
    assert moment.position_world[:, 0] == pytest.approx([-0.6 + 0.15 * (3.0 - 0.13), 0.0], abs=0.005)
    assert moment.velocity[0] == pytest.approx([0.15, 0.15], abs=1e-3)
    assert np.all(commands_from(told, 3.0, 5) == np.array([0.15, 0.0])[None, :, None])
    with pytest.raises(TestudoError, match=r"expected 0\.0 to 8\.0 s"):
        moment_at(told, 9.0)


def test_stretches_close_to_each_other_are_one():
    holds = np.array([0, 1, 1, 0, 1, 0, 0, 0, 1], bool)
    at_s = np.arange(9.0)
    assert spans(holds, at_s) == [(1, 2), (4, 4), (8, 8)]
    assert spans(holds, at_s, join_s=2.0) == [(1, 4), (8, 8)]
    assert spans(np.zeros(3, bool), at_s[:3]) == []


def test_a_near_distance_that_is_none_is_refused():
    with pytest.raises(TestudoError, match="--near"):
        IncidentThresholds.of(meeting(0.4), -1.0)


def test_robots_are_near_by_the_kind_of_robot():
    assert IncidentThresholds.of(meeting(0.4)).near_m > 2 * SPEC.body_radius_m
