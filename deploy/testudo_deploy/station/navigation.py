"""Goals of nav2's action `NavigateToPose`, as orders for the robots of a running fleet; pure, on one injected clock."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from testudo_deploy.contract.goal_order import GO, GO_ON, PAUSE, GoalAnswer, GoalOrder
from testudo_deploy.contract.messages import Vector

DRIVES, ARRIVED, REFUSED, REPLACED = "drives", "arrived", "refused", "replaced"
_ARRIVED = "arrived"  # `holds` of a robot that stands at its goal
_BELIEVED_S = 1.0  # before this time after the acceptance a robot may still report its goal before
_ANSWERED_S = 10.0  # an order is repeated for this time


@dataclass(frozen=True)
class Progress:
    """Where a robot is on the way to a goal of the action."""

    state: str  # drives, arrived, refused or replaced
    sentence: str
    distance_m: float | None  # from the robot to the goal; None while its place is not known
    time_s: float  # since the goal was given


class RobotNavigation:
    """The present goal of one robot."""

    def __init__(self, robot: str, frame: str) -> None:
        """Begin without a goal; ``frame`` is that of the fleet."""
        self._robot, self._frame = robot, frame
        self._order: GoalOrder | None = None
        self._goal_world: Vector = ()
        self._place_world: Vector | None = None
        self._given_s = self._accepted_s = math.inf
        self._state, self._sentence = DRIVES, ""
        self._others: set[str] = set()
        """Orders of others for this robot, which count once the task node accepts them."""
        self._mine: set[str] = set()

    def fault(self, frame: str, position: Sequence[float]) -> str:
        """Return why a goal is none, before the task node is asked; empty if it may be one."""
        if frame != self._frame:
            return f"{self._robot}: goal: found the frame {frame!r}, expected {self._frame!r}, that of the fleet"
        if not all(map(math.isfinite, position)):
            return f"{self._robot}: goal: found {list(position)}, expected finite numbers"
        return ""

    def begin(self, position_world: Sequence[float], name: str, now_s: float) -> None:
        """Give the robot a goal (2,) [m]; ``name`` names its order."""
        self._goal_world = (float(position_world[0]), float(position_world[1]))
        self._order = GoalOrder(name, {self._robot: (self._goal_world,)}, act=GO)
        self._mine.add(name)
        self._others.clear()
        self._given_s, self._accepted_s = now_s, math.inf
        self._state, self._sentence = DRIVES, f"{self._robot}: the task node is asked"

    def to_send(self, now_s: float) -> GoalOrder | None:
        """Return the order to repeat until it is answered; None if there is none."""
        waits = self._order is not None and self._state == DRIVES and not math.isfinite(self._accepted_s)
        if waits and now_s - self._given_s > _ANSWERED_S:
            self._state = REFUSED
            self._sentence = f"{self._robot}: nobody answered; does the fleet run, with `orders: true`?"
        return self._order if waits and self._state == DRIVES else None

    def go_on(self, name: str) -> GoalOrder:
        """Return the order that ends the pause of an earlier cancel."""
        self._mine.add(name)
        return GoalOrder(name, {self._robot: ()}, act=GO_ON)

    def cancel(self, name: str) -> GoalOrder:
        """Forget the goal, and return the order to stand."""
        self._mine.add(name)
        self._order = None
        return GoalOrder(name, {self._robot: ()}, act=PAUSE)

    def hear_order(self, order: GoalOrder) -> None:
        """Take an order of anybody."""
        if order.order not in self._mine and order.act == GO and self._robot in order.goals_world:
            self._others.add(order.order)

    def hear_answer(self, answer: GoalAnswer, now_s: float) -> None:
        """Take an answer of the task node."""
        said = next((text for text in answer.sentences if text.startswith(f"{self._robot}:")), "")
        if answer.accepted and answer.order in self._others and self._state == DRIVES:
            self._state, self._sentence = REPLACED, f"{self._robot}: another order replaced this goal"
        if self._order is None or answer.order != self._order.order or math.isfinite(self._accepted_s):
            return
        self._sentence = said or "; ".join(answer.sentences)
        if answer.accepted:
            self._accepted_s = now_s
        else:
            self._state = REFUSED

    def see(self, position_world: Sequence[float]) -> None:
        """Take the place of the robot (D,) [m]."""
        self._place_world = tuple(position_world)

    def hear_holds(self, holds: str, now_s: float) -> None:
        """Take why the robot stands, see `goal_hold`."""
        if holds == _ARRIVED and self._state == DRIVES and now_s - self._accepted_s >= _BELIEVED_S:
            self._state, self._sentence = ARRIVED, f"{self._robot}: is at its goal"

    def progress(self, now_s: float) -> Progress:
        """Return where it is."""
        known = self._place_world is not None and bool(self._goal_world)
        apart_m = math.dist(self._place_world[:2], self._goal_world) if known and self._place_world else None
        return Progress(self._state, self._sentence, apart_m, max(now_s - self._given_s, 0.0))
