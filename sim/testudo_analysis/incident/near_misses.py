"""Robots that touched, or came nearer to each other than the shield lets them."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from testudo_analysis.incident.incident import Incident, IncidentKind, IncidentThresholds
from testudo_analysis.incident.time_spans import spans
from testudo_deploy.shield.arena import clearance
from testudo_runs.alignment import AlignedRobot, TeamRecording

_JOIN_S = 1.0
_UNSEEN_S = 1.0
"""Between two poses so far apart nobody knows how near a robot was."""


def find_encounters(recording: TeamRecording, bounds: IncidentThresholds) -> list[Incident]:
    """Return contacts and near contacts: of each two robots, with walls and obstacles, and those the plant counted."""
    found = [
        incident for first, second in combinations(recording.robots, 2) for incident in _of_pair(first, second, bounds)
    ]
    found += [incident for robot in recording.robots for incident in _with_walls(recording, robot)]
    return found + _counted(recording, found)


def distances(first: AlignedRobot, second: AlignedRobot) -> tuple[np.ndarray, np.ndarray]:
    """Return times (T,) at which both were seen, and the distances of their centres (T,) [m]."""
    at_s = first.trajectory.stamp_s
    one, other = first.trajectory.stamp_s, second.trajectory.stamp_s
    at_s = at_s[(at_s >= other[0]) & (at_s <= other[-1])]
    near = np.clip(np.searchsorted(other, at_s), 1, len(other) - 1)
    own = np.clip(np.searchsorted(one, at_s), 1, len(one) - 1)
    at_s = at_s[(other[near] - other[near - 1] <= _UNSEEN_S) & (one[own] - one[own - 1] <= _UNSEEN_S)]
    return at_s, np.linalg.norm(first.trajectory.at(at_s)[0] - second.trajectory.at(at_s)[0], axis=1)


def _of_pair(first: AlignedRobot, second: AlignedRobot, bounds: IncidentThresholds) -> list[Incident]:
    at_s, distance = distances(first, second)
    touching = first.spec.body_radius_m + second.spec.body_radius_m
    found = []
    for begin, end in spans(distance < bounds.near_m, at_s, _JOIN_S):
        worst = begin + int(np.argmin(distance[begin : end + 1]))
        value = float(distance[worst])
        touched = value < touching
        names = f"{first.name} and {second.name}"
        what = (
            f"{names} touched: {1e3 * (touching - value):.0f} mm closer than their bodies"
            if touched
            else f"{names} came within {1e3 * value:.0f} mm, {1e3 * (value - touching):.0f} mm before contact"
        )
        found.append(
            Incident(
                IncidentKind.CONTACT if touched else IncidentKind.NEAR_CONTACT,
                (first.name, second.name),
                float(at_s[begin]),
                float(at_s[end]),
                float(at_s[worst]),
                value,
                touching if touched else bounds.near_m,
                "m",
                what,
            )
        )
    return found


def _with_walls(recording: TeamRecording, robot: AlignedRobot) -> list[Incident]:
    if recording.arena is None:
        return []
    place, radius = robot.trajectory.position_world.T, robot.spec.body_radius_m
    low, high = recording.arena.corners(place)
    room = np.minimum(place - low, high - place).min(axis=0)
    for obstacle in recording.arena.obstacles:
        room = np.minimum(room, clearance(obstacle, place)[0])
    found = []
    for begin, end in spans(room < radius, robot.trajectory.stamp_s, _JOIN_S):
        worst = begin + int(np.argmin(room[begin : end + 1]))
        stamp_s = robot.trajectory.stamp_s
        found.append(
            Incident(
                IncidentKind.CONTACT,
                (robot.name,),
                float(stamp_s[begin]),
                float(stamp_s[end]),
                float(stamp_s[worst]),
                float(room[worst]),
                radius,
                "m",
                f"{robot.name} touched a wall or an obstacle: {1e3 * (radius - room[worst]):.0f} mm too far",
            )
        )
    return found


def _counted(recording: TeamRecording, known: list[Incident]) -> list[Incident]:
    """Return contacts that the plant counted, at every step of its physics, and that the recorded poses missed."""
    if recording.run is None:
        return []
    found, before, before_s = [], 0, 0.0
    for event in recording.run.events:
        count, at_s = event.values.get("contacts"), event.stamp_s - recording.start_s
        if count is None:
            continue
        seen = any(
            item.kind is IncidentKind.CONTACT and item.begin_s - _JOIN_S <= at_s and before_s <= item.end_s + _JOIN_S
            for item in (*known, *found)
        )
        if count > before and not seen:
            pair = tuple(name for name in event.values.get("closest", ()) if name in recording.names)
            distance = event.values.get("separation_m")
            found.append(
                Incident(
                    IncidentKind.CONTACT,
                    pair or recording.names,
                    before_s,
                    at_s,
                    at_s,
                    2 * recording.spec.body_radius_m if distance is None else float(distance),
                    2 * recording.spec.body_radius_m,
                    "m",
                    f"the plant counted {count - before} steps of contact, closest {' and '.join(pair) or 'unknown'}",
                )
            )
        before, before_s = max(int(count), before), at_s
    return found
