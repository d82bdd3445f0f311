"""Whether a robot stands because it is at its goal, or because its operator paused it.

It then wants no velocity. Everything below the policy acts as before: the shield checks the command, and the deadlock
rule, to which it is one that stands where it wants to be, lets it give way to all. The policy goes on to decide, so
that its memory and its record are the same as without.
"""

import math
from collections.abc import Sequence

import numpy as np

from testudo_deploy.control.task_receiver import TaskReading
from testudo_deploy.shield.caution import Caution, stricter

GOAL_TOLERANCE_M = 0.1
"""How near to its goal a robot has arrived, where no scenario says it [m]."""
HOLD_AFTER_S = 2.0
"""A robot that was at its goal for this time stands still."""
ARRIVED, PAUSED, YIELDS = "arrived", "paused", "gives_way"
"""Why a robot stands: it is at its goal; an operator paused it; it would stand, and gives way to another robot."""
HOLD_SENTENCES = {
    ARRIVED: "at its goal, stands",
    PAUSED: "paused, stands",
    YIELDS: "gives way to another robot",
}
STANDS = Caution(0.0, 0.0)
"""A robot that stands wants no speed, and keeps the distances of every other."""
_GOAL = "goal_world"


def standing(holds: str, caution: Caution | None) -> Caution | None:
    """Return the limits of a tick: no speed for a robot that ``holds``."""
    return stricter(caution, STANDS) if holds else caution


class GoalHold:
    """The state of one robot."""

    def __init__(self) -> None:
        self.within_m = 0.0
        """How near to a goal that no task node sends it has arrived [m]; 0: never."""
        self._goal_world: tuple[float, ...] = ()
        self._since_s = math.nan

    def reset(self) -> None:
        """Begin anew, as after a brake."""
        self._since_s = math.nan

    def step(self, now_s: float, place_world: np.ndarray, goal_world: Sequence[float], task: TaskReading | None) -> str:
        """Return why the robot stands: `ARRIVED`, `PAUSED`, or empty if its policy drives it.

        It arrives when its measured place (D,) [m] was near its goal (D,) [m] for `HOLD_AFTER_S`, and leaves with
        another goal, or when it is away from it. A goal of the ``task`` replaces that of the fleet file.
        """
        within_m = self.within_m
        if task is not None and _GOAL in task.arrays:
            goal_world, within_m = task.arrays[_GOAL].tolist(), task.hold_within_m
        goal = tuple(goal_world)
        there = len(goal) == len(place_world) and math.dist(place_world.tolist(), goal) < within_m
        if not there or goal != self._goal_world or not self._since_s <= now_s:
            self._since_s = now_s if there else math.nan
        self._goal_world = goal
        if task is not None and task.paused:
            return PAUSED
        return ARRIVED if now_s - self._since_s >= HOLD_AFTER_S else ""
