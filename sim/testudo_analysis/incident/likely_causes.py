"""The likeliest cause of an incident, in one sentence, from the run around it."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from testudo_analysis.incident.incident import Incident, IncidentKind
from testudo_deploy.contract.messages import TickRecord
from testudo_deploy.supervision.modes import WATCHDOGS
from testudo_runs.alignment import AlignedRobot, TeamRecording
from testudo_runs.run_reader import RecordedRun

_BEFORE_S = 3.0  # events so long before an encounter may have caused it
_SAME_S = 0.3
_PASSED_SHARE = 0.8
_MOVES_M_S = 0.005
_LOOKED_BACK_S = 4.0
_TRACED = {
    IncidentKind.POSE_JUMP: "its pose was wrong",
    IncidentKind.NOT_FOLLOWING: "it did not move as the shield assumes",
    IncidentKind.STALE_PEER: "it did not know the position of the other",
    IncidentKind.POSE_GAP: "its position was unknown",
    IncidentKind.LATE_TICK: "its command acted for too long",
    IncidentKind.SATURATION: "it could not follow its command",
}
"""Explanations of an encounter, the likelier cause first."""
_DEADLOCK = {
    "waiting": "it waits for space that others hold or have not granted",
    "gated": "no stop is possible clear of the others: the stop-tube check shortens every command",
    "projected": "the wishes of the policies within the constraints add up to no motion",
    "braked": "the shield brakes",
    "passed": "the commands passed, and the robot did not follow them",
}
"""By status of the shield."""


def with_likely_cause(recording: TeamRecording, incidents: Sequence[Incident]) -> list[Incident]:
    """Return the incidents with their likeliest causes."""
    return [replace(incident, cause=_CAUSES[incident.kind](recording, incident, incidents)) for incident in incidents]


def _robot(recording: TeamRecording, name: str) -> AlignedRobot:
    return next(robot for robot in recording.robots if robot.name == name)


def _run(recording: TeamRecording) -> RecordedRun:
    """Return the Testudo run of incidents that only such runs have."""
    if recording.run is None:
        raise ValueError(f"{recording.folder}: found an imported recording, expected a run of Testudo")
    return recording.run


def _ticks(recording: TeamRecording, names: Sequence[str], begin_s: float, end_s: float) -> list[TickRecord]:
    """Return the ticks of robots between two times [s since the start of the run]."""
    ticks = _run(recording).ticks
    return [tick for name in names for tick in ticks[name] if begin_s <= tick.stamp_s - recording.start_s <= end_s]


def _around(
    incident: Incident, others: Sequence[Incident], kinds: Sequence[IncidentKind], before_s: float
) -> list[Incident]:
    """Return other incidents of the same robots until the worst time, in the order of ``kinds``."""
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
    traced = _around(replace(incident, begin_s=incident.at_s), others, tuple(_TRACED), _BEFORE_S)
    wrong = _wrong_pose(recording, incident)
    if wrong and not (traced and traced[0].kind is IncidentKind.POSE_JUMP):
        return wrong
    if traced:
        when = max(0.0, incident.at_s - traced[0].begin_s)
        return f"{traced[0].what}, {when:.1f} s before the worst time: {_TRACED[traced[0].kind]}"
    return _unchecked(recording, incident) or _commanded_approach(recording, incident)


def _wrong_pose(recording: TeamRecording, incident: Incident) -> str:
    """Return which robot used a wrong pose at the worst time; empty if none did."""
    for robot in recording.robots:
        if robot.name not in incident.robots or robot.believed is robot.trajectory:
            continue
        at_s = np.array([incident.at_s])
        error = float(np.linalg.norm(robot.believed.at(at_s)[0] - robot.trajectory.at(at_s)[0]))
        # a pose has at most the maximum age, and the robot moved in that time
        bound = 2 * robot.spec.position_error_m + robot.spec.speed_limit_m_s * robot.spec.pose_max_age_s
        if error > bound:
            return f"{robot.name} was {1e3 * error:.0f} mm from its own estimate: its localisation was wrong"
    return ""


def _unchecked(recording: TeamRecording, incident: Incident) -> str:
    """Return whether commands passed unchanged although the robots were too close; empty if not."""
    if recording.run is None:
        return ""
    ticks = _ticks(recording, incident.robots, incident.begin_s, incident.at_s)
    moving = [tick for tick in ticks if tick.nominal_world and np.linalg.norm(tick.nominal_world) > _MOVES_M_S]
    passed = [tick for tick in moving if tick.status == "passed"]
    if moving and len(passed) > _PASSED_SHARE * len(moving):
        return (
            f"the shield changed nothing: {len(passed)} of {len(moving)} nominal commands passed closer than layer 1 "
            "allows; it was off, or did not know of the other robot"
        )
    return ""


def _commanded_approach(recording: TeamRecording, incident: Incident) -> str:
    """Return the closing speeds of the robots, where nothing unusual is recorded."""
    robots = [robot for robot in recording.robots if robot.name in incident.robots]
    if len(robots) < 2:
        known = robots and robots[0].commands is not None
        return "its commands led there" if known else "no other cause is recorded"
    parts = []
    for robot, other in (robots, robots[::-1]):
        closing = _closing(robot, other, incident)
        parts.append(
            f"{robot.name} drove towards {other.name} at {closing:.2f} m/s"
            if closing > _MOVES_M_S
            else f"{robot.name} did not approach"
        )
    kept = "no shield is recorded" if recording.run is None else "the margins for lag, model and localisation were used"
    return f"{' and '.join(parts)}; {kept}"


def _closing(robot: AlignedRobot, other: AlignedRobot, incident: Incident) -> float:
    """Return the mean speed [m/s] at which a robot approached the other before the worst time."""
    begin_s = max(incident.at_s - _LOOKED_BACK_S, robot.trajectory.stamp_s[0], other.trajectory.stamp_s[0])
    at_s = np.linspace(begin_s, incident.at_s, 20)
    place, there = robot.trajectory.at(at_s)[0], other.trajectory.at(at_s)[0]
    lasted = at_s[-1] - at_s[0]
    if lasted <= 0:
        return 0.0
    towards = there[0] - place[0]
    return float((place[-1] - place[0]) @ towards / (np.linalg.norm(towards) + 1e-9) / lasted)


def _deadlock(recording: TeamRecording, incident: Incident, others: Sequence[Incident]) -> str:
    whole = replace(incident, at_s=incident.end_s)
    stops = _around(whole, others, (IncidentKind.STOP, IncidentKind.GUARD_BRAKE), 0.0)
    if stops and stops[0].duration_s > 0.5 * incident.duration_s:
        return f"it was braked most of the time: {stops[0].what}"
    if recording.run is None:
        blocked = _around(whole, others, (IncidentKind.NOT_FOLLOWING,), 0.0)
        return blocked[0].what if blocked else "it did not follow its commands: blocked, or the commands were lost"
    ticks = _ticks(recording, incident.robots, incident.begin_s, incident.end_s)
    if not ticks:
        return "its process had ended: there are no ticks of that time"
    shares = {status: sum(tick.status == status for tick in ticks) / len(ticks) for status in _DEADLOCK}
    wish = np.median([np.linalg.norm(tick.nominal_world) for tick in ticks if tick.nominal_world] or [0.0])
    if wish < 0.05 * recording.spec.control_point_speed_m_s:
        return f"the policy commands almost no motion there ({1e3 * wish:.0f} mm/s)"
    worst = max(shares, key=lambda name: shares[name])
    return f"the shield: {_DEADLOCK[worst]} ({100 * shares[worst]:.0f} % of the ticks {worst})"


def _stop(recording: TeamRecording, incident: Incident, others: Sequence[Incident]) -> str:
    robot, code = _robot(recording, incident.robots[0]), incident.code
    if recording.run is None:
        return _standing_cause(robot, incident)
    if code in ("stale_pose", "no_pose"):
        return _pose_cause(recording, robot, incident, others)
    if code == "shield_braked":
        kinds = IncidentKind.CONTACT, IncidentKind.NEAR_CONTACT, IncidentKind.STALE_PEER
        near = _around(incident, others, kinds, 1.0)
        return near[0].what if near else "a neighbour, a wall or an obstacle was closer than the margins allow"
    if code in ("pose_jump", "pose_restless"):
        near = _around(incident, others, (IncidentKind.POSE_JUMP,), 1.0)
        return near[0].what if near else WATCHDOGS[code].sentence
    late = _around(incident, others, (IncidentKind.LATE_TICK,), 0.5)
    if code == "guard_brakes" and late:
        return f"its policy was late: {late[0].what}"
    return WATCHDOGS[code].sentence if code in WATCHDOGS else incident.what


def _standing_cause(robot: AlignedRobot, incident: Incident) -> str:
    speed = 0.0
    if robot.commands is not None:
        inside = (robot.commands.stamp_s >= incident.begin_s) & (robot.commands.stamp_s <= incident.end_s)
        speed = float(np.median(np.abs(robot.commands.values[inside, 0]))) if inside.any() else 0.0
    if speed < 0.1 * robot.spec.speed_limit_m_s:
        return "its commands were to stand"
    return f"it stood despite commands of {speed:.2f} m/s: blocked, or the commands were lost"


def _pose_cause(recording: TeamRecording, robot: AlignedRobot, incident: Incident, others: Sequence[Incident]) -> str:
    track, max_age_s = _run(recording).odometry[robot.name], robot.spec.pose_max_age_s
    stamps, received = track.stamp_s - recording.start_s, track.received_s - recording.start_s
    last = np.searchsorted(received, incident.begin_s, side="right") - 1
    if last < 0:
        return "its pose source had not sent yet"
    if last + 1 >= len(received):
        return f"its pose source sent nothing after {received[last]:.2f} s"
    silent = received[last + 1] - received[last]
    delay = received[last + 1] - stamps[last + 1]
    if delay > max_age_s:
        return f"poses arrived {delay:.2f} s after their stamps: a slow link or a clock offset"
    accepts = f"it accepts poses up to {max_age_s:.2f} s old"
    if silent < max_age_s:
        late = _around(incident, others, (IncidentKind.LATE_TICK,), 0.5)
        return (
            "the recorder received poses, the robot did not: its process or link was late"
            f"{', ' + late[0].what if late else ''}; {accepts}"
        )
    return f"its pose source sent nothing for {silent:.2f} s; {accepts}"


def _stale_peer(recording: TeamRecording, incident: Incident, others: Sequence[Incident]) -> str:
    (name, peer), begin_s, end_s = incident.robots, incident.begin_s, incident.end_s
    if not _ticks(recording, (peer,), begin_s, end_s):
        return f"the process of {peer} had ended: it has no ticks in that time"
    sent = sum(
        begin_s <= message.stamp_s - recording.start_s <= end_s for message in _run(recording).announcements[peer]
    )
    if not sent:
        stops = _around(replace(incident, robots=(peer,), at_s=end_s), others, (IncidentKind.STOP,), 0.5)
        return f"{peer} sent no state" + (f": {stops[0].what}" if stops else "")
    both = any(
        other.kind is IncidentKind.STALE_PEER and other.robots == (peer, name) and other.overlaps(incident)
        for other in others
    )
    lost = "both directions" if both else "one direction"
    return f"messages were lost in {lost}: {peer} sent {sent}, and {name} could not confirm their age"


def _others(others: Sequence[Incident], incident: Incident, same: Callable[[Incident], bool]) -> list[str]:
    """Return the robots of other incidents of the same kind for which ``same`` holds."""
    return sorted(
        {other.robots[0] for other in others if other.kind is incident.kind and other is not incident and same(other)}
    )


def _late_tick(recording: TeamRecording, incident: Incident, others: Sequence[Incident]) -> str:
    same = _others(others, incident, lambda other: abs(other.at_s - incident.at_s) < _SAME_S)
    if same:
        return f"the computer was busy: {', '.join(same)} {'were' if len(same) > 1 else 'was'} late at the same time"
    ticks = _ticks(recording, incident.robots[:1], incident.begin_s - _SAME_S, incident.end_s)
    longest = max((tick.duration_s for tick in ticks), default=0.0)
    if longest > 0.5 * recording.spec.control_period_s:
        period_ms = 1e3 * recording.spec.control_period_s
        return f"its own computation took up to {1e3 * longest:.0f} ms of a period of {period_ms:.0f} ms"
    return "its process did not run in time: other processes had priority, or it slept"


def _pose_jump(recording: TeamRecording, incident: Incident, _: Sequence[Incident]) -> str:
    motion = _robot(recording, incident.robots[0]).believed
    stamps, last = motion.stamp_s, len(motion.stamp_s) - 1
    index = int(np.searchsorted(stamps, incident.begin_s))
    after = int(np.searchsorted(stamps, incident.end_s + 1e-9, side="right"))
    back = np.linalg.norm(motion.position_world[min(after, last)] - motion.position_world[index])
    if incident.duration_s > 1.5 * (stamps[min(index + 1, last)] - stamps[index]) and back < 0.5 * incident.value:
        return f"a wrong pose: it returned after {incident.duration_s:.2f} s"
    return "the new pose remained: a re-localisation, or the robot was carried"


def _pose_gap(_: TeamRecording, incident: Incident, others: Sequence[Incident]) -> str:
    same = _others(others, incident, incident.overlaps)
    return (
        f"the pose source or the recorder paused: also {', '.join(same)}"
        if same
        else "only this robot was not seen: hidden markers, or its link was lost"
    )


def _saturation(recording: TeamRecording, _: Incident, __: Sequence[Incident]) -> str:
    return f"its commands exceed the limits of {recording.spec.name}: commands too fast, or limits in the file too low"


def _not_following(_: TeamRecording, incident: Incident, __: Sequence[Incident]) -> str:
    if incident.value > 0:
        return "it did not slow down as commanded: brakes weaker than described, a slope, or it was pushed"
    return "it did not drive as commanded: a blocked wheel, slip, a low battery, or its guard or driver held it"


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
