"""The likeliest cause of an incident, in one sentence, from what the run shows around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from testudo_analysis.incident.approach_analysis import blind_approach, commanded_approach, unchecked
from testudo_analysis.incident.incident import Incident, IncidentKind
from testudo_deploy.supervision.modes import WATCHDOGS
from testudo_runs.alignment import AlignedRobot, TeamRecording

_BEFORE_S = 3.0
"""What happened so long before an encounter may have led to it."""
_SAME_S = 0.3
_TRACED = (
    IncidentKind.POSE_JUMP,
    IncidentKind.NOT_FOLLOWING,
    IncidentKind.STALE_PEER,
    IncidentKind.POSE_GAP,
    IncidentKind.LATE_TICK,
    IncidentKind.SATURATION,
)
"""What explains an encounter, the likelier cause first."""


def with_likely_cause(recording: TeamRecording, incidents: Sequence[Incident]) -> list[Incident]:
    """Return the incidents with their likeliest causes."""
    return [replace(incident, cause=_CAUSES[incident.kind](recording, incident, incidents)) for incident in incidents]


def _robot(recording: TeamRecording, name: str) -> AlignedRobot:
    return next(robot for robot in recording.robots if robot.name == name)


def _around(
    incident: Incident, others: Sequence[Incident], kinds: Sequence[IncidentKind], before_s: float
) -> list[Incident]:
    """Return what else happened to the same robots until the incident was worst, in the order of ``kinds``."""
    found = [
        other
        for other in others
        if other != incident
        and other.kind in kinds
        and set(other.robots) & set(incident.robots)
        and other.begin_s <= incident.at_s
        and other.end_s >= min(incident.begin_s, incident.at_s) - before_s
    ]
    return sorted(found, key=lambda other: kinds.index(other.kind))


def _encounter(recording: TeamRecording, incident: Incident, others: Sequence[Incident]) -> str:
    traced = _around(replace(incident, begin_s=incident.at_s), others, _TRACED, _BEFORE_S)
    wrong = blind_approach(recording, incident)
    if wrong and not (traced and traced[0].kind is IncidentKind.POSE_JUMP):
        return wrong
    if traced:
        first = traced[0]
        when = max(0.0, incident.at_s - first.begin_s)
        means = {
            IncidentKind.POSE_JUMP: "it was not where it believed to be",
            IncidentKind.NOT_FOLLOWING: "it did not do what the shield had reckoned with",
            IncidentKind.STALE_PEER: "it did not know where the other was by then",
            IncidentKind.POSE_GAP: "nobody knew where it was",
            IncidentKind.LATE_TICK: "its command acted for longer than it should",
            IncidentKind.SATURATION: "it could not do what it was told",
        }[first.kind]
        return f"{first.what}, {when:.1f} s before it was worst: {means}"
    return unchecked(recording, incident) or commanded_approach(recording, incident)


def _deadlock(recording: TeamRecording, incident: Incident, others: Sequence[Incident]) -> str:
    stops = _around(replace(incident, at_s=incident.end_s), others, (IncidentKind.STOP, IncidentKind.GUARD_BRAKE), 0.0)
    if stops and stops[0].end_s - stops[0].begin_s > 0.5 * (incident.end_s - incident.begin_s):
        return f"it was braked all the while: {stops[0].what}"
    if recording.run is None:
        blocked = _around(replace(incident, at_s=incident.end_s), others, (IncidentKind.NOT_FOLLOWING,), 0.0)
        return blocked[0].what if blocked else "it was told to drive and did not: blocked, or no command got through"
    ticks = [
        tick
        for name in incident.robots
        for tick in recording.run.ticks[name]
        if incident.begin_s <= tick.stamp_s - recording.start_s <= incident.end_s
    ]
    if not ticks:
        return "its process was gone: there are no ticks of that time"
    count = len(ticks)
    shares = {
        status: sum(tick.status == status for tick in ticks) / count
        for status in ("waiting", "gated", "projected", "braked", "passed")
    }
    wish = np.median([np.linalg.norm(tick.nominal_world) for tick in ticks if tick.nominal_world] or [0.0])
    if wish < 0.05 * recording.spec.control_point_speed_m_s:
        return f"the policy asks for next to nothing there ({1e3 * wish:.0f} mm/s)"
    worst = max(shares, key=lambda name: shares[name])
    means = {
        "waiting": "it waits for space that others hold or have not granted",
        "gated": "no way to stop clear of the others is left: the gate shortens every command",
        "projected": "the ways of the robots cancel out: what the policies want and the shield allows adds up "
        "to nothing",
        "braked": "the shield brakes",
        "passed": "the commands passed, and the robot did not move as told",
    }
    return f"the shield: {means[worst]} ({100 * shares[worst]:.0f} % of the ticks {worst})"


def _stop(recording: TeamRecording, incident: Incident, others: Sequence[Incident]) -> str:
    robot = _robot(recording, incident.robots[0])
    if recording.run is None:
        told = 0.0
        if robot.commands is not None:
            inside = (robot.commands.stamp_s >= incident.begin_s) & (robot.commands.stamp_s <= incident.end_s)
            told = float(np.median(np.abs(robot.commands.values[inside, 0]))) if inside.any() else 0.0
        return (
            "it was told to stand"
            if told < 0.1 * robot.spec.speed_limit_m_s
            else f"it stood although it was told to drive at {told:.2f} m/s: blocked, or no command got through"
        )
    if incident.code in ("stale_pose", "no_pose"):
        return _pose_cause(recording, robot, incident, others)
    if incident.code == "shield_braked":
        near = _around(
            incident, others, (IncidentKind.CONTACT, IncidentKind.NEAR_CONTACT, IncidentKind.STALE_PEER), 1.0
        )
        return near[0].what if near else "a neighbour, a wall or an obstacle was closer than the margins allow"
    if incident.code in ("pose_jump", "pose_restless"):
        jumps = _around(incident, others, (IncidentKind.POSE_JUMP,), 1.0)
        return jumps[0].what if jumps else WATCHDOGS[incident.code].sentence
    late = _around(incident, others, (IncidentKind.LATE_TICK,), 0.5)
    if incident.code == "guard_brakes" and late:
        return f"its policy was late: {late[0].what}"
    return WATCHDOGS[incident.code].sentence if incident.code in WATCHDOGS else incident.what


def _pose_cause(recording: TeamRecording, robot: AlignedRobot, incident: Incident, others: Sequence[Incident]) -> str:
    track = recording.run.odometry[robot.name]
    stamps, received = track.stamp_s - recording.start_s, track.received_s - recording.start_s
    last = np.searchsorted(received, incident.begin_s, side="right") - 1
    if last < 0:
        return "its pose source had told nothing yet"
    if last + 1 >= len(received):
        return f"its pose source fell silent at {received[last]:.2f} s and did not speak again"
    silent = received[last + 1] - received[last]
    delay = received[last + 1] - stamps[last + 1]
    if delay > robot.spec.pose_max_age_s:
        return f"poses came {delay:.2f} s after they were measured: a slow link or a clock that is off"
    accepts = f"it accepts poses up to {robot.spec.pose_max_age_s:.2f} s old"
    if silent < robot.spec.pose_max_age_s:
        late = _around(incident, others, (IncidentKind.LATE_TICK,), 0.5)
        return (
            "the recorder heard poses all the while, the robot did not: its process or link was behind"
            f"{', ' + late[0].what if late else ''}; {accepts}"
        )
    return f"its pose source was silent for {silent:.2f} s; {accepts}"


def _stale_peer(recording: TeamRecording, incident: Incident, others: Sequence[Incident]) -> str:
    name, peer = incident.robots

    def inside(stamps: np.ndarray) -> int:
        return int(((stamps >= incident.begin_s) & (stamps <= incident.end_s)).sum())

    ticks = inside(np.array([tick.stamp_s - recording.start_s for tick in recording.run.ticks[peer]]))
    said = inside(np.array([message.stamp_s - recording.start_s for message in recording.run.announcements[peer]]))
    if not ticks:
        return f"{peer}'s process was gone: it has no ticks in that time"
    if not said:
        stops = _around(replace(incident, robots=(peer,), at_s=incident.end_s), others, (IncidentKind.STOP,), 0.5)
        return f"{peer} told nobody where it was" + (f": {stops[0].what}" if stops else "")
    both = any(
        other.kind is IncidentKind.STALE_PEER
        and other.robots == (peer, name)
        and other.begin_s <= incident.end_s
        and other.end_s >= incident.begin_s
        for other in others
    )
    return (
        f"messages were lost {'in both directions' if both else 'on the way'}: {peer} sent {said} that "
        f"{name} had no answer to"
    )


def _late_tick(recording: TeamRecording, incident: Incident, others: Sequence[Incident]) -> str:
    same = sorted(
        {
            other.robots[0]
            for other in others
            if other.kind is IncidentKind.LATE_TICK
            and other is not incident
            and abs(other.at_s - incident.at_s) < _SAME_S
        }
    )
    if same:
        return f"the computer was busy: {', '.join(same)} {'were' if len(same) > 1 else 'was'} late at the same time"
    ticks = [
        tick
        for tick in recording.run.ticks[incident.robots[0]]
        if incident.begin_s - _SAME_S <= tick.stamp_s - recording.start_s <= incident.end_s
    ]
    longest = max((tick.duration_s for tick in ticks), default=0.0)
    if longest > 0.5 * recording.spec.control_period_s:
        period_ms = 1e3 * recording.spec.control_period_s
        return f"its own computing took up to {1e3 * longest:.0f} ms of a period of {period_ms:.0f} ms"
    return "its process was not run in time: others on its computer came first, or it slept"


def _pose_jump(recording: TeamRecording, incident: Incident, _: Sequence[Incident]) -> str:
    motion = _robot(recording, incident.robots[0]).believed
    index = int(np.searchsorted(motion.stamp_s, incident.begin_s))
    after = int(np.searchsorted(motion.stamp_s, incident.end_s + 1e-9, side="right"))
    back = np.linalg.norm(motion.position_world[min(after, len(motion.stamp_s) - 1)] - motion.position_world[index])
    if (
        incident.end_s - incident.begin_s
        > 1.5 * (motion.stamp_s[min(index + 1, len(motion.stamp_s) - 1)] - motion.stamp_s[index])
        and back < 0.5 * incident.value
    ):
        return f"a wrong fix: it came back after {incident.end_s - incident.begin_s:.2f} s"
    return "it was located anew and stayed there: a re-localisation, or somebody carried it"


def _pose_gap(_: TeamRecording, incident: Incident, others: Sequence[Incident]) -> str:
    same = sorted(
        {
            other.robots[0]
            for other in others
            if other.kind is IncidentKind.POSE_GAP
            and other is not incident
            and other.begin_s <= incident.end_s
            and other.end_s >= incident.begin_s
        }
    )
    return (
        f"the pose source or the recorder paused: also {', '.join(same)}"
        if same
        else "this robot alone was not seen: hidden markers, or its link was lost"
    )


def _saturation(recording: TeamRecording, _: Incident, __: Sequence[Incident]) -> str:
    return (
        f"it was asked for more than {recording.spec.name}'s file allows: commands are too fast, or the limits in the "
        "file too low"
    )


def _not_following(_: TeamRecording, incident: Incident, __: Sequence[Incident]) -> str:
    if incident.value > 0:
        return "it did not slow down as told: brakes weaker than described, a slope, or it was pushed"
    return "it did not drive as told: a blocked wheel, slip, a low battery, or its guard or driver held it"


_CAUSES: dict[IncidentKind, Callable[[TeamRecording, Incident, Sequence[Incident]], str]] = {
    IncidentKind.CONTACT: _encounter,
    IncidentKind.NEAR_CONTACT: _encounter,
    IncidentKind.DEADLOCK: _deadlock,
    IncidentKind.STOP: _stop,
    IncidentKind.GUARD_BRAKE: _stop,
    IncidentKind.STALE_PEER: _stale_peer,
    IncidentKind.LATE_TICK: _late_tick,
    IncidentKind.POSE_JUMP: _pose_jump,
    IncidentKind.POSE_GAP: _pose_gap,
    IncidentKind.SATURATION: _saturation,
    IncidentKind.NOT_FOLLOWING: _not_following,
}
"""By kind."""
