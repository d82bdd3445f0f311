"""Goals that an operator gives while a fleet runs: what is accepted, and which goal comes next.

A goal changes the nominal velocity only: the shield acts on it as on any other.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from testudo_deploy.contract.contract import Contract
from testudo_deploy.contract.goal_order import GoalAnswer, GoalOrder
from testudo_deploy.contract.messages import Vector
from testudo_deploy.shield.arena import Arena, distance_to
from testudo_hardware.errors import TestudoError
from testudo_sim.online_task.online_task import OnlineTask
from testudo_sim.scenarios.goal_scenario import GoalScenario, room_m


@dataclass(frozen=True)
class Route:
    """The goals of one robot."""

    goals_world: tuple[Vector, ...]
    repeat: bool
    at: int = 0  # index of the present goal

    @property
    def next(self) -> "Route | None":
        """Return the route at its next goal; None after the last one."""
        following = self.at + 1
        if following < len(self.goals_world):
            return replace(self, at=following)
        return replace(self, at=0) if self.repeat and len(self.goals_world) > 1 else None


@dataclass(frozen=True)
class GoalRules:
    """What a goal must keep: the arena of the policy, and the distances at which robots can rest."""

    arena: Arena | None
    room_m: float  # from walls and obstacles
    apart_m: float  # from the goals of others
    height_ratio: float  # heights between robots count 1/this

    @classmethod
    def of(cls, contract: Contract, scenario: GoalScenario) -> "GoalRules":
        """Return the rules of a policy and its scenario."""
        shield = contract.shield
        apart_m = shield.separation_m + 2 * scenario.tolerance_m
        return cls(contract.arena, room_m(scenario.spec, shield), apart_m, shield.height_ratio)

    def fault(self, robot: str, goal_world: Sequence[float], others: Mapping[str, Sequence[float]], size: int) -> str:
        """Return why a goal (D,) [m] of a robot is refused, with the goals of the others; empty if it is not."""
        where = f"{robot}: goal ({', '.join(f'{value:.2f}' for value in goal_world)})"
        if len(goal_world) != size or not all(map(math.isfinite, goal_world)):
            return f"{where}: expected {size} finite numbers"
        if self.arena is not None:
            for axis, value, low, high in zip("xyz", goal_world, *self.arena_corners, strict=False):
                if not low + self.room_m <= value <= high - self.room_m:
                    span = f"{low + self.room_m:.2f} to {high - self.room_m:.2f} m"
                    return f"{where}: found {axis} = {value:.2f} m, expected {span}: the arena less {self.room_m:.2f} m"
            for number, obstacle in enumerate(self.arena.obstacles):
                room = float(distance_to(obstacle, np.asarray(goal_world, float)))
                if room < self.room_m:
                    return f"{where}: is {room:.2f} m from obstacle {number}, expected at least {self.room_m:.2f} m"
        for other, place in others.items():
            apart = self._distance(goal_world, place)
            if other != robot and apart < self.apart_m:
                return f"{where}: is {apart:.2f} m from the goal of {other}, expected at least {self.apart_m:.2f} m"
        return ""

    @property
    def arena_corners(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the lowest and the highest corner of the arena [m]."""
        return ((), ()) if self.arena is None else (self.arena.low_world, self.arena.high_world)

    def _distance(self, first: Sequence[float], second: Sequence[float]) -> float:
        gaps = np.subtract(first, second)
        gaps[2:] /= self.height_ratio
        return float(np.linalg.norm(gaps))


class GoalOrders:
    """Takes orders for the robots of a running task, and leads each along its goals."""

    def __init__(self, live: OnlineTask, contract: Contract, starts_world: Mapping[str, Vector]) -> None:
        """Begin with the goals of the task.

        ``starts_world`` are the initial positions (D,) [m] by robot, where an order without goals leads.

        Raises:
            TestudoError: the task has not one goal for each robot.
        """
        scenario = live.scoring.scenario
        if not isinstance(scenario, GoalScenario) or len(live.goals_world) != len(live.robots):
            raise TestudoError(f"orders: found the scenario {scenario.name!r}, expected one with a goal for each robot")
        self._live, self._rules, self._starts = live, GoalRules.of(contract, scenario), dict(starts_world)
        self._routes: dict[str, Route] = {}
        self._answers: dict[str, GoalAnswer] = {}
        self._waits: dict[str, str] = {}
        self.reached = 0
        """Goals that robots have reached and left for the next, or for another order."""

    @property
    def waits(self) -> Mapping[str, str]:
        """Return by robot why its next goal is not given yet."""
        return self._waits

    def take(self, order: GoalOrder) -> GoalAnswer:
        """Give a robot new goals, or refuse them; the robot then keeps its present goal."""
        if order.order not in self._answers:
            self._answers[order.order] = self._judged(order)
        return self._answers[order.order]

    def step(self) -> None:
        """Lead each robot that is at its goal to its next one, as soon as that is free."""
        self._waits.clear()
        for robot, route in list(self._routes.items()):
            following = route.next if self._live.is_at_goal(robot) else None
            if following is None:
                continue
            goal = following.goals_world[following.at]
            fault = self._rules.fault(robot, goal, self._live.goals_world, len(goal))
            if fault:
                self._waits[robot] = fault
                continue
            self._routes[robot] = following
            self._aim(robot, goal)

    def _judged(self, order: GoalOrder) -> GoalAnswer:
        robot = order.robot
        if robot not in self._live.robots:
            known = ", ".join(self._live.robots)
            return GoalAnswer(order.order, robot, accepted=False, sentence=f"{robot}: no such robot; there are {known}")
        first, *following = goals = order.goals_world or (self._starts[robot],)
        size = self._live.scoring.spec.dimension
        # the goals of others count for the first one only: these may have gone until the others are due
        for k, goal in enumerate(goals):
            fault = self._rules.fault(robot, goal, self._live.goals_world if k == 0 else {}, size)
            if fault:
                return GoalAnswer(order.order, robot, accepted=False, sentence=fault)
        self._routes[robot] = Route(goals, order.repeat)
        self._aim(robot, first)
        rest = f", then {len(following)} more" if following else ""
        place = ", ".join(f"{value:.2f}" for value in first)
        return GoalAnswer(order.order, robot, accepted=True, sentence=f"{robot}: goes to ({place}){rest}")

    def _aim(self, robot: str, goal_world: Sequence[float]) -> None:
        self.reached += self._live.is_at_goal(robot)
        self._live.aim(robot, goal_world)
