"""Deadlocks: robots that stand for a long time short of their goals, or despite commands to drive."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from testudo_analysis.incident.incident import Incident, IncidentKind, IncidentThresholds, spans
from testudo_analysis.incident.tick_incidents import driven
from testudo_runs.alignment import AlignedRobot, TeamRecording
from testudo_runs.run_reader import ticks_in_order

_STILL_M = 0.02  # a robot stands if it moves by less in `IncidentThresholds.still_s`
_GRID_S = 0.1
_ARRIVED_M = 0.1
_RESTS = ("armed", "idle", "disarmed", "hold", "land", "emergency")  # modes in which a robot is not to drive
_FRESH_S = 0.5
_DRIVE_SHARE = 0.1  # share of the speed limit from which a command counts as a command to drive


def find_deadlocks(recording: TeamRecording, bounds: IncidentThresholds) -> list[Incident]:
    """Return deadlocks; robots that stand at the same time are one."""
    single = [incident for robot in recording.robots for incident in _of_robot(recording, robot, bounds)]
    groups: list[list[Incident]] = []
    for incident in sorted(single, key=lambda item: item.begin_s):
        if groups and incident.begin_s <= max(item.end_s for item in groups[-1]):
            groups[-1].append(incident)
        else:
            groups.append([incident])
    return [_joined(group) for group in groups]


def _of_robot(recording: TeamRecording, robot: AlignedRobot, bounds: IncidentThresholds) -> list[Incident]:
    at_s = np.arange(*_watched(recording, robot), _GRID_S)
    window = round(bounds.still_s / _GRID_S)
    if len(at_s) <= window:
        return []
    place = robot.trajectory.at(at_s)[0]
    views = np.lib.stride_tricks.sliding_window_view(place, window + 1, axis=0)
    still = np.zeros(len(at_s), bool)
    for begin in np.flatnonzero(np.linalg.norm(np.ptp(views, axis=-1), axis=1) < _STILL_M):
        still[begin : begin + window + 1] = True
    found, names = [], (robot.name,)
    for begin, end in spans(still & _wants_to_move(robot, at_s, place), at_s):
        span, lasted = (begin, end, begin), at_s[end] - at_s[begin]
        if lasted >= bounds.still_s - _GRID_S:
            found.append(Incident.over(IncidentKind.DEADLOCK, names, at_s, span, lasted, bounds.still_s, "s", ""))
    return found


def _watched(recording: TeamRecording, robot: AlignedRobot) -> tuple[float, float]:
    """Return from when to when the robot could drive; in a Testudo run from its first driven tick."""
    begin, end = float(robot.trajectory.stamp_s[0]), float(robot.trajectory.stamp_s[-1])
    if recording.run is None or not recording.run.ticks[robot.name]:
        return begin, end
    ticks = ticks_in_order(recording.run.ticks[robot.name])
    part = driven(ticks)
    if part.stop == 0:
        return begin, begin
    first = ticks[part.start].stamp_s - recording.start_s
    stopped = [tick.stamp_s - recording.start_s for tick in ticks[part.stop :] if tick.reason.split(":")[0] in _RESTS]
    return max(begin, first), min([end, *stopped[:1]])


def _wants_to_move(robot: AlignedRobot, at_s: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Return when (T,) the robot was short of its goal or, without a known goal, had a command to drive."""
    if robot.goal_world is not None:
        away = np.linalg.norm(place - np.array(robot.goal_world), axis=1)
        return away > max(_ARRIVED_M, robot.spec.body_radius_m)
    if robot.commands is None:
        return np.zeros(len(at_s), bool)
    command, fresh = robot.commands.held(at_s, _FRESH_S)
    return fresh & (np.abs(command[:, 0]) > _DRIVE_SHARE * robot.spec.speed_limit_m_s)


def _joined(group: Sequence[Incident]) -> Incident:
    """Return one incident of several that overlap in time."""
    robots = tuple(sorted({name for item in group for name in item.robots}))
    begin, end = min(item.begin_s for item in group), max(item.end_s for item in group)
    verb = "stand" if len(robots) > 1 else "stands"
    what = f"{' and '.join(robots)} {verb} for {end - begin:.1f} s without arriving"
    return replace(group[0], robots=robots, begin_s=begin, end_s=end, value=end - begin, what=what)
