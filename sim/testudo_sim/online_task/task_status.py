"""What the station says of a live task: scores as JSON values, what it waits for, and goals to show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from testudo_deploy.launch.fleet_topics import SCORE_SCHEMA
from testudo_deploy.station.markers import GoalView, Marker, body_marker
from testudo_sim.online_task.online_task import DecisionScore, OnlineTask
from testudo_sim.online_task.task_state import goals_of

ACTIVE = "active"
"""The mode of a robot that its policy drives."""
START_ON = (ACTIVE, "poses")
"""When an episode begins: once all robots are active, or as soon as all are measured."""


def waits_for(
    live: OnlineTask, topics: Mapping[str, str], modes: Mapping[str, str], start_on: str, now_s: float
) -> tuple[str, ...]:
    """Return what keeps an episode from beginning, one sentence for each; none if it may begin.

    Args:
        live: the task.
        topics: where the poses of robots and bodies are heard.
        modes: of the robots that were heard.
        start_on: one of `START_ON`.
        now_s: on the station's clock.
    """
    found = [
        f"{name}: no pose on {topics[name]}: neither rewards nor success can be told" for name in live.unmeasured(now_s)
    ]
    if start_on == ACTIVE:
        found += [
            f"{name}: {modes.get(name, 'its mode was not heard')}" for name in live.robots if modes.get(name) != ACTIVE
        ]
    return tuple(found)


def waiting_values(live: OnlineTask, reasons: Sequence[str]) -> dict[str, Any]:
    """Return what to say before an episode begins."""
    return _head(live) | {"state": "waiting", "waits_for": list(reasons)}


def score_values(live: OnlineTask, score: DecisionScore) -> dict[str, Any]:
    """Return the outcome of a decision as JSON values; ``state`` is running, success or timeout."""
    values = asdict(score)
    outcome = values.pop("outcome")
    return _head(live) | {"state": outcome or "running", "time_s": score.decision * live.scoring.decision_s} | values


def finish_values(live: OnlineTask, score: DecisionScore) -> dict[str, Any]:
    """Return the result of an episode, for the supervisor of the fleet."""
    return {
        "scenario": live.scoring.scenario.name,
        "outcome": score.outcome,
        "time_s": score.decision * live.scoring.decision_s,
        "decisions": score.decision,
        "scored": score.scored,
        "total": dict(score.total),
    }


def goal_views(live: OnlineTask) -> tuple[GoalView, ...]:
    """Return the goals of the task: one for each robot, or of its first body."""
    places = goals_of(live.task)
    names = live.robots if places.shape[1] == len(live.robots) else live.bodies[:1] or ("goal",)
    tolerance_m = getattr(live.scoring.scenario, "tolerance_m", live.scoring.spec.body_radius_m)
    made = []
    for name, place in zip(names, places.T.tolist(), strict=False):
        pose = live.newest(name)
        reached = pose is not None and math.dist(pose.position_world, place) < tolerance_m
        made.append(GoalView(name, tuple(place), tolerance_m, reached))
    return tuple(made)


def body_markers(live: OnlineTask) -> tuple[Marker, ...]:
    """Return the bodies that were measured."""
    poses = [(box, live.newest(box.name)) for box in live.scoring.scenario.boxes]
    return tuple(
        body_marker(box.name, pose.position_world, pose.yaw, box.size_m) for box, pose in poses if pose is not None
    )


def _head(live: OnlineTask) -> dict[str, Any]:
    return {
        "schema": SCORE_SCHEMA,
        "scenario": live.scoring.scenario.name,
        "robots": list(live.robots),
        "times_of_arrival": list(live.foreign_clocks),
    }
