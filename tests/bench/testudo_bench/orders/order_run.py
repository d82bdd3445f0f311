"""One run: goals at random, robots that leave and come back, and what became of every goal."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from testudo_bench.orders.fleet_in_process import FleetInProcess
from testudo_deploy.contract.goal_order import GoalOrder
from testudo_deploy.fleet.fleet import Fleet

LEAVINGS = ("restarted", "silent", "lost", "late")
"""A process that ends and starts again; a robot whose messages are lost for a while; a process that ends, so that an
operator declares the robot lost, and starts again; one that is started late, after the operator declared it lost."""
_ORDER_S = (2.0, 10.0)
_LEAVE_S = (10.0, 30.0)  # from one robot's return to the next leaving
_AWAY_S = (3.0, 15.0)
_DECLARED_S = 3.0  # an operator declares a robot lost after this time
_LATE_S = 12.0
_MOST_TAIL_S = 90.0  # time to reach the last goals
_INSIDE = 0.85  # share of the arena in which goals are drawn: some are refused, most are not


@dataclass
class OrderOutcome:
    """What one run counts."""

    seed: int
    minutes: float
    contacts: int = 0  # physics steps with a contact of two bodies
    least_m: float = math.inf  # least distance of two centres
    orders: int = 0
    refused: int = 0
    reached: int = 0
    replaced: int = 0  # goals that another order replaced on the way
    open: list[str] = field(default_factory=list[str])
    """Goals that were neither, at the end, with the distance."""
    reach_s: list[float] = field(default_factory=list[float])  # from the order until the robot was at its goal
    left: dict[str, int] = field(default_factory=lambda: dict.fromkeys(LEAVINGS, 0))
    joined_s: list[float] = field(default_factory=list[float])  # from the start of a process until it drove
    not_joined: list[str] = field(default_factory=list[str])
    last_s: float = 0.0  # from the last order until all stood at their goals

    @property
    def passed(self) -> bool:
        """Return whether nothing touched, and nothing was left open."""
        return not self.contacts and not self.open and not self.not_joined

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self) | {"passed": self.passed}


class OrderRun:
    """A fleet under random orders for some minutes, then time to reach the last ones."""

    def __init__(self, fleet: Fleet, seed: int, minutes: float, *, leaving: bool = True) -> None:
        """Begin; without ``leaving`` all robots stay."""
        self.random = np.random.default_rng([seed, 1])
        late = str(self.random.choice(fleet.names)) if leaving else ""
        self.outcome = OrderOutcome(seed, minutes)
        self.fleet = FleetInProcess(fleet, seed, absent=(late,) if late else ())
        self._end_s = self.fleet.now_s + 60 * minutes
        self._pending: dict[str, float] = {}  # robots on their way, and when the goal was given
        self._plans: list[tuple[float, Callable[[], None]]] = []
        self._order_s, self._leave_s = 5.0, (_LATE_S + 10.0 if leaving else math.inf)
        self.watch: Callable[[FleetInProcess], None] = lambda _: None
        """Called after every step."""
        if late:
            self.outcome.left["late"] += 1
            place = fleet.robot(late).initial_position_world
            self._plan(_DECLARED_S, lambda: self.fleet.declare_lost(late, place))
            self._plan(_LATE_S, lambda: self.fleet.start(late))

    def drive(self) -> OrderOutcome:
        """Run to the end and return what was counted."""
        fleet, out = self.fleet, self.outcome
        while fleet.now_s < self._end_s:
            self._step()
            if fleet.now_s >= self._order_s:
                self._order_s = fleet.now_s + float(self.random.uniform(*_ORDER_S))
                self._order()
            if fleet.now_s >= self._leave_s and not self._plans:
                self._leave()
        last_s = fleet.now_s
        while fleet.now_s < last_s + _MOST_TAIL_S and not self._is_quiet():
            self._step()
        out.last_s = fleet.now_s - last_s
        for robot in self._pending:
            apart = math.dist(fleet.place(robot), fleet.live.goals_world[robot])
            out.open.append(f"{robot}: {apart:.2f} m from its goal {self._why(robot)}")
        out.joined_s = [time_s for one in fleet.robots.values() for time_s in one.joined_s]
        out.not_joined = [one.name for one in fleet.robots.values() if len(one.joined_s) < one.lives]
        out.contacts, out.least_m = fleet.bodies.contacts.any, fleet.bodies.contacts.least_m
        return out

    def _why(self, robot: str) -> str:
        one = self.fleet.robots[robot]
        return "without a process" if one.robot is None else one.robot.supervisor.sentence

    def _is_quiet(self) -> bool:
        stand = all(one.holds == "arrived" for one in self.fleet.robots.values())
        return stand and not self._pending and not self._plans

    def _plan(self, after_s: float, act: Callable[[], None]) -> None:
        self._plans.append((self.fleet.now_s + after_s, act))

    def _step(self) -> None:
        fleet = self.fleet
        fleet.step()
        for item in [item for item in self._plans if item[0] <= fleet.now_s]:
            self._plans.remove(item)
            item[1]()
        for robot in [robot for robot in self._pending if fleet.live.is_at_goal(robot)]:
            self.outcome.reach_s.append(fleet.now_s - self._pending.pop(robot))
            self.outcome.reached += 1
        self.watch(fleet)

    def _order(self) -> None:
        fleet, out = self.fleet, self.outcome
        robot = str(self.random.choice(fleet.fleet.names))
        arena = fleet.live.scoring.scenario.arena
        low, high = (_INSIDE * np.array(corner) for corner in (arena.low_world, arena.high_world))
        goal = tuple(self.random.uniform(low, high).tolist())
        answer = fleet.orders.take(GoalOrder(str(out.orders), {robot: (goal,)}))
        out.orders += 1
        if not answer.accepted:
            out.refused += 1
            return
        out.replaced += self._pending.pop(robot, None) is not None
        self._pending[robot] = fleet.now_s

    def _leave(self) -> None:
        """Let a robot leave, and plan its return; one at a time, so that the others are a majority."""
        fleet, kind = self.fleet, str(self.random.choice(LEAVINGS[:3]))
        name, away_s = str(self.random.choice(fleet.fleet.names)), float(self.random.uniform(*_AWAY_S))
        self._leave_s = fleet.now_s + away_s + float(self.random.uniform(*_LEAVE_S))
        self.outcome.left[kind] += 1
        if kind == "silent":
            one = fleet.robots[name]
            one.linked = False
            self._plan(away_s, lambda: setattr(one, "linked", True))
            return
        fleet.end(name)
        self._plan(away_s + _DECLARED_S, lambda: fleet.start(name))
        if kind == "lost":
            self._plan(_DECLARED_S, lambda: fleet.declare_lost(name, None))
