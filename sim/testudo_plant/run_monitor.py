"""Monitors a run on the plant: start, goal distances, contacts, driver faults, end."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from testudo_deploy.control.goal_hold import GOAL_TOLERANCE_M
from testudo_deploy.fleet.policy_groups import Follow
from testudo_deploy.launch.topic_names import ARRIVED, ENDED, TIMEOUT
from testudo_plant.plant.driver import AppliedCommand, DriverReason
from testudo_plant.plant.plant import Plant

_STATE_PERIOD_S = 0.2
_FAULTS = (
    DriverReason.DEAD_MAN,
    DriverReason.NON_FINITE,
    DriverReason.LEVELLED,
    DriverReason.ONBOARD_BRAKE,
    DriverReason.LOCKED,
)


@dataclass(frozen=True)
class RunLimits:
    """End conditions of a run; times [s], lengths [m]."""

    goals_world: Mapping[str, tuple[float, ...]]  # (D,) [m] by robot; for a follower, with its leader at the start
    duration_s: float  # longest time from the start to arrival, or of the task to its end
    tolerance_m: float = GOAL_TOLERANCE_M
    hold_s: float = 1.0  # time that all robots must be at their goals simultaneously
    start_patience_s: float = 30.0  # longest time until every robot has its first command
    follows: Mapping[str, Follow] = field(default_factory=dict)  # goals of robots that follow another one
    arrive: bool = True  # the run ends when all are at their goals; otherwise its task ends it, see `RunMonitor.end`
    open_end: bool = False  # to reach the time-out is what is wanted


class RunMonitor:
    """Converts the state of a plant to events: JSON values with ``event`` and ``stamp_s``."""

    def __init__(self, rules: RunLimits, now_s: float) -> None:
        self._rules = rules
        self._created_s = now_s
        self._start_s: float | None = None
        self._task_s: float | None = None
        self._arrived_since_s: float | None = None
        self._next_state_s = now_s
        self._reported_contacts = 0
        self._reasons = dict.fromkeys(rules.goals_world, DriverReason.START)
        self.outcome = ""
        """Empty during the run; then arrived, timeout, ended or not_started."""

    def watch(self, plant: Plant, now_s: float) -> list[dict[str, Any]]:
        """Return the new events at ``now_s`` [s]."""
        new = plant.contacts[self._reported_contacts :]
        self._reported_contacts += len(new)
        events = [
            self._event("contact", one.time_s, first=one.first, second=one.second, depth_m=one.depth_m) for one in new
        ] + self._drivers(plant, now_s)
        distances = self._distances(plant)
        if self._start_s is None and all(plant.verdicts(name) for name in distances):
            self._start_s = now_s
            events.append(self._event("started", now_s, robots=list(distances)))
        if not self.outcome:
            self._judge(distances, now_s)
            if self.outcome:
                events.append(self.end(plant, now_s, self.outcome))
        if now_s >= self._next_state_s:
            self._next_state_s = now_s + _STATE_PERIOD_S
            events.append(self._event("state", now_s, **self._summary(plant, distances, now_s)))
        return events

    def begin_task(self, now_s: float) -> None:
        """Count the time-out from here: the task of the station runs; before it has compiled its functions."""
        if self._task_s is None:
            self._task_s = now_s

    def end(self, plant: Plant, now_s: float, outcome: str) -> dict[str, Any]:
        """End a run early with ``outcome`` and return the event ``finished``."""
        self.outcome = outcome
        return self._event("finished", now_s, outcome=outcome, **self._summary(plant, self._distances(plant), now_s))

    def _judge(self, distances: Mapping[str, float], now_s: float) -> None:
        rules = self._rules
        if self._start_s is None:
            if now_s - self._created_s > rules.start_patience_s:
                self.outcome = "not_started"
            return
        there = rules.arrive and all(distance < rules.tolerance_m for distance in distances.values())
        if not there:
            self._arrived_since_s = None
        elif self._arrived_since_s is None:
            self._arrived_since_s = now_s
        if self._arrived_since_s is not None and now_s - self._arrived_since_s >= rules.hold_s:
            self.outcome = ARRIVED
        elif now_s - max(self._start_s, self._task_s or self._start_s) > rules.duration_s:
            self.outcome = ENDED if rules.open_end else TIMEOUT

    def _summary(self, plant: Plant, distances: Mapping[str, float], now_s: float) -> dict[str, Any]:
        separations = plant.watch.separations
        closest = separations[0] if separations and math.isfinite(separations[0].distance_m) else None
        arrived_s = self._arrived_since_s
        end_s = arrived_s if self.outcome == ARRIVED and arrived_s is not None else now_s
        return {
            "time_s": 0.0 if self._start_s is None else end_s - self._start_s,
            "distance_m": dict(distances) if self._rules.arrive else {},
            "contacts": len(plant.contacts),
            "separation_m": closest.distance_m if closest else None,
            "closest": [closest.first, closest.second] if closest else [],
            "silent": [name for name in distances if not plant.verdicts(name)],
        }

    def _distances(self, plant: Plant) -> dict[str, float]:
        return {
            name: math.dist(plant.truth(name).position_world, self._goal_world(plant, name))
            for name in self._rules.goals_world
        }

    def _goal_world(self, plant: Plant, name: str) -> tuple[float, ...]:
        follow, goal = self._rules.follows.get(name), self._rules.goals_world[name]
        return goal if follow is None else follow.goal_world(plant.truth(follow.robot).position_world, len(goal))

    def _drivers(self, plant: Plant, now_s: float) -> list[dict[str, Any]]:
        """Return events of drivers that started or stopped braking by themselves."""
        events = []
        for name, before in self._reasons.items():
            applied: AppliedCommand = plant.applied(name)
            self._reasons[name] = applied.reason
            if applied.reason is not before and (applied.reason in _FAULTS or before in _FAULTS):
                events.append(
                    self._event(
                        "driver",
                        now_s,
                        robot=name,
                        reason=str(applied.reason),
                        since_s=applied.since_s,
                        sentence=applied.sentence,
                    )
                )
        return events

    @staticmethod
    def _event(kind: str, stamp_s: float, **values: Any) -> dict[str, Any]:
        return {"event": kind, "stamp_s": stamp_s, **values}
