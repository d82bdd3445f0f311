"""Robots that follow the commands of another program, such as nav2: passed on when nothing is near, shielded if not."""

from itertools import combinations

import numpy as np
import pytest
import yaml
from tests.deploy.tiny_fleet import make_tiny_fleet
from tests.effort import FULL

from testudo_deploy.admission.fleet_admission import checked_safety_contracts
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.control.control_loop import ControlLoop
from testudo_deploy.control.task_receiver import TaskReceiver
from testudo_deploy.fleet.fleet import FleetError, load_fleet
from testudo_deploy.fleet.fleet_writer import fleet_text
from testudo_deploy.fleet.pose_source import signal_wires
from testudo_deploy.fleet.robot_links import COMMANDED_VELOCITY
from testudo_deploy.shield.arena import Arena
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import LagResponse, MotionState, motion_model
from testudo_hardware.motion.motion_model import effective_command
from testudo_hardware.spec import load_robot
from testudo_policies.wrapping.commanded_policy import write_commanded_policy

pytestmark = pytest.mark.usefixtures("quick")

SPEC = load_robot("gritsbot_x")
ARENA = Arena((-1.0, -1.0), (1.0, 1.0))
HALF_M, AIM_S, NAMES = 0.6, 3.0, ("r0", "r1", "r2", "r3")
STARTS = ((-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5))
PERIOD_S = SPEC.control_period_s
DRIVE_S = 20.0 if FULL else 9.0


@pytest.fixture(scope="module")
def artefact(tmp_path_factory, quick):
    path = tmp_path_factory.mktemp("commanded") / "policy.onnx"
    write_commanded_policy(path, SPEC, ARENA)
    return PolicyArtefact.load(path, robot=SPEC, task_signals=(COMMANDED_VELOCITY,))


def make_loop(artefact, name, names):
    peers = tuple(other for other in names if other != name)
    loop = ControlLoop(artefact, SPEC, robot=name, peers=peers, goal_world=(0.0, 0.0), epoch="one")
    contract = artefact.contract
    loop.task = TaskReceiver(
        contract.task_signals, contract.task_hash, robot=name, epoch="one", peers=peers, sensed=(COMMANDED_VELOCITY,)
    )
    return loop


def towards(state, aim):
    """Return the command (v, w) of a simple controller to a place, without regard for anybody."""
    offset = aim - state.position_world
    turn = np.arctan2(offset[1], offset[0]) - float(state.yaw)
    turn = np.arctan2(np.sin(turn), np.cos(turn))
    return np.array([SPEC.speed_limit_m_s * max(0.0, np.cos(turn)), 3.0 * turn])


def at_random():
    """Return a source of random commands, each held for half a second on average, that turns back at the border."""
    rng, held = np.random.default_rng(7), {}

    def command(state, aim):
        if np.abs(state.position_world).max() > HALF_M:
            return towards(state, aim)
        if tuple(aim) not in held or rng.random() < 2 * PERIOD_S:
            held[tuple(aim)] = np.array([rng.uniform(-0.3, 1.0) * SPEC.speed_limit_m_s, rng.uniform(-3.0, 3.0)])
        return held[tuple(aim)]

    return command


class Robots:
    """Robots whose commands come from a controller that knows no others; with the shield, or straight to the wheels."""

    def __init__(self, artefact, names, seed, *, shielded=True):
        self.loops = {name: make_loop(artefact, name, names) for name in names} if shielded else {}
        self.states = {
            name: MotionState(np.array(place), np.array(0.5 * k), np.zeros(2))
            for k, (name, place) in enumerate(zip(names, STARTS, strict=False))
        }
        self.rng, self.now_s, self.contacts, self.way_m = np.random.default_rng(seed), 1.0, 0, 0.0
        self.aims = dict.fromkeys(names, np.zeros(2))
        self.model, self.lag = motion_model(SPEC), LagResponse.create(np.array(PERIOD_S), SPEC.velocity_lag_s)
        self.records = {name: [] for name in names}

    def run(self, seconds, command=None):
        """Drive; ``command(state, aim)`` returns a command, or None for silence."""
        command = command or towards
        for tick in range(round(seconds / PERIOD_S)):
            self.now_s += PERIOD_S
            if tick % round(AIM_S / PERIOD_S) == 0:
                self.aims = {name: self.rng.uniform(-HALF_M, HALF_M, 2) for name in self.aims}
            for name, state in self.states.items():
                given = command(state, self.aims[name])
                sent = given if not self.loops else self._shielded(name, given)
                before = state.position_world
                self.states[name] = self.model.step(state, effective_command(self.model, np.asarray(sent)), self.lag)
                self.way_m += float(np.linalg.norm(self.states[name].position_world - before))
            places = [state.position_world for state in self.states.values()]
            self.contacts += sum(
                np.linalg.norm(one - other) < 2 * SPEC.body_radius_m for one, other in combinations(places, 2)
            )
        return self

    def _shielded(self, name, given):
        loop, state = self.loops[name], self.states[name]
        place, velocity = map(tuple, (state.position_world.tolist(), state.velocity.tolist()))
        loop.on_odometry(self.now_s - 0.005, self.now_s, place, float(state.yaw), velocity)
        if given is not None:
            loop.task.sensors.hear(COMMANDED_VELOCITY, given, self.now_s - 0.001, self.now_s)
        record = loop.tick(self.now_s)
        self.records[name].append(record)
        message = loop.announcement(self.now_s)
        for other, peer in self.loops.items():
            if other != name:
                peer.on_peer(message, self.now_s)
        return record.sent_command


def test_a_robot_alone_gets_the_command_as_it_was_given(artefact):
    given = np.array([0.08, 0.4])
    alone = Robots(artefact, ("r0",), 0).run(2.0, lambda state, aim: given)
    assert not any(record.reason for record in alone.records["r0"])
    assert np.array(alone.records["r0"][-1].sent_command) == pytest.approx(given, abs=1e-4)


@pytest.mark.parametrize("source", [lambda: towards, at_random], ids=["like nav2", "random"])
def test_commands_that_would_collide_do_not_behind_the_shield(artefact, source):
    shielded = Robots(artefact, NAMES, 1).run(DRIVE_S, source())
    control = Robots(artefact, NAMES, 1, shielded=False).run(DRIVE_S, source())
    assert control.contacts > 0  # the same controllers without the shield
    assert shielded.contacts == 0
    assert shielded.way_m > 0.2 * control.way_m  # and it does not just stand


def test_silence_brakes_with_a_plain_reason(artefact):
    robots = Robots(artefact, ("r0",), 2).run(1.0)
    robots.run(1.0, lambda state, aim: None)
    record = robots.records["r0"][-1]
    assert record.reason.startswith("task_stale: commanded_velocity: the value of its sensor is ")
    assert record.sent_command == (0.0, 0.0)


def commanded_fleet(folder, commands):
    fleet = make_tiny_fleet(folder, 2)
    report = write_commanded_policy(folder / "policy.onnx", SPEC, ARENA)
    tables = yaml.safe_load(fleet.file.read_text()) | {"policy_sha256": report.sha256}
    for robot in tables["robots"].values():
        robot["link"] = {"profile": "testudo", "commands": commands}
    fleet.file.write_text(yaml.safe_dump(tables))
    return load_fleet(fleet.file)


def test_a_fleet_file_names_the_topic_and_may_start(tmp_path):
    fleet = commanded_fleet(tmp_path, {"topic": "cmd_vel_nav", "stamped": True})
    assert len(checked_safety_contracts(fleet)) == 2
    (wire,) = signal_wires(fleet.robots[0])
    assert (wire.absolute, wire.part.type.value) == ("/r0/cmd_vel_nav", "geometry_msgs/msg/TwistStamped")
    assert yaml.safe_load(fleet_text(fleet, fleet.file)) == yaml.safe_load(fleet.file.read_text())


def test_the_topic_of_the_robots_own_commands_is_refused(tmp_path):
    with pytest.raises(FleetError, match="found /r0/cmd_vel for 'cmd_vel', expected a topic of its own"):
        commanded_fleet(tmp_path, {"topic": "cmd_vel"})


def test_without_the_topic_the_policy_file_is_refused(tmp_path):
    fleet = make_tiny_fleet(tmp_path, 2)
    report = write_commanded_policy(tmp_path / "policy.onnx", SPEC, ARENA)
    fleet.file.write_text(fleet.file.read_text().replace(fleet.policy_sha256, report.sha256))
    with pytest.raises(TestudoError, match="found 'commanded_velocity', which is not available on this robot"):
        checked_safety_contracts(load_fleet(fleet.file))
