"""A robot that is at its goal, or paused, stands still by its record; nothing below the policy changes."""

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.deploy.fine_motion import nominal
from tests.deploy.lone_drive import Drive

from testudo_deploy.contract.messages import TickRecord
from testudo_deploy.control.goal_hold import ARRIVED, HOLD_AFTER_S, PAUSED, YIELDS, GoalHold, standing
from testudo_deploy.control.task_receiver import TaskReading
from testudo_deploy.shield.caution import Caution, slower
from testudo_hardware.spec import load_robot

HERE, THERE = np.array([1.0, 0.5]), np.array([1.0, 0.62])


def task(goal, within_m=0.1, *, paused=False):
    return TaskReading({"goal_world": np.array(goal)}, 0.0, "", 0, "", hold_within_m=within_m, paused=paused)


def test_a_robot_arrives_after_two_seconds_near_its_goal_and_leaves_with_another_or_away_from_it():
    hold, goal = GoalHold(), task((1.0, 0.5))
    assert hold.step(0.0, THERE, (9.0, 9.0), goal) == ""
    assert hold.step(1.0, HERE, (9.0, 9.0), goal) == ""
    assert hold.step(1.0 + HOLD_AFTER_S - 0.01, HERE, (9.0, 9.0), goal) == ""
    assert hold.step(1.0 + HOLD_AFTER_S, HERE, (9.0, 9.0), goal) == ARRIVED
    assert hold.step(5.0, HERE, (9.0, 9.0), task((1.0, 0.51))) == ""  # another goal, also a near one
    assert hold.step(7.0, HERE, (9.0, 9.0), task((1.0, 0.51))) == ARRIVED
    assert hold.step(7.1, THERE, (9.0, 9.0), task((1.0, 0.51))) == ""  # pushed, or gave way
    assert hold.step(7.2, HERE, (9.0, 9.0), task((1.0, 0.51))) == ""
    hold.reset()  # a brake
    assert hold.step(9.3, HERE, (9.0, 9.0), task((1.0, 0.51))) == ""
    assert hold.step(11.4, HERE, (9.0, 9.0), task((1.0, 0.51))) == ARRIVED
    assert hold.step(0.0, HERE, (9.0, 9.0), task((1.0, 0.51))) == ""  # the clock was set back


@pytest.mark.parametrize("within_m", [0.0, math.nan])
def test_without_a_tolerance_a_robot_never_arrives(within_m):
    hold = GoalHold()
    assert {hold.step(now_s, HERE, (1.0, 0.5), task((1.0, 0.5), within_m)) for now_s in np.arange(9.0)} == {""}
    assert {hold.step(now_s, HERE, (1.0, 0.5), None) for now_s in np.arange(9.0)} == {""}
    hold.within_m = 0.1  # of the fleet file's goal, without a task node
    assert [hold.step(20.0 + now_s, HERE, (1.0, 0.5), None) for now_s in range(3)] == ["", "", ARRIVED]


def test_a_paused_robot_stands_at_once_wherever_it_is():
    hold = GoalHold()
    assert hold.step(0.0, HERE, (9.0, 9.0), task((3.0, 0.0), paused=True)) == PAUSED
    assert hold.step(0.1, HERE, (9.0, 9.0), task((3.0, 0.0))) == ""


def test_one_that_stands_wants_no_speed_and_keeps_every_margin():
    wary = Caution(0.1, 0.05)
    assert standing("", wary) is wary
    assert standing(ARRIVED, wary) == replace(wary, speed_m_s=0.0)
    assert np.array_equal(slower(standing(PAUSED, None), np.array([0.3, -0.2])), np.zeros(2))


def restless(within_m, *, blocked=False):
    """Drive for 6 s by a policy that circles at its goal, the origin; returns the records of the last 2 s."""
    spec = load_robot("gritsbot_x")
    drive = Drive(spec, nominal(spec), np.random.default_rng(0), noise=0.0)
    drive.loop.hold.within_m = within_m
    if blocked:  # the deadlock rule lets it give way to another robot
        drive.loop._deadlock.resolved = _aside(drive.loop._deadlock)
    records = []
    for tick in range(round(6.0 / spec.control_period_s)):
        drive.see(0.03)
        turn = 2.0 * tick * spec.control_period_s
        records.append(TickRecord.decode(drive.tick((0.05 * math.cos(turn), 0.05 * math.sin(turn))).encode()))
        drive.move(spec.control_period_s)
    return records[-round(2.0 / spec.control_period_s) :]


def _aside(rule):
    def resolved(*_):
        rule._resolved = np.array([0.02, 0.0])
        return rule._resolved

    return resolved


def test_a_robot_whose_policy_never_rests_stands_at_its_goal_and_still_gives_way():
    free = restless(0.0)  # control: it spins for ever
    assert {record.holds for record in free} == {""}
    assert all(any(record.sent_command) for record in free)
    held = restless(0.1)
    assert {record.holds for record in held} == {ARRIVED}
    assert not any(any(record.sent_command) for record in held)
    assert any(record.decided and any(record.nominal_world) for record in held)  # what its policy wants is recorded
    assert {record.reason for record in held} == {""}
    assert {record.status for record in held} == {"passed"}  # by the shield, as any command
    gives_way = restless(0.1, blocked=True)
    assert YIELDS in {record.holds for record in gives_way}
    assert any(any(record.sent_command) for record in gives_way if record.holds == YIELDS)
