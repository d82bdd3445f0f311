"""An incident as a start file: the moment before it, from which training, evaluation and tests begin."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from testudo_analysis.incident.incident import Incident, IncidentThresholds
from testudo_analysis.incident.incident_replay import moment_before
from testudo_analysis.replay.run_moment import goals_of, moment_at
from testudo_deploy.shield.arena import Arena
from testudo_hardware.errors import TestudoError
from testudo_hardware.frames import wrap_angle
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_runs.alignment import TeamRecording
from testudo_sim.starts import STARTS_SCHEMA, StartDistribution, StartPerturbation, StartSample, StartsSource

_LATER_S = 10.0
"""Where nobody recorded a goal, it is where the robot was so long later."""
_VELOCITY_SHARE = 0.05
_ROOM_M = 0.5
"""Walls, where none are recorded, are so far beyond what the robots need around everywhere they were."""
_SLOWEST_SHARE = 0.4
"""An episode is as long as the farthest robot needs at this share of its speed, and a while."""
_WAIT_S = 5.0


def starts_of(recording: TeamRecording, incident: Incident, bounds: IncidentThresholds) -> StartDistribution:
    """Return the start-state distribution of the moment before an incident.

    Raises:
        TestudoError: fewer than two robots were seen at that moment.
    """
    from_s = incident.from_s if incident.from_s is not None else moment_before(recording, incident, bounds)
    seen = recording if from_s is None else recording.seen_at((from_s, incident.at_s))
    if from_s is None or len(seen.robots) < 2:
        raise TestudoError(
            f"{recording.folder}: --save-scenario: fewer than two robots were seen before the incident at "
            f"{incident.at_s:.1f} s; choose another with --incident"
        )
    moment, spec = moment_at(seen, from_s), recording.spec
    goal, source = goals_of(seen), "the fleet file of the run"
    if goal is None:
        goal, later_s = _places_later(seen, incident), incident.at_s + _LATER_S
        source = f"where the robots were at {min(later_s, seen.span_s[1]):.1f} s: the run records no goals"
    way = float(np.linalg.norm(goal - moment.position_world, axis=0).max())
    horizon = way / (_SLOWEST_SHARE * spec.control_point_speed_m_s) + _WAIT_S
    yaw = tuple(wrap_angle(moment.yaw).tolist())
    start = StartSample(_rows(moment.position_world), yaw, _rows(moment.velocity), _rows(goal))
    return StartDistribution(
        STARTS_SCHEMA,
        spec.name,
        seen.names,
        StartsSource(str(recording.folder), from_s, str(incident.kind), incident.what, source),
        round(horizon, 1),
        StartPerturbation(
            spec.position_error_m, spec.yaw_error_rad if spec.kind == DIFFERENTIAL_DRIVE else 0.0, _VELOCITY_SHARE
        ),
        (start,),
        recording.arena or _walls_around(seen, goal),
    )


def _places_later(recording: TeamRecording, incident: Incident) -> np.ndarray:
    at_s = np.array([min(incident.at_s + _LATER_S, recording.span_s[1])])
    return np.stack([robot.trajectory.at(at_s)[0][0] for robot in recording.robots], axis=1)


def _walls_around(recording: TeamRecording, goal_world: np.ndarray) -> Arena:
    """Return walls so far out that no robot meets them where it drove."""
    places = np.concatenate([goal_world.T, *(robot.trajectory.position_world for robot in recording.robots)])
    room = recording.shield.wall_m + _ROOM_M
    return Arena(tuple((places.min(axis=0) - room).tolist()), tuple((places.max(axis=0) + room).tolist()))


def _rows(values: np.ndarray) -> tuple[tuple[float, ...], ...]:
    """Return (D, N) by robot."""
    return tuple(map(tuple, values.T.tolist()))


def merged(starts: list[StartDistribution]) -> StartDistribution:
    """Return one distribution of several with the same robots; arena, spread and horizon of the widest.

    Raises:
        TestudoError: they are of different robots.
    """
    first = starts[0]
    for other in starts[1:]:
        if other.robots != first.robots or other.robot != first.robot:
            raise TestudoError(
                f"--save-scenario: found starts of {', '.join(first.robots)} and of "
                f"{', '.join(other.robots)}, expected the same robots; choose with --incident"
            )
    return replace(
        first,
        starts=tuple(start for item in starts for start in item.starts),
        horizon_s=max(item.horizon_s for item in starts),
    )
