"""The start of a trial: robots drive to drawn places, and the task begins only when all of them are there."""

import math

import pytest
from tests.sim.online_task.task_fleet import Drive, make_task_fleet

from testudo_deploy.launch.topic_names import NOT_AT_START
from testudo_hardware.errors import TestudoError
from testudo_sim.online_task.trial_start import HOLD_S, TrialStart

pytestmark = pytest.mark.usefixtures("quick")

STARTS = {"r0": [-1.2, 0.0], "r1": [1.2, 0.3]}


class TrialDrive(Drive):
    """Robots and task node of a trial in one process; ``begun_s`` is when the task began, and ``failed`` its end."""

    trial, begun_s, failed = None, None, None

    def _run_task(self, now_s):
        for message in self._peers:
            self.sender.hear(message)
        if self.trial is None:
            self.goals = self.live.goals_world
            self.trial = TrialStart(self.live, self.values, now_s)
        if self.begun_s is None and self.failed is None:
            if self.trial.is_over(now_s):
                self.failed = self.trial.refused(())
            elif not self.trial.step(now_s):
                self.begun_s, self.places = now_s, {name: self.live.newest(name) for name in self.live.robots}
                self.live.begin(now_s)
        self.scores += self.live.advance(now_s)
        sample = self.live.sample(now_s)
        if sample is not None:
            self._task = list(self.sender.messages(sample, now_s))


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    return make_task_fleet(tmp_path_factory.mktemp("trial"), "navigation", 2)


def driven(fleet, values, ticks):
    drive = TrialDrive(fleet)
    drive.values = values
    for _ in range(ticks):
        drive.tick()
        if drive.failed or (drive.scores and drive.scores[-1].outcome):
            break
    return drive


def test_the_task_begins_with_its_own_goals_once_all_robots_are_at_their_starts(fleet):
    drive = driven(fleet, {"starts": STARTS, "patience_s": 60.0}, 6000)
    assert drive.begun_s is not None
    for name, place in STARTS.items():
        assert math.dist(drive.places[name].position_world, place) < drive.live.tolerance_m
        assert drive.live.goals_world[name] == pytest.approx(drive.goals[name])
    assert drive.scores[-1].outcome == "success"
    assert drive.scores[0].stamp_s > drive.begun_s > 1.0 + HOLD_S  # nothing is scored before
    assert all(score.success is not None for score in drive.scores)


def test_a_robot_that_does_not_come_to_its_start_is_named_and_nothing_is_scored(fleet):
    far = STARTS | {"r1": [50.0, 0.3]}  # outside the arena, where no shield lets it
    drive = driven(fleet, {"starts": far, "patience_s": 8.0}, 6000)
    assert (drive.begun_s, drive.scores) == (None, [])
    assert drive.failed["outcome"] == NOT_AT_START
    assert [reason.partition(":")[0] for reason in drive.failed["reasons"]] == ["r1"]
    assert "m from its start (50.00, 0.30)" in drive.failed["reasons"][0]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"patience_s": 5.0}, "expected a place for each of r0, r1"),
        ({"starts": {"r0": [0.0, 0.0]}, "patience_s": 5.0}, "expected a place for each of r0, r1"),
        ({"starts": STARTS | {"r1": [0.0]}, "patience_s": 5.0}, "starts.r1: found [0.0], expected 2 finite numbers"),
        ({"starts": STARTS | {"r1": [math.nan, 0.0]}, "patience_s": 5.0}, "starts.r1"),
        ({"starts": STARTS}, "found patience_s None"),
    ],
)
def test_a_wrong_trial_is_refused(fleet, values, says, live):
    with pytest.raises(TestudoError) as refusal:
        TrialStart(live, values, 0.0)
    assert says in str(refusal.value)


@pytest.fixture(scope="module")
def live(fleet):
    return Drive(fleet).live


def test_a_scenario_without_a_goal_for_each_robot_is_refused(tmp_path):
    drive = Drive(make_task_fleet(tmp_path, "foraging", 2))
    with pytest.raises(TestudoError, match="found the scenario 'foraging', expected one with a goal for each robot"):
        TrialStart(drive.live, {"starts": STARTS, "patience_s": 5.0}, 0.0)
