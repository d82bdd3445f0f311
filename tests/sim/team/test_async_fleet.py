"""Control loops of real robots against the kinematic tier, with nothing in step.

Each robot has its own clock, its own phase and late ticks, its own lag, delay and scale at an end of the
interval; poses and messages travel for random times, and messages are lost. Contacts are counted every
two milliseconds.
"""

import heapq
import itertools

import numpy as np
import pytest

from testudo_deploy.contract.messages import PeerMessage
from testudo_deploy.control.control_loop import ControlLoop
from testudo_deploy.control.deadlock_resolver import DeadlockResolver
from testudo_deploy.guard.command_checks import CommandChecks
from testudo_deploy.guard.guard_bounds import segment_limits
from testudo_deploy.guard.own_segment import OwnSegment
from testudo_deploy.shield.velocity_projection import Arena
from testudo_hardware.links.wire import body_forward_command
from testudo_hardware.motion import LagResponse, MotionState, motion_model
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import load_robot

STEP_S = 0.002


class Wanting:
    """What a `ControlLoop` uses of an artefact; ``want()`` is the wanted velocity."""

    def __init__(self, contract, want):
        self.contract, self._want = contract, want

    def step(self, signals, hidden):
        return self._want(), hidden


class Fleet:
    """Robots, the channel between them, and the driver of each, on one true time [s]."""

    def __init__(self, spec, contract, size, command, *, loss, late, seed, radius_m=None):
        self.spec, self.model, self.rng = spec, motion_model(spec), np.random.default_rng(seed)
        self.loss, self.late, self.command = loss, late, command
        self.size, self.now_s, self.least_m, self.contacts, self.dead = size, 0.0, np.inf, 0, set()
        radius = radius_m or 1.2 * contract.shield.separation_m
        half = radius + contract.shield.wall_m + 0.3
        self.half = half
        self.low = np.array([-half, -half, 0.0][: spec.dimension])
        self.high = self.low + 2 * half
        angle = 2 * np.pi * np.arange(size) / size
        place = np.zeros((spec.dimension, size)) + ((self.low + self.high) / 2)[:, None]
        place[:2] += radius * np.stack([np.cos(angle), np.sin(angle)])
        self.start, self.middle = place.copy(), (self.low + self.high) / 2
        yaw = self.rng.uniform(-3, 3, size) * (spec.dimension == 2)
        self.states = [MotionState(place[:, i], yaw[i], np.zeros(spec.dimension)) for i in range(size)]
        self.clock_s = self.rng.uniform(-100, 1000, size)
        self.delay_s = self.corner("dynamics.command_delay", size)
        self.scale = np.tile(self.corner("dynamics.speed_scale", size), (spec.dimension, 1))
        if spec.kind == DIFFERENTIAL_DRIVE:
            self.scale[1] = self.corner("dynamics.turn_scale", size)
        lags = self.corner("dynamics.velocity_lag", size)
        self.responses = [LagResponse.create(np.array(STEP_S), np.array(lag)) for lag in lags]
        self.acting = [(-9.0, np.zeros(spec.dimension))] * size
        self.asked = [0] * size
        self.random = self.rng.standard_normal((spec.dimension, size))
        contract = contract.replace(arena=Arena(tuple(self.low), tuple(self.high)), decision_ticks=3)
        names = [f"r{i}" for i in range(size)]
        self.loops = [
            ControlLoop(
                Wanting(contract, lambda i=i: self.wanted(i)),
                spec,
                robot=name,
                peers=tuple(n for n in names if n != name),
                goal_world=(0.0,) * spec.dimension,
                epoch="e" + name,
            )
            for i, name in enumerate(names)
        ]
        self.segments = [OwnSegment(segment_limits(spec)) for _ in names]
        self.guards = [
            CommandChecks(spec, None, oldest_pose_s=spec.pose_max_age_s + spec.control_period_s, segment=segment)
            for segment in self.segments
        ]
        self.refused = []
        """Codes of the guards for commands of the loops."""
        self.events, self.order = [], itertools.count()
        for i in range(size):
            self.later(self.rng.uniform(0, spec.control_period_s), self.tick, i)
            self.later(self.rng.uniform(0, spec.control_period_s), self.sense, i)

    def corner(self, key, count):
        quantity = self.spec.quantities[key]
        return self.rng.choice([quantity.low, quantity.high], count)

    def later(self, wait_s, what, *arguments):
        heapq.heappush(self.events, (self.now_s + wait_s, next(self.order), what, arguments))

    def positions(self):
        return np.stack([state.position_world for state in self.states], axis=1)

    def wanted(self, i):
        """Return full speed: at the nearest peer, swinging beside it, or anywhere."""
        self.asked[i] += 1
        place = self.positions()
        offset = place - place[:, i : i + 1]
        distance = np.linalg.norm(offset, axis=0)
        distance[i] = np.inf
        chase = offset[:, distance.argmin()] / distance.min()
        swing = 1 if self.asked[i] // (3 + 2 * i) % 2 else -1
        across = np.array([-chase[1], chase[0], *chase[2:]])
        if self.command == "random" and self.asked[i] % 7 == 0:
            self.random[:, i] = self.rng.standard_normal(self.spec.dimension)
        if self.command == "swap":
            return 3 * (-self.start[:, i] + 2 * self.middle - self.states[i].position_world)
        direction = {
            "chase": chase,
            "zigzag": 0.5 * chase + swing * across,
            "random": self.random[:, i],
        }[self.command]
        return self.spec.control_point_speed_m_s * direction / np.linalg.norm(direction)

    def tick(self, i):
        if i in self.dead:
            return
        now_s = self.now_s + self.clock_s[i]
        record = self.loops[i].tick(now_s)
        self.later(self.delay_s[i], self.act, i, np.array(record.sent_command))
        message = self.loops[i].announcement(now_s)
        self.guard(i, record, message, now_s)
        for j in range(self.size):
            if message is not None and j != i and self.rng.uniform() >= self.loss:
                self.later(self.rng.uniform(0.02, 0.06), self.hear, j, message.encode())
        period_s = self.spec.control_period_s
        slow = self.rng.uniform(1, 3) if self.rng.uniform() < self.late else 1
        self.later(slow * period_s, self.tick, i)

    def guard(self, i, record, message, now_s):
        """Let the robot's guard judge a command; it may hear the announcement of the same tick before or after."""
        early = message is not None and self.rng.uniform() < 0.5
        if early:
            self.segments[i].hear(message, now_s)
        wire = body_forward_command(self.spec, record.sent_command, record.estimate_yaw or 0.0)
        code = self.guards[i].refusal(wire, now_s)
        self.refused += [code] if code else []
        self.guards[i].note_sent(now_s, wire)
        if message is not None and not early:
            self.segments[i].hear(message, now_s)

    def act(self, i, command):
        self.acting[i] = (self.now_s, command)

    def hear(self, j, envelope):
        self.loops[j].on_peer(PeerMessage.decode(envelope), self.now_s + self.clock_s[j])

    def sense(self, i):
        """Measure with the full error, to believe the nearest peer farther than it is."""
        state, place = self.states[i], self.positions()
        offset = place[:, i : i + 1] - place
        distance = np.linalg.norm(offset, axis=0)
        distance[i] = np.inf
        error = self.spec.position_error_m * offset[:, distance.argmin()] / distance.min()
        yaw = state.yaw + self.spec.yaw_error_rad * self.rng.uniform(-1, 1)
        sample = (tuple(state.position_world + error), float(yaw), tuple(state.velocity))
        self.later(self.rng.uniform(0.01, 0.04), self.see, i, self.now_s, sample)
        self.later(0.7 * self.spec.control_period_s, self.sense, i)

    def see(self, i, stamp_s, sample):
        self.loops[i].on_odometry(stamp_s + self.clock_s[i], self.now_s + self.clock_s[i], *sample)
        self.guards[i].see_pose(stamp_s + self.clock_s[i], *sample)

    def missing_m(self):
        """Return how far each robot is from the place opposite of its start."""
        return np.linalg.norm(self.positions() - (2 * self.middle[:, None] - self.start), axis=0)

    def drive(self, duration_s, is_over=lambda: False):
        """Drive for some time, or until it is over, which is asked every half second."""
        for number in range(round(duration_s / STEP_S)):
            if number % 250 == 0 and is_over():
                return
            self.now_s += STEP_S
            while self.events[0][0] <= self.now_s:
                _, _, what, arguments = heapq.heappop(self.events)
                what(*arguments)
            for i, (since_s, command) in enumerate(self.acting):
                alive = self.now_s - since_s <= self.spec.dead_man_s
                effective = self.model.limit_command(command * alive) * self.scale[:, i]
                self.states[i] = self.model.step(self.states[i], effective, self.responses[i])
            place = self.positions()
            apart = np.linalg.norm(place[:, :, None] - place[:, None], axis=0)
            least = apart[~np.eye(self.size, dtype=bool)].min()
            wall = min((place - self.low[:, None]).min(), (self.high[:, None] - place).min())
            self.least_m = min(self.least_m, least)
            self.contacts += int(least < 2 * self.spec.body_radius_m or wall < self.spec.body_radius_m)


TEAMS = [
    ("gritsbot_x", 2, 0.0, 0.0),
    ("gritsbot_x", 3, 0.5, 0.1),
    ("gritsbot_x", 4, 0.9, 0.2),
    ("turtlebot4", 3, 0.3, 0.1),
    ("crazyflie_2x", 2, 0.3, 0.1),
    ("crazyflie_2x", 4, 0.5, 0.2),
]
COMMANDS = ["random", "zigzag", "chase"]


@pytest.mark.parametrize(
    ("name", "size", "loss", "late", "command"),
    [
        # each team with one kind of command, each kind for ground robots and for drones; all with the slow tests
        pytest.param(*team, command, marks=[] if i % 3 == j else [pytest.mark.slow])
        for i, team in enumerate(TEAMS)
        for j, command in enumerate(COMMANDS)
    ],
)
def test_robots_that_share_no_clock_do_not_touch(name, size, loss, late, command, make_artefact):
    spec, contract = load_robot(name), make_artefact(name, 0).contract
    fleet = Fleet(spec, contract, size, command, loss=loss, late=late, seed=3)
    start = fleet.positions()
    fleet.drive(3.0)
    assert fleet.contacts == 0, fleet.least_m
    assert fleet.refused == []
    moved = np.linalg.norm(fleet.positions() - start, axis=0)
    assert moved.max() > 0.05 or loss > 0.8  # hardly ever heard, robots this near do better to stand


def test_a_process_that_dies_in_a_chase_does_not_end_in_contact(make_artefact):
    """Its driver stops it; the others, a majority, chase on beside what it reserved last."""
    spec = load_robot("gritsbot_x")
    fleet = Fleet(spec, make_artefact("gritsbot_x", 0).contract, 3, "chase", loss=0.0, late=0.0, seed=4)
    fleet.drive(1.5)
    fleet.dead.add(0)
    fleet.drive(3.0)
    before = fleet.positions()
    fleet.drive(6.0)
    assert fleet.contacts == 0
    moved = np.linalg.norm(fleet.positions() - before, axis=0)
    assert moved[0] < 0.01
    assert moved[1:].max() > 0.05


@pytest.mark.parametrize(("rule", "arrived"), [(True, 4), (False, 0)])
def test_the_control_loop_resolves_the_deadlock_of_robots_that_swap_places(rule, arrived, make_artefact, monkeypatch):
    """The deployed loop had no deadlock rule, though the page of the shield presented it as a part."""
    if not rule:
        monkeypatch.setattr(DeadlockResolver, "resolved", lambda self, point, table, first, nominal: nominal)
    spec = load_robot("gritsbot_x")
    fleet = Fleet(spec, make_artefact("gritsbot_x", 0).contract, 4, "swap", loss=0.0, late=0.0, seed=6, radius_m=0.7)
    fleet.drive(24.0 if rule else 12.0, lambda: fleet.missing_m().max() < 0.1)
    missing = fleet.missing_m()
    assert fleet.contacts == 0
    assert int((missing < 0.1).sum()) == arrived, missing


def test_a_robot_waits_for_a_silent_majority_until_it_is_declared_lost(make_artefact):
    """They may still move: it cannot know. The declaration ends the wait, without a contact.

    One is declared where it was last seen, the other at its place.
    """
    spec = load_robot("gritsbot_x")
    fleet = Fleet(spec, make_artefact("gritsbot_x", 0).contract, 3, "swap", loss=0.0, late=0.0, seed=5, radius_m=1.0)
    fleet.dead.add(0)
    fleet.drive(2.5)
    assert np.linalg.norm(fleet.positions() - fleet.start, axis=0).max() < 0.05  # it was never heard
    fleet.dead.clear()
    fleet.later(0.01, fleet.tick, 0)
    fleet.drive(2.0)
    fleet.dead |= {0, 1}
    fleet.drive(5.0)
    waiting = fleet.positions()
    fleet.drive(2.0)
    assert np.linalg.norm(fleet.positions() - waiting, axis=0).max() < 0.02
    assert fleet.loops[2].declare_lost("r0", None)
    assert fleet.loops[2].declare_lost("r1", tuple(fleet.positions()[:, 1]))
    fleet.drive(4.0)
    assert np.linalg.norm(fleet.positions() - waiting, axis=0)[2] > 0.1
    assert fleet.contacts == 0


@pytest.mark.parametrize("dies", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_the_majority_goes_on_beside_a_dead_robot_of_any_rank(dies, make_artefact):
    """Before, one dead robot stopped all of lower rank for the rest of the run, wherever they were."""
    spec = load_robot("gritsbot_x")
    fleet = Fleet(spec, make_artefact("gritsbot_x", 0).contract, 4, "swap", loss=0.1, late=0.0, seed=7, radius_m=1.2)
    fleet.drive(1.5)
    fleet.dead.add(dies)
    opposite = (dies + 2) % 4  # its goal is where the dead one started

    def arrived():
        missing = fleet.missing_m()
        return (np.delete(missing, [dies, opposite]) < 0.1).all() and missing[opposite] < 0.6

    fleet.drive(30.0, arrived)
    missing = fleet.missing_m()
    assert fleet.contacts == 0
    assert (np.delete(missing, [dies, opposite]) < 0.1).all(), missing
    assert missing[opposite] < 0.6
