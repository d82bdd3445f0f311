"""All incidents of a run; contacts and near contacts are found in this module."""

import math
from dataclasses import replace
from itertools import combinations

import numpy as np

from testudo_analysis.incident.deadlocks import find_deadlocks
from testudo_analysis.incident.incident import Incident, IncidentKind, IncidentThresholds, largest, spans
from testudo_analysis.incident.likely_causes import with_likely_cause
from testudo_analysis.incident.motion_incidents import find_in_motion
from testudo_analysis.incident.tick_incidents import find_in_ticks
from testudo_deploy.shield.arena import distance_to
from testudo_runs.alignment import AlignedRobot, TeamRecording

_JOIN_S = 1.0
_SURE = 0.975  # probability of contact from which it is said to have happened
_UNSEEN_S = 1.0  # between two poses further apart the distance to other robots is unknown


def find_incidents(recording: TeamRecording, bounds: IncidentThresholds | None = None) -> list[Incident]:
    """Return the incidents of a run in the order of time, each with its likeliest cause."""
    bounds = bounds or IncidentThresholds.of(recording)
    # contacts and near contacts: of each pair of robots, with walls and obstacles, and those of the plant
    encounters = [
        incident
        for first, second in combinations(recording.robots, 2)
        for incident in _of_pair(first, second, bounds, exact=recording.run is not None and _seen(first, second))
    ]
    encounters += [incident for robot in recording.robots for incident in _with_walls(recording, robot)]
    found = [
        *encounters,
        *_counted(recording, encounters),
        *find_in_motion(recording, bounds),
        *find_deadlocks(recording, bounds),
        *find_in_ticks(recording, bounds),
    ]
    return with_likely_cause(recording, sorted(found, key=lambda incident: (incident.begin_s, incident.weight)))


def distances(first: AlignedRobot, second: AlignedRobot) -> tuple[np.ndarray, np.ndarray]:
    """Return times (T,) at which both were recorded, and the distances of their centres (T,) [m]."""
    one, other = first.trajectory.stamp_s, second.trajectory.stamp_s
    at_s = one[(one >= other[0]) & (one <= other[-1])]
    near = np.clip(np.searchsorted(other, at_s), 1, len(other) - 1)
    own = np.clip(np.searchsorted(one, at_s), 1, len(one) - 1)
    at_s = at_s[(other[near] - other[near - 1] <= _UNSEEN_S) & (one[own] - one[own - 1] <= _UNSEEN_S)]
    return at_s, np.linalg.norm(first.trajectory.at(at_s)[0] - second.trajectory.at(at_s)[0], axis=1)


def _seen(*robots: AlignedRobot) -> bool:
    """Return whether the poses are not the robots' own estimates; those of a simulated plant are then exact."""
    return all(robot.report.reference == "pose" for robot in robots)


def contact_probability(distance_m: float, touching_m: float, *deviations_m: float) -> float:
    """Return the probability that two bodies touched, for a measured distance of their centres.

    ``deviations_m`` are the standard deviations of a coordinate of each measured centre; errors across the line of
    centres hardly change the distance.
    """
    deviation = math.hypot(*deviations_m)
    if deviation == 0:
        return float(distance_m < touching_m)
    return 0.5 * (1 + math.erf((touching_m - distance_m) / (math.sqrt(2) * deviation)))


def _of_pair(first: AlignedRobot, second: AlignedRobot, bounds: IncidentThresholds, *, exact: bool) -> list[Incident]:
    at_s, distance = distances(first, second)
    touching = first.spec.body_radius_m + second.spec.body_radius_m
    # the robot file has three sigma
    deviations = [0.0 if exact else robot.spec.position_error_m / 3 for robot in (first, second)]
    found = []
    for begin, end in spans(distance < bounds.near_m, at_s, _JOIN_S):
        worst = largest(-distance, begin, end)
        value, names = float(distance[worst]), f"{first.name} and {second.name}"
        share = contact_probability(value, touching, *deviations)
        doubt = f" (probability of contact {share:.0%}: each measured place has an error)"
        if value < touching:
            kind, bound = IncidentKind.CONTACT, touching
            verb, doubt = ("touched", "") if share >= _SURE else ("may have touched", doubt)
            what = f"{names} {verb}: {1e3 * (touching - value):.0f} mm of overlap{doubt}"
        else:
            kind, bound = IncidentKind.NEAR_CONTACT, bounds.near_m
            doubt = doubt if share > 1 - _SURE else ""
            what = f"{names} came within {1e3 * value:.0f} mm, {1e3 * (value - touching):.0f} mm before contact{doubt}"
        robots = first.name, second.name
        made = Incident.over(kind, robots, at_s, (begin, end, worst), value, bound, "m", what)
        found.append(replace(made, probability=share))
    return found


def _with_walls(recording: TeamRecording, robot: AlignedRobot) -> list[Incident]:
    if recording.arena is None:
        return []
    stamps, place, radius = robot.trajectory.stamp_s, robot.trajectory.position_world.T, robot.spec.body_radius_m
    low, high = recording.arena.corners(place)
    room = np.minimum(place - low, high - place).min(axis=0)
    for obstacle in recording.arena.obstacles:
        room = np.minimum(room, distance_to(obstacle, place))
    found = []
    for begin, end in spans(room < radius, stamps, _JOIN_S):
        worst = largest(-room, begin, end)
        span = begin, end, worst
        what = f"{robot.name} touched a wall or an obstacle: {1e3 * (radius - room[worst]):.0f} mm of overlap"
        found.append(Incident.over(IncidentKind.CONTACT, (robot.name,), stamps, span, room[worst], radius, "m", what))
    return found


def _counted(recording: TeamRecording, known: list[Incident]) -> list[Incident]:
    """Return contacts counted by the plant at its physics steps that the recorded poses do not show."""
    if recording.run is None:
        return []
    touching = 2 * recording.spec.body_radius_m
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
            value = touching if distance is None else float(distance)
            what = f"the plant counted {count - before} steps of contact, closest {' and '.join(pair) or 'unknown'}"
            robots = pair or recording.names
            found.append(Incident(IncidentKind.CONTACT, robots, before_s, at_s, at_s, value, touching, "m", what))
        before, before_s = max(int(count), before), at_s
    return found
