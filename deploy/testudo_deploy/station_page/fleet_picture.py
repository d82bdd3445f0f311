"""The picture of a fleet as JSON values: what stands still, and what each robot does now; pure.

Lengths are m in the frame of the fleet, seen from above; ages are seconds. A value that is not known is None, and what
is silent says so: nothing old is given as present.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from testudo_deploy.fleet.fleet import Fleet
from testudo_deploy.guard.command_guard import SENTENCES
from testudo_deploy.shield.arena import Arena, Ball, Block, Obstacle
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_deploy.station.fleet_status import RobotStatus
from testudo_deploy.station.markers import GoalView, hull_outline
from testudo_deploy.station.robot_markers import FRESH_S, RobotView, segment_ends
from testudo_deploy.supervision.modes import RESTING, WATCHDOGS, Mode

SCHEMA = "testudo/station-page/1"
GOOD, REST, DOUBT, BAD, SILENT = "good", "rest", "doubt", "bad", "silent"
"""State of a robot: drives; stands by command; brakes and may go on by itself; needs an operator; not heard."""
_STANDS = (*RESTING, Mode.ARMED, Mode.HOLD, Mode.TAKE_OFF)
_PER_M = 1000.0
"""Places are rounded to a millimetre."""


def fleet_values(fleet: Fleet, arena: Arena | None, domain_id: int) -> dict[str, Any]:
    """Return what does not change while the fleet runs; ``arena`` is that of its policy, None without one."""
    return {
        "schema": SCHEMA,
        "file": fleet.file.name,
        "frame": fleet.frame,
        "domain_id": domain_id,
        "orders": fleet.orders,
        "robots": {
            robot.name: {"radius": robot.spec.body_radius_m, "type": robot.type, "flies": robot.has_flight_phases}
            for robot in fleet.robots
        },
        "arena": None if arena is None else [*map(float, arena.low_world[:2]), *map(float, arena.high_world[:2])],
        "obstacles": [_corners(outline_of(one)) for one in (() if arena is None else arena.obstacles)],
    }


def outline_of(obstacle: Obstacle) -> np.ndarray:
    """Return the corners (2, C) [m] of an obstacle seen from above."""
    if isinstance(obstacle, Ball):
        return hull_outline(np.array([obstacle.centre_world[:2]]).T, obstacle.radius_m)
    if isinstance(obstacle, Block):
        along, across = obstacle.half_size_m[:2]
        corners = np.array([[along, -along, -along, along], [across, across, -across, -across]])
        c, s = math.cos(obstacle.yaw), math.sin(obstacle.yaw)
        return np.array([[c, -s], [s, c]]) @ corners + np.array(obstacle.centre_world[:2])[:, None]
    ends = np.array([obstacle.start_world[:2], obstacle.end_world[:2]]).T
    return hull_outline(ends, obstacle.radius_m)


def picture(
    views: Sequence[RobotView],
    statuses: Iterable[RobotStatus],
    goals: Sequence[GoalView],
    *,
    now_s: float,
    more: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the picture at a time of the steady clock [s].

    Args:
        views: of all robots.
        statuses: of the same robots, or more.
        goals: of the task node; without one, a robot's own record says where it goes.
        now_s: the time.
        more: further entries: emergency stop, task and answers.
    """
    by_name, goal_of = {one.name: one for one in statuses}, {goal.name: goal for goal in goals}
    return {
        "schema": SCHEMA,
        "sent_s": now_s,
        "robots": [robot_values(view, by_name[view.name], goal_of.get(view.name)) for view in views],
        "goals": [_goal(goal) for goal in goals if goal.name not in {view.name for view in views}],
        **more,
    }


def robot_values(view: RobotView, status: RobotStatus, goal: GoalView | None) -> dict[str, Any]:
    """Return one robot."""
    reserved, requested = segment_ends(view)
    half_m = stop_tube_parameters(view.spec).clearance_m / 2
    is_placed = view.position_world is not None
    record = view.record if view.status else None
    if goal is None and record is not None and not record.task_contract:
        away_m = math.inf if view.position_world is None else math.dist(view.position_world, record.goal_world)
        goal = GoalView(view.name, record.goal_world, 0.0, away_m < view.spec.body_radius_m)
    return {
        "name": view.name,
        "tone": tone_of(status),
        "mode": status.mode,
        "why": why_of(status, view),
        "code": "" if status.is_silent else status.code,
        "guard": status.guard,
        "place": None if view.position_world is None else _place(view.position_world),
        "height": None if view.position_world is None else next(iter(view.position_world[2:]), None),
        "yaw": view.yaw if is_placed else None,
        "place_age": _finite(view.pose_age_s) if is_placed else None,
        "shown_fresh": is_placed and view.pose_age_s <= FRESH_S,
        "shield": view.status,
        "reserved": _area(reserved, half_m),
        "requested": _area(requested, half_m),
        "goal": None if goal is None else _goal(goal),
        "pose_age": _later(status.pose_age_s, status),
        "peer_age": _later(status.peer_age_s, status),
        "heard_age": _finite(status.heard_age_s),
        "tick_rate": None if status.is_silent else _finite(status.tick_rate_hz),
        "shield_share": status.interventions / status.ticks
        if status.interventions is not None and status.ticks
        else None,
        "battery": status.battery,
    }


def tone_of(status: RobotStatus) -> str:
    """Return how a robot is; an unknown mode is `BAD`."""
    if status.is_silent:
        return SILENT
    if status.mode == Mode.ACTIVE:
        return DOUBT if status.guard != "" else GOOD
    if status.mode in (Mode.HOLDING, Mode.LAND):
        return DOUBT
    return REST if status.mode in _STANDS else BAD


def why_of(status: RobotStatus, view: RobotView) -> str:
    """Return in one sentence why a robot does not drive as its policy wants; empty if it does."""
    if status.is_silent:
        heard = status.heard_age_s
        return "not heard yet" if heard is None else f"nothing heard for {heard:.0f} s"
    if status.code:
        return status.sentence if status.code in status.sentence else f"{status.code}: {status.sentence}"
    if status.guard is None:
        return "its guard is silent"
    if status.guard and status.mode not in RESTING:
        return f"{status.guard}: {SENTENCES.get(status.guard, 'its guard brakes')}"
    code = view.record.reason.partition(":")[0] if view.record is not None and view.status else ""
    if code and code != status.mode:
        known = WATCHDOGS.get(code)
        return f"{code}: {known.sentence}" if known is not None else code
    return "waits until the space ahead is free" if view.status == "waiting" and status.mode == Mode.ACTIVE else ""


def _later(age_s: float | None, status: RobotStatus) -> float | None:
    """Return an age that a robot reported, as it is now."""
    return None if age_s is None or status.heard_age_s is None else _finite(age_s + status.heard_age_s)


def _area(segment: tuple[tuple[float, ...], tuple[float, ...]] | None, half_m: float) -> list[list[float]] | None:
    if segment is None:
        return None
    return _corners(hull_outline(np.array([end[:2] for end in segment]).T, half_m))


def _corners(outline: np.ndarray) -> list[list[float]]:
    return [_place(corner) for corner in outline.T.tolist()]


def _place(position_world: Sequence[float]) -> list[float]:
    return [round(_PER_M * float(value)) / _PER_M for value in position_world[:2]]


def _goal(goal: GoalView) -> dict[str, Any]:
    return {
        "name": goal.name,
        "place": _place(goal.position_world),
        "tolerance": goal.tolerance_m,
        "reached": goal.reached,
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
