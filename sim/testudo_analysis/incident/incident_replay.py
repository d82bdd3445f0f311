"""What would have happened: the worst incidents gone on from a moment before, with and without the shield."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np

from testudo_analysis.incident.incident import Incident, IncidentKind, IncidentThresholds
from testudo_analysis.replay.counterfactual import CounterfactualVariant, HorizonSettings, simulate_from
from testudo_analysis.replay.variants import CounterfactualVariants, VariantOutcome, recorded_outcome
from testudo_runs.alignment import TeamRecording

_LEAD_S = 3.0
"""The team goes on from so long before it was worst, or earlier, where the robots were still apart."""
_EARLIEST_S = 20.0
_AFTER_S = 3.0
"""It is followed for so long beyond."""
_LONGEST_S = 25.0
_STEP_S = 0.25
_ENCOUNTERS = (IncidentKind.CONTACT, IncidentKind.NEAR_CONTACT)


@dataclass(frozen=True)
class IncidentReplay:
    """One incident gone on from a moment before."""

    incident: Incident
    """With what came of it."""
    recording: TeamRecording = field(repr=False)
    """With the robots alone that took part: those seen all the while."""
    ways: tuple[tuple[VariantOutcome, CounterfactualVariants], ...] = field(repr=False)
    """What happened, and what would have; as in `incident.aftermath`, with the paths."""


def worst(incidents: Sequence[Incident], count: int) -> list[Incident]:
    """Return the worst incidents, the worst first."""
    return sorted(incidents, key=lambda incident: incident.weight)[:count]


def moment_before(recording: TeamRecording, incident: Incident, bounds: IncidentThresholds) -> float | None:
    """Return from when the team is to go on; None if the robots were not seen together before it.

    For an encounter that is the latest time at least some seconds before it was worst at which all robots were far
    enough from each other for the shield; if there is none, the time at which they were farthest.
    """
    worst_s = incident.at_s if incident.kind in _ENCOUNTERS else incident.begin_s
    names = set(incident.robots)
    low = max((robot.trajectory.stamp_s[0] for robot in recording.robots if robot.name in names), default=np.inf)
    times = np.arange(worst_s - _LEAD_S, max(low, worst_s - _EARLIEST_S), -_STEP_S)
    if not len(times):
        return float(low + _STEP_S) if low + _STEP_S < worst_s else None
    if incident.kind not in _ENCOUNTERS:
        return float(times[0])
    apart = np.array([_least_distance(recording, time_s) for time_s in times])
    far = np.flatnonzero(apart >= bounds.near_m)
    return float(times[far[0] if len(far) else int(np.argmax(apart))])


def replay_incidents(
    recording: TeamRecording,
    incidents: Sequence[Incident],
    ways: Sequence[CounterfactualVariant],
    bounds: IncidentThresholds,
    draws: int = 8,
    tell: Callable[[float], None] = lambda _: None,
) -> list[IncidentReplay]:
    """Return what would have become of incidents; those with the same robots are one batch."""
    starts = [(incident, moment_before(recording, incident, bounds)) for incident in incidents]
    groups: dict[tuple[str, ...], list[tuple[Incident, float]]] = {}
    for incident, from_s in starts:
        if from_s is None:
            continue
        names = recording.seen_at((from_s, incident.at_s)).names
        if len(names) > 1:
            groups.setdefault(names, []).append((incident, from_s))
    made = []
    for done, (names, members) in enumerate(groups.items()):
        part = replace(recording, robots=tuple(robot for robot in recording.robots if robot.name in names))
        made += _of_group(part, members, ways, draws, lambda share, d=done: tell((d + share) / len(groups)))
    order = {incident: place for place, incident in enumerate(incidents)}
    return sorted(made, key=lambda item: order[replace(item.incident, from_s=None, aftermath=())])


def _of_group(
    recording: TeamRecording,
    members: Sequence[tuple[Incident, float]],
    ways: Sequence[CounterfactualVariant],
    draws: int,
    tell: Callable[[float], None],
) -> list[IncidentReplay]:
    reach = max(incident.at_s - from_s for incident, from_s in members) + _AFTER_S
    ahead = HorizonSettings(min(reach, _LONGEST_S), draws)
    times = [from_s for _, from_s in members]
    made = [
        simulate_from(recording, times, way, ahead, lambda share, w=index: tell((w + share) / len(ways)))
        for index, way in enumerate(ways)
    ]
    found = []
    for k, (incident, from_s) in enumerate(members):
        branches = (
            recorded_outcome(recording, from_s, ahead.horizon_s),
            *((item.outcomes[k], item.ways[k]) for item in made),
        )
        outcomes = tuple(outcome for outcome, _ in branches)
        found.append(IncidentReplay(replace(incident, from_s=from_s, aftermath=outcomes), recording, branches))
    return found


def _least_distance(recording: TeamRecording, time_s: float) -> float:
    """Return the least distance of two centres [m] at a time, of the robots that were recorded then."""
    seen = recording.seen_at((time_s,)).robots
    places = [robot.trajectory.at(np.array([time_s]))[0][0] for robot in seen]
    return min((float(np.linalg.norm(one - other)) for one, other in combinations(places, 2)), default=np.inf)
