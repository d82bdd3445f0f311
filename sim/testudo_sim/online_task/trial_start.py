"""The way to the start of a trial: robots drive to drawn places as to any goal, then the task and its goals begin.

A place is a goal like one of `goal_orders`: it changes the nominal velocity only, and the shield acts as always.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from testudo_deploy.launch.topic_names import NOT_AT_START
from testudo_hardware.errors import TestudoError
from testudo_sim.online_task.online_task import OnlineTask
from testudo_sim.scenarios.goal_scenario import GoalScenario

HOLD_S = 1.0
"""All robots must be at their places for this time."""


class TrialStart:
    """The start of one trial on a running fleet; times are seconds on the clock of the task node."""

    def __init__(self, live: OnlineTask, values: Mapping[str, Any], now_s: float) -> None:
        """Lead the robots to their places; ``values`` are ``starts``, by robot (D,) [m], and ``patience_s``.

        Raises:
            TestudoError: the task has not one goal for each robot, or a place or the patience is none.
        """
        if not isinstance(live.scoring.scenario, GoalScenario) or len(live.goals_world) != len(live.robots):
            raise TestudoError(
                f"trial: found the scenario {live.scoring.scenario.name!r}, expected one with a goal for each robot: "
                "its policy also drives them to their starts"
            )
        self._live, self._goals = live, live.goals_world
        starts = values.get("starts")
        if not isinstance(starts, Mapping) or set(starts) != set(live.robots):
            raise TestudoError(f"trial: found starts {starts!r}, expected a place for each of {', '.join(live.robots)}")
        self._starts = {name: self._place(name, starts[name]) for name in live.robots}
        self._end_s = now_s + float(values.get("patience_s", math.nan))
        if not self._end_s < math.inf:
            raise TestudoError(f"trial: found patience_s {values.get('patience_s')!r}, expected a time [s]")
        self._there_since_s: float | None = None
        for name, place in self._starts.items():
            live.aim(name, place)

    def step(self, now_s: float) -> tuple[str, ...]:
        """Return why the task cannot begin yet, as sentences; none: the robots have their goals, and it begins now."""
        missing = self.missing
        if missing:
            self._there_since_s = None
            return missing
        if self._there_since_s is None:
            self._there_since_s = now_s
        if now_s - self._there_since_s < HOLD_S:
            return tuple(f"{name}: at its start for less than {HOLD_S:g} s" for name in self._live.robots)
        for name, goal in self._goals.items():
            self._live.aim(name, goal)
        return ()

    def is_over(self, now_s: float) -> bool:
        """Return whether the time to drive to the starts is over."""
        return now_s >= self._end_s

    @property
    def missing(self) -> tuple[str, ...]:
        """Return the robots that are not at their places, with the distances, as sentences."""
        found = []
        for name, place in self._starts.items():
            pose = self._live.newest(name)
            left_m = math.inf if pose is None else math.dist(pose.position_world, place)
            if not left_m < self._live.tolerance_m:
                where = ", ".join(f"{value:.2f}" for value in place)
                found.append(f"{name}: is {left_m:.2f} m from its start ({where})")
        return tuple(found)

    def refused(self, reasons: Sequence[str]) -> dict[str, Any]:
        """Return the result of a trial that could not begin, for the supervisor of the fleet."""
        return {
            "scenario": self._live.scoring.scenario.name,
            "outcome": NOT_AT_START,
            "time_s": 0.0,
            "reasons": list(dict.fromkeys((*self.missing, *reasons))),
        }

    def _place(self, name: str, value: Any) -> tuple[float, ...]:
        size = self._live.scoring.spec.dimension
        is_list = isinstance(value, Sequence) and not isinstance(value, str) and len(value) == size
        if not is_list or not all(isinstance(x, (int, float)) and math.isfinite(x) for x in value):
            raise TestudoError(f"trial: starts.{name}: found {value!r}, expected {size} finite numbers")
        return tuple(float(x) for x in value)
