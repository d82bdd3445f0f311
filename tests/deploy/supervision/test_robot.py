"""A robot behind its node: loop, supervisor and pacer together, with a real policy file and messages of a peer."""

import json
import math
from dataclasses import replace

import pytest
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.contract.messages import PeerMessage, TickRecord
from testudo_deploy.fleet.localiser import switched_on_at
from testudo_deploy.guard.command_guard import HEALTHY_S
from testudo_deploy.monitoring.diagnostics import Level
from testudo_deploy.supervision.modes import Event, Mode
from testudo_deploy.supervision.robot import Robot
from testudo_deploy.supervision.supervisor import GuardReport
from testudo_hardware.errors import TestudoError
from testudo_hardware.frames import PlanarTransform

PERIOD_S = 0.033


class Pair:
    """Two robots of one fleet that hear each other and their guards; each stands where it started."""

    def __init__(self, fleet):
        self.now_s, self.poses, self.guard = 50.0, True, ""
        self.robots = [Robot(fleet, name, str(fleet.policy), epoch=name, now_s=self.now_s) for name in fleet.names]
        self.fleet, self.outcomes, self.deaf = fleet, [None, None], False

    def tick(self, count=1):
        for _ in range(count):
            self.now_s += PERIOD_S
            for robot, entry in zip(self.robots, self.fleet.robots, strict=True):
                robot.hear_guard(GuardReport(self.now_s, self.guard))
                if self.poses:
                    robot.loop.on_odometry(self.now_s - 0.01, self.now_s, entry.initial_position_world, 0.0, (0.0, 0.0))
            self.outcomes = [robot.tick(self.now_s) for robot in self.robots]
            for outcome, hearer in zip(self.outcomes, self.robots[::-1], strict=True):
                if outcome.announcement is not None and not self.deaf:
                    hearer.loop.on_peer(PeerMessage.decode(outcome.announcement.encode()), self.now_s + 0.001)
        return self.outcomes[0]

    def ask(self, event):
        return self.robots[0].request(event, self.now_s)

    @property
    def mode(self):
        return self.robots[0].supervisor.mode


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    return make_tiny_fleet(tmp_path_factory.mktemp("fleet"), 2)


@pytest.fixture
def pair(fleet):
    return Pair(fleet)


@pytest.fixture
def active(pair):
    pair.tick(5)
    assert pair.ask(Event.ARM).granted
    pair.tick()
    assert pair.ask(Event.START).granted
    pair.tick()
    return pair


def test_an_inactive_robot_is_silent_to_its_actuators_and_speaks_to_its_peers(pair):
    outcome = pair.tick(5)
    assert not outcome.commands
    assert outcome.announcement is not None
    assert outcome.record.reason == "idle"
    assert not any(outcome.record.sent_command)


def test_it_cannot_be_armed_before_its_peer_was_heard(pair):
    pair.deaf = True
    pair.tick(5)
    answer = pair.ask(Event.ARM)
    assert (answer.granted, answer.code) == (False, "peer_unheard")
    assert "r1" in answer.sentence
    pair.deaf = False
    pair.tick(3)
    assert pair.ask(Event.ARM).granted


def test_an_armed_robot_commands_zero_and_drives_once_started(pair):
    pair.tick(5)
    pair.ask(Event.ARM)
    outcome = pair.tick(3)
    assert outcome.commands
    assert not any(outcome.record.sent_command)
    pair.ask(Event.START)
    outcome = pair.tick(3)
    assert any(outcome.record.sent_command)
    assert outcome.record.reason == ""


def test_without_poses_it_holds_and_a_second_after_they_are_back_it_drives_on(active):
    active.poses = False
    outcome = active.tick(6)
    assert active.mode is Mode.HOLDING
    assert outcome.record.reason == "stale_pose"
    assert outcome.commands
    active.poses = True
    outcome = active.tick(int(HEALTHY_S / PERIOD_S))
    assert active.mode is Mode.HOLDING
    assert outcome.record.reason == "holding: stale_pose"
    active.tick(5)
    assert active.mode is Mode.ACTIVE


def test_the_age_limit_is_that_of_the_robots_own_pose_source(fleet):
    strict = tuple(replace(robot, pose=replace(robot.pose, max_age_s=0.04)) for robot in fleet.robots)
    usual, strict = Pair(fleet), Pair(replace(fleet, robots=strict))
    for pair in (usual, strict):
        pair.tick(5)
        pair.poses = False
    assert [pair.tick().record.reason for pair in (usual, strict)] == ["idle", "stale_pose"]


def test_a_process_that_slept_holds_but_does_not_take_its_guard_for_dead(active):
    """SIGSTOP for two seconds: the guard spoke all the time and brakes; nothing was heard of it yet."""
    active.now_s += 2.0
    active.robots[0].tick(active.now_s)
    assert active.mode is Mode.HOLDING  # the pose is old
    active.guard = "silence"
    active.tick()
    assert active.mode is Mode.HOLDING
    active.guard = ""
    active.tick(int(HEALTHY_S / PERIOD_S) + 5)
    assert active.mode is Mode.ACTIVE


def test_the_status_tells_mode_code_and_figures_and_changes_are_told_once(active):
    status = active.robots[0].status(active.now_s)
    assert (status.level, status.values["mode"], status.values["code"]) == (Level.OK, "active", "")
    assert float(status.values["pose_age_s"]) == pytest.approx(0.01, abs=1e-3)
    active.poses = False
    changes = [active.tick().changed for _ in range(8)]
    assert sum(changes) == 1
    status = active.robots[0].status(active.now_s)
    assert (status.level, status.values["code"]) == (Level.WARN, "stale_pose")
    assert "pose_max_age" in status.message
    assert all(isinstance(value, str) for value in status.values.values())


def test_a_robot_that_stands_at_its_goal_is_active_and_says_so(active):
    robot = active.robots[0]
    robot.loop.aim(active.outcomes[0].record.control_point_world)  # its policy does not move it, and it does not move
    changes = [active.tick().changed for _ in range(int(2.5 / PERIOD_S))]
    status = robot.status(active.now_s)
    assert (status.level, status.values["mode"], status.values["holds"]) == (Level.OK, "active", "arrived")
    assert status.message == "arrived: at its goal, stands"
    assert sum(changes) == 1
    active.poses = False
    active.tick(8)
    assert (active.mode, robot.status(active.now_s).values["holds"]) == (Mode.HOLDING, "")


@pytest.mark.parametrize(
    ("kind", "changes", "within_m"),
    [
        ("gritsbot_x", {}, 0.1),
        ("gritsbot_x", {"task": {}}, 0.0),  # a task node says it
        ("crazyflie_2x", {}, 0.0),  # without a velocity it drifts
    ],
)
def test_a_robot_stands_at_the_goal_of_its_fleet_file_only_where_that_stays(tmp_path, kind, changes, within_m):
    fleet = replace(make_tiny_fleet(tmp_path, 2, robot=kind), **changes)
    assert Robot(fleet, "r0", str(fleet.policy), epoch="a", now_s=0.0).loop.hold.within_m == within_m


def test_ticks_in_which_the_shield_changes_the_wish_are_counted(active):
    before = active.robots[0].interventions
    statuses = [active.tick().record.status for _ in range(10)]
    assert active.robots[0].interventions - before == sum(status != "passed" for status in statuses)


def test_an_inactive_robot_may_be_carried_and_owns_the_place_where_it_stands(pair):
    pair.tick(5)
    loop = pair.robots[0].loop
    for k in range(60):  # carried 0.3 m, as slowly as a pose may move without odometry
        pair.now_s += PERIOD_S
        loop.on_odometry(pair.now_s - 0.01, pair.now_s, (-0.6, -0.005 * k), 0.0, (0.0, 0.0))
        pair.robots[0].hear_guard(GuardReport(pair.now_s, ""))
        record = pair.robots[0].tick(pair.now_s).record
    start, end = record.reserved_segment_world
    assert start == end
    assert math.dist(start, (-0.6, -0.295)) <= loop._shield.space.lane_m


def test_every_record_can_be_sent(active):
    for _ in range(3):
        record = active.tick().record
        assert TickRecord.decode(record.encode()) == record
        json.loads(record.encode())


def test_a_policy_of_another_hash_is_refused(fleet, tmp_path):
    other = tmp_path / "policy.onnx"
    other.write_bytes(fleet.policy.read_bytes()[:-1])
    with pytest.raises(TestudoError):
        Robot(fleet, "r0", str(other), epoch="a", now_s=0.0)


def test_a_robot_that_does_not_move_ends_in_fault(active):
    """Both stand where they started, whatever they are told, and their guards pass everything on."""
    for _ in range(200):
        active.tick()
        if active.mode is Mode.FAULT:
            break
    status = active.robots[0].status(active.now_s)
    assert (active.mode, status.values["code"]) == (Mode.FAULT, "no_response")
    assert "does not move as commanded" in status.message


def test_a_robot_whose_guard_brakes_need_not_move(active):
    """Nor may it be told before its supervisor has heard why the guard brakes."""
    active.guard = "second_publisher"
    active.tick(200)
    assert active.mode is Mode.HOLDING
    assert active.robots[0].supervisor.reason == "guard_brakes: second_publisher"


@pytest.mark.parametrize(
    ("away", "refused"), [((0.0, 0.0), ""), ((0.09, 0.0), ""), ((0.3, 0.4), "0.50 m and 0.00 rad")]
)
def test_odometry_that_counts_from_the_mark_has_to_be_there_when_it_is_armed_first(fleet, away, refused):
    pair = Pair(fleet)
    entry = fleet.robots[0]
    there = replace(
        entry, initial_position_world=tuple(a - b for a, b in zip(entry.initial_position_world, away, strict=True))
    )
    pair.robots[0]._start = switched_on_at(replace(there, pose=replace(there.pose, source="odom+initial")))
    pair.tick(5)
    answer = pair.ask(Event.ARM)
    assert answer.granted is not bool(refused)
    if refused:
        assert answer.code == "away_from_start"
        assert refused in answer.sentence
        assert "set its odometry to zero there" in answer.sentence
        assert pair.robots[0].status(pair.now_s).values["code"] == "away_from_start"


def test_a_robot_that_was_armed_may_be_armed_again_wherever_it_is(pair):
    pair.robots[0]._start = PlanarTransform(pair.fleet.robots[0].initial_position_world, 0.0)
    pair.tick(5)
    assert pair.ask(Event.ARM).granted
    assert pair.ask(Event.DEACTIVATE).granted
    first, second = pair.fleet.robots
    pair.fleet = replace(pair.fleet, robots=(replace(first, initial_position_world=(0.0, 0.0)), second))
    pair.robots[0].loop._pose_validator.forget()  # as if it had driven there
    pair.tick(5)
    assert pair.ask(Event.ARM).granted


def test_only_odometry_from_the_initial_pose_is_held_against_it(fleet):
    for source in ("odom", "tf", "amcl_pose", "mocap"):
        entry = fleet.robots[0]
        assert switched_on_at(replace(entry, pose=replace(entry.pose, source=source))) is None


def test_motion_outside_of_the_robot_file_is_a_warning_and_no_other_mode(pair):
    pair.tick(3)
    robot = pair.robots[0]
    before = robot.status(pair.now_s)
    assert (before.level, before.values["warning"]) == (Level.OK, "")
    robot.loop.motion.assumptions.finding = "assumption_lag: found too much"
    after = robot.status(pair.now_s)
    assert after.level is Level.WARN
    assert after.values["warning"] == "assumption_lag: found too much"
    assert after.message == f"{before.message}; assumption_lag: found too much"
    assert after.values["mode"] == before.values["mode"]


def test_machine_code_is_used_only_where_it_is_asked_for(pair, monkeypatch):
    """Its equality with NumPy is not proven (docs/shield.md), so that no robot gets it unasked."""
    asked = []
    loop = pair.robots[0].loop
    monkeypatch.setattr(loop, "use_compiled_bodies", lambda: asked.append(True))
    for value, expected in ((None, 0), ("0", 0), ("1", 1)):
        if value is None:
            monkeypatch.delenv("TESTUDO_COMPILED", raising=False)
        else:
            monkeypatch.setenv("TESTUDO_COMPILED", value)
        assert pair.robots[0].use_compiled_bodies() == ""
        assert len(asked) == expected
