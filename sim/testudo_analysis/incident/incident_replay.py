"""Counterfactual outcomes of the worst incidents, and the state before an incident as a start file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np

from testudo_analysis.incident.incident import Incident, IncidentKind, IncidentThresholds
from testudo_analysis.replay.counterfactual import CounterfactualVariant, HorizonSettings, simulate_from
from testudo_analysis.replay.replayed_team import goals_of, moment_at
from testudo_analysis.replay.variants import VariantOutcome, VariantPaths, recorded_outcome
from testudo_deploy.shield.arena import Arena
from testudo_hardware.errors import TestudoError
from testudo_hardware.frames import wrap_angle
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_runs.alignment import TeamRecording
from testudo_sim.starts import STARTS_SCHEMA, StartDistribution, StartPerturbation, StartSample, StartsSource

_LEAD_S = 3.0  # least time from the start of the simulation to the worst value
_EARLIEST_S = 20.0
_AFTER_S = 3.0  # simulated time after the worst value
_LONGEST_S = 25.0
_STEP_S = 0.25
_ENCOUNTERS = (IncidentKind.CONTACT, IncidentKind.NEAR_CONTACT)
_LATER_S = 10.0  # without a recorded goal, the goal is the position so long after the worst value
_VELOCITY_SHARE = 0.05
_ROOM_M = 0.5
"""Without recorded walls, distance of walls beyond the shield's wall margin from all recorded positions."""
_SLOWEST_SHARE = 0.4
"""The episode lasts as long as the farthest robot needs at this share of its speed, and `_WAIT_S`."""
_WAIT_S = 5.0


@dataclass(frozen=True)
class IncidentReplay:
    """The counterfactuals of one incident."""

    incident: Incident  # with the outcomes
    recording: TeamRecording = field(repr=False)  # with the simulated robots: those recorded the whole time
    variants: tuple[tuple[VariantOutcome, VariantPaths], ...] = field(repr=False)
    """The recorded outcome, then the simulated ones, with paths; as `incident.aftermath`."""


def worst(incidents: Sequence[Incident], count: int) -> list[Incident]:
    """Return the worst incidents, the worst first."""
    return sorted(incidents, key=lambda incident: incident.weight)[:count]


def moment_before(recording: TeamRecording, incident: Incident, bounds: IncidentThresholds) -> float | None:
    """Return the start time of the simulation [s]; None if the robots were not recorded together before it.

    For an encounter it is the latest time, at least `_LEAD_S` before the worst value, at which all robots were far
    enough from each other for the shield; without such a time, the time at which they were farthest.
    """
    worst_s = incident.at_s if incident.kind in _ENCOUNTERS else incident.begin_s
    begins = [robot.trajectory.stamp_s[0] for robot in recording.robots if robot.name in incident.robots]
    low = max(begins, default=np.inf)
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
    variants: Sequence[CounterfactualVariant],
    bounds: IncidentThresholds,
    draws: int = 8,
    tell: Callable[[float], None] = lambda _: None,
) -> list[IncidentReplay]:
    """Return the counterfactuals of incidents; incidents with the same robots are one batch."""
    groups: dict[tuple[str, ...], list[tuple[Incident, float]]] = {}
    for incident in incidents:
        from_s = moment_before(recording, incident, bounds)
        names = () if from_s is None else recording.seen_at((from_s, incident.at_s)).names
        if from_s is not None and len(names) > 1:
            groups.setdefault(names, []).append((incident, from_s))
    made = []
    for done, (names, members) in enumerate(groups.items()):
        part = replace(recording, robots=tuple(robot for robot in recording.robots if robot.name in names))
        made += _of_group(part, members, variants, draws, lambda share, d=done: tell((d + share) / len(groups)))
    order = {incident: place for place, incident in enumerate(incidents)}
    return sorted(made, key=lambda item: order[replace(item.incident, from_s=None, aftermath=())])


def _of_group(
    recording: TeamRecording,
    members: Sequence[tuple[Incident, float]],
    variants: Sequence[CounterfactualVariant],
    draws: int,
    tell: Callable[[float], None],
) -> list[IncidentReplay]:
    reach = max(incident.at_s - from_s for incident, from_s in members) + _AFTER_S
    ahead = HorizonSettings(min(reach, _LONGEST_S), draws)
    times = [from_s for _, from_s in members]
    made = [
        simulate_from(recording, times, variant, ahead, lambda share, k=k: tell((k + share) / len(variants)))
        for k, variant in enumerate(variants)
    ]
    found = []
    for k, (incident, from_s) in enumerate(members):
        recorded = recorded_outcome(recording, from_s, ahead.horizon_s)
        branches = (recorded, *((item.outcomes[k], item.paths[k]) for item in made))
        outcomes = tuple(outcome for outcome, _ in branches)
        found.append(IncidentReplay(replace(incident, from_s=from_s, aftermath=outcomes), recording, branches))
    return found


def _least_distance(recording: TeamRecording, time_s: float) -> float:
    """Return the least distance of two centres [m] at a time, of the robots recorded then."""
    seen = recording.seen_at((time_s,)).robots
    places = [robot.trajectory.at(np.array([time_s]))[0][0] for robot in seen]
    return min((float(np.linalg.norm(one - other)) for one, other in combinations(places, 2)), default=np.inf)


def starts_of(recording: TeamRecording, incident: Incident, bounds: IncidentThresholds) -> StartDistribution:
    """Return the start-state distribution before an incident, for training, evaluation and tests.

    Raises:
        TestudoError: fewer than two robots were recorded at that time.
    """
    from_s = incident.from_s if incident.from_s is not None else moment_before(recording, incident, bounds)
    seen = recording if from_s is None else recording.seen_at((from_s, incident.at_s))
    if from_s is None or len(seen.robots) < 2:
        raise TestudoError(
            f"{recording.folder}: --save-scenario: found fewer than two robots before the incident at "
            f"{incident.at_s:.1f} s; choose another with --incident"
        )
    moment, spec = moment_at(seen, from_s), recording.spec
    goal, source = goals_of(seen), "the fleet file of the run"
    if goal is None:
        later_s = min(incident.at_s + _LATER_S, seen.span_s[1])
        goal = np.stack([robot.trajectory.at(np.array([later_s]))[0][0] for robot in seen.robots], axis=1)
        source = f"where the robots were at {later_s:.1f} s: the run records no goals"
    way = float(np.linalg.norm(goal - moment.position_world, axis=0).max())
    horizon = way / (_SLOWEST_SHARE * spec.control_point_speed_m_s) + _WAIT_S
    yaw = tuple(wrap_angle(moment.yaw).tolist())
    yaw_error_rad = spec.yaw_error_rad if spec.kind == DIFFERENTIAL_DRIVE else 0.0
    return StartDistribution(
        STARTS_SCHEMA,
        spec.name,
        seen.names,
        StartsSource(str(recording.folder), from_s, str(incident.kind), incident.what, source),
        round(horizon, 1),
        StartPerturbation(spec.position_error_m, yaw_error_rad, _VELOCITY_SHARE),
        (StartSample(_rows(moment.position_world), yaw, _rows(moment.velocity), _rows(goal)),),
        recording.arena or _walls_around(seen, goal),
    )


def _walls_around(recording: TeamRecording, goal_world: np.ndarray) -> Arena:
    """Return walls beyond all recorded positions."""
    places = np.concatenate([goal_world.T, *(robot.trajectory.position_world for robot in recording.robots)])
    room = recording.shield.wall_m + _ROOM_M
    return Arena(tuple((places.min(axis=0) - room).tolist()), tuple((places.max(axis=0) + room).tolist()))


def _rows(values: np.ndarray) -> tuple[tuple[float, ...], ...]:
    """Return (D, N) by robot."""
    return tuple(map(tuple, values.T.tolist()))


def merged(starts: list[StartDistribution]) -> StartDistribution:
    """Return one distribution of several with the same robots: arena and spread of the first, the longest horizon.

    Raises:
        TestudoError: the robots differ.
    """
    first = starts[0]
    for other in starts[1:]:
        if other.robots != first.robots or other.robot != first.robot:
            raise TestudoError(
                f"--save-scenario: found starts of {', '.join(first.robots)} and of "
                f"{', '.join(other.robots)}, expected the same robots; choose with --incident"
            )
    samples = tuple(start for item in starts for start in item.starts)
    return replace(first, starts=samples, horizon_s=max(item.horizon_s for item in starts))
