"""How two robots came together: what they believed, what the shield let pass, and what they were told."""

from __future__ import annotations

import numpy as np

from testudo_analysis.incident.incident import Incident
from testudo_runs.alignment import AlignedRobot, TeamRecording

_PASSED_SHARE = 0.8
_TOLD_M_S = 0.005
_LOOKED_BACK_S = 4.0


def blind_approach(recording: TeamRecording, incident: Incident) -> str:
    """Return which robot was not where it believed to be when it was worst; empty if both were."""
    for robot in _robots(recording, incident):
        if robot.believed is robot.trajectory:
            continue
        at_s = np.array([incident.at_s])
        error = float(np.linalg.norm(robot.believed.at(at_s)[0] - robot.trajectory.at(at_s)[0]))
        # a pose is as old as the robot accepts at most, and it moved on since
        bound = 2 * robot.spec.position_error_m + robot.spec.speed_limit_m_s * robot.spec.pose_max_age_s
        if error > bound:
            return f"{robot.name} was {1e3 * error:.0f} mm from where it believed to be: its localisation was wrong"
    return ""


def unchecked(recording: TeamRecording, incident: Incident) -> str:
    """Return whether commands passed unchanged although the robots were too close already; empty if not."""
    if recording.run is None:
        return ""
    ticks = [
        tick
        for name in incident.robots
        for tick in recording.run.ticks[name]
        if incident.begin_s <= tick.stamp_s - recording.start_s <= incident.at_s
    ]
    moving = [tick for tick in ticks if tick.nominal_world and np.linalg.norm(tick.nominal_world) > _TOLD_M_S]
    passed = [tick for tick in moving if tick.status == "passed"]
    if moving and len(passed) > _PASSED_SHARE * len(moving):
        return (
            f"the shield changed nothing: {len(passed)} of {len(moving)} commands passed as the policy wanted "
            "them, closer than layer 1 allows; it was off, or did not know of the other"
        )
    return ""


def commanded_approach(recording: TeamRecording, incident: Incident) -> str:
    """Return who was told to drive towards whom, the fallback where nothing unusual is recorded."""
    robots = _robots(recording, incident)
    if len(robots) < 2:
        return "it was told to drive there" if robots and robots[0].commands is not None else "nothing else is recorded"
    parts = []
    for robot, other in (robots, robots[::-1]):
        closing = _closing(robot, other, incident)
        parts.append(
            f"{robot.name} drove towards {other.name} at {closing:.2f} m/s"
            if closing > _TOLD_M_S
            else f"{robot.name} did not come closer by itself"
        )
    kept = (
        "no shield is recorded" if recording.run is None else "the margins for lag, model and localisation were used up"
    )
    return f"{' and '.join(parts)}; {kept}"


def _closing(robot: AlignedRobot, other: AlignedRobot, incident: Incident) -> float:
    """Return how fast a robot came closer to the other on average [m/s], in the time before it was worst."""
    begin_s = max(incident.at_s - _LOOKED_BACK_S, robot.trajectory.stamp_s[0], other.trajectory.stamp_s[0])
    at_s = np.linspace(begin_s, incident.at_s, 20)
    place, there = robot.trajectory.at(at_s)[0], other.trajectory.at(at_s)[0]
    lasted = at_s[-1] - at_s[0]
    if lasted <= 0:
        return 0.0
    towards = there[0] - place[0]
    return float((place[-1] - place[0]) @ towards / (np.linalg.norm(towards) + 1e-9) / lasted)


def _robots(recording: TeamRecording, incident: Incident) -> list[AlignedRobot]:
    return [robot for robot in recording.robots if robot.name in incident.robots]
