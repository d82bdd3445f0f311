"""Goals that an operator gives while a fleet runs: what is accepted, and which goal comes next.

A goal changes the nominal velocity only: the shield acts on it as on any other.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linear_sum_assignment

from testudo_deploy.contract.contract import Contract
from testudo_deploy.contract.goal_order import ACTS, GO, PAUSE, GoalAnswer, GoalOrder
from testudo_deploy.contract.messages import Vector
from testudo_deploy.control.goal_hold import HOLD_AFTER_S
from testudo_deploy.shield.arena import Arena, distance_to
from testudo_hardware.errors import TestudoError
from testudo_sim.online_task.detours import Detours
from testudo_sim.online_task.online_task import OnlineTask
from testudo_sim.scenarios.goal_scenario import GoalScenario, room_m

NOBODY: Mapping[str, Vector] = {}
_KEPT_ANSWERS = 256  # far more orders than a program sends while it repeats one of them
_DONE_AFTER_S = HOLD_AFTER_S + 1.0
"""Robots that were at their last goals for this time also stand, and the job is done."""


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

    def fault(
        self,
        robot: str,
        goal_world: Sequence[float],
        others: Mapping[str, Sequence[float]],
        size: int,
        silent: Mapping[str, Sequence[float]] = NOBODY,
    ) -> str:
        """Return why a goal (D,) [m] of a robot is refused; empty if it is not.

        ``others`` are the goals of the others, ``silent`` the places where robots that are not measured were last.
        """
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
        for text, places in (("the goal of {}", others), ("{}, which is silent", silent)):
            for other, place in places.items():
                apart = self._distance(goal_world, place)
                if other != robot and apart < self.apart_m:
                    found = f"is {apart:.2f} m from {text.format(other)}"
                    return f"{where}: {found}, expected at least {self.apart_m:.2f} m"
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
        self._silent: dict[str, Vector] = {}
        """Robots that are not measured now, and where they were last."""
        self._job, self._there_since_s = False, math.inf
        shield, in_plane = contract.shield, live.scoring.spec.dimension == 2
        ways = Detours(contract.arena, room_m=shield.wall_m, separation_m=shield.separation_m)
        self._detours = ways if in_plane else None
        self.leads_round = True
        """Robots that do not come nearer to their goals are led round those that stand."""
        self.reached = 0
        """Goals that robots have reached and left for the next, or for another order."""

    @property
    def waits(self) -> Mapping[str, str]:
        """Return by robot why its next goal is not given yet."""
        return self._waits

    def take(self, order: GoalOrder) -> GoalAnswer:
        """Give robots new goals, or refuse all of them: each then keeps its present goal."""
        if order.order not in self._answers:
            fault = self._request_fault(order)
            refused = GoalAnswer(order.order, accepted=False, sentences=(fault,))
            self._answers[order.order] = refused if fault else self._done(order)
            if len(self._answers) > _KEPT_ANSWERS:
                del self._answers[next(iter(self._answers))]
        return self._answers[order.order]

    def step(self, now_s: float) -> None:
        """Lead each robot that is at its goal to its next one, as soon as that is free."""
        self._see_silent(now_s)
        self._waits.clear()
        for robot, route in list(self._routes.items()):
            following = route.next if self._live.is_at_goal(robot) and robot not in self._live.paused else None
            if following is None:
                continue
            goal = following.goals_world[following.at]
            fault = self._rules.fault(robot, goal, self._live.goals_world, len(goal), self._silent)
            if fault:
                self._waits[robot] = fault
                continue
            self._routes[robot] = following
            self._aim(robot, goal)
        self._see_end(now_s)
        self._lead_round(now_s)

    def is_over(self, now_s: float) -> bool:
        """Return whether the job is done: every robot stands at the last of its goals.

        A fleet whose robots stand at their goals from the start has a job only once it has taken an order.
        """
        return now_s - self._there_since_s >= _DONE_AFTER_S

    def _lead_round(self, now_s: float) -> None:
        """Send robots that do not come nearer to their goals round those that stand."""
        live, ways = self._live, self._detours
        live.corners_world = {}
        if ways is None or not self.leads_round:
            return
        places = {name: pose.position_world for name in live.robots if (pose := live.newest(name)) is not None}
        ways.see(places, now_s)
        corners: dict[str, Vector] = {}
        for name, goal in live.goals_world.items():
            if name not in places or name in self._silent or name in live.paused or live.is_at_goal(name):
                ways.forget(name)
                continue
            corner = ways.corner(name, goal, places, now_s)
            if corner is not None:
                corners[name] = corner
        live.corners_world = corners
        for name in ways.shut:
            where = ", ".join(f"{value:.2f}" for value in live.goals_world[name])
            self._waits[name] = f"{name}: finds no way to ({where}) round the robots that stand; move one of them"

    def _see_silent(self, now_s: float) -> None:
        names = set(self._live.unmeasured(now_s)) & set(self._live.robots)
        poses = {name: self._live.newest(name) for name in names}
        self._silent = {name: pose.position_world for name, pose in poses.items() if pose is not None}

    def _see_end(self, now_s: float) -> None:
        live = self._live
        left = [name for name in live.robots if not live.is_at_goal(name)]
        self._job |= any(live.newest(name) is not None for name in left)
        follows = any(route.next is not None for route in self._routes.values())
        is_done = self._job and not (left or follows or live.paused)
        self._there_since_s = min(self._there_since_s, now_s) if is_done else math.inf

    def _request_fault(self, order: GoalOrder) -> str:
        """Return why an order is none; empty if its goals are to be judged."""
        known = ", ".join(self._live.robots)
        for robot in order.goals_world:
            if robot not in self._live.robots:
                return f"{robot}: no such robot; there are {known}"
        if not order.goals_world or order.act not in ACTS:
            return f"order: found robots {sorted(order.goals_world)} to {order.act!r}, expected some of {known}"
        if order.exchange and any(len(goals) != 1 for goals in order.goals_world.values()):
            return "order: found places to exchange, expected one for each robot"
        return ""

    def _done(self, order: GoalOrder) -> GoalAnswer:
        """Do what an order says, or refuse it."""
        names = tuple(order.goals_world)
        if order.act != GO:
            paused = self._live.paused
            self._live.paused = paused | set(names) if order.act == PAUSE else paused - set(names)
            return GoalAnswer(order.order, accepted=True, sentences=tuple(map(self._what_follows, names)))
        routes = self._shortest(order) if order.exchange else dict(order.goals_world)
        routes = {robot: goals or (self._starts[robot],) for robot, goals in routes.items()}
        faults = self._faults(routes)
        if faults:
            return GoalAnswer(order.order, accepted=False, sentences=faults)
        for robot, goals in routes.items():
            self._routes[robot] = Route(goals, order.repeat)
            self._aim(robot, goals[0])
        self._job = True
        return GoalAnswer(order.order, accepted=True, sentences=tuple(map(self._what_follows, names)))

    def _faults(self, routes: Mapping[str, tuple[Vector, ...]]) -> tuple[str, ...]:
        """Return why goals are refused, one sentence for a robot."""
        size, found = self._live.scoring.spec.dimension, []
        first = self._live.goals_world | {robot: goals[0] for robot, goals in routes.items()}
        for robot, goals in routes.items():
            # where others are and go counts for the first goal only: they may have gone until the rest is due
            faults = [self._rules.fault(robot, goals[0], first, size, self._silent)]
            faults += [self._rules.fault(robot, goal, NOBODY, size) for goal in goals[1:]]
            found += [fault for fault in faults if fault][:1]
        return tuple(found)

    def _shortest(self, order: GoalOrder) -> dict[str, tuple[Vector, ...]]:
        """Return the places of an order, so exchanged among its robots that the sum of squared ways is least."""
        names, places = list(order.goals_world), [goals[0] for goals in order.goals_world.values()]
        size = self._live.scoring.spec.dimension
        if any(len(place) != size for place in places):
            return dict(order.goals_world)  # to be refused
        poses = [self._live.newest(name) for name in names]
        begins = [
            self._starts[name] if pose is None else pose.position_world for name, pose in zip(names, poses, strict=True)
        ]
        ways = np.sum((np.array(begins, float)[:, None] - np.array(places, float)) ** 2, axis=-1)
        chosen = linear_sum_assignment(np.nan_to_num(ways, nan=1e12, posinf=1e12))[1]
        return {name: (places[k],) for name, k in zip(names, chosen, strict=True)}

    def _what_follows(self, robot: str) -> str:
        """Return what a robot does now as a sentence."""
        goal, route = self._live.goals_world[robot], self._routes.get(robot)
        left = 0 if route is None else len(route.goals_world) - 1 - route.at
        rest = f", then {left} more" if left else ""
        place = f"({', '.join(f'{value:.2f}' for value in goal)}){rest}"
        silent = "; it is not measured now" if robot in self._silent or self._live.newest(robot) is None else ""
        if robot in self._live.paused:
            return f"{robot}: is paused on its way to {place}{silent}"
        return f"{robot}: goes to {place}{silent}"

    def _aim(self, robot: str, goal_world: Sequence[float]) -> None:
        self.reached += self._live.is_at_goal(robot)
        self._live.aim(robot, goal_world)
