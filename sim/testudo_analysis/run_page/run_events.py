"""Incidents as events of the page: grouped by moment, in the order of severity, each with what limits its certainty."""

from collections.abc import Sequence
from itertools import groupby

from testudo_analysis.incident.incident import Incident, IncidentKind
from testudo_analysis.run_page.page_data import CANNOT_TELL, Finding, PageEvent, Severity
from testudo_analysis.run_page.scene_data import pose_error_m
from testudo_runs.alignment import TeamRecording

MOMENT_S = 2.0
"""Incidents that begin within this time after the first one of a moment belong to it."""
_LOOK_BACK_S = 3.0
_SEVERITIES = {
    IncidentKind.CONTACT: Severity.BAD,
    IncidentKind.NEAR_CONTACT: Severity.DOUBT,
    IncidentKind.DEADLOCK: Severity.DOUBT,
    IncidentKind.NOT_FOLLOWING: Severity.DOUBT,
    IncidentKind.POSE_JUMP: Severity.DOUBT,
    IncidentKind.GUARD_BRAKE: Severity.DOUBT,
    IncidentKind.STALE_PEER: Severity.DOUBT,
}
_EXAMINE = "shows what else could have followed from that moment"
_INPUTS = "shows rates, gaps and losses of every topic"


def run_events(recording: TeamRecording, incidents: Sequence[Incident]) -> tuple[PageEvent, ...]:
    """Return the incidents as events, in the order of time."""
    order = sorted(
        range(len(incidents)), key=lambda k: (severity_of(recording, incidents[k]).rank, incidents[k].weight)
    )
    place = {number: rank for rank, number in enumerate(order)}
    events, moment, first_s = [], -1, -float("inf")
    for number in sorted(range(len(incidents)), key=lambda k: incidents[k].begin_s):
        item = incidents[number]
        if item.begin_s - first_s > MOMENT_S:
            moment, first_s = moment + 1, item.begin_s
        command, _ = command_for(recording, item, number)
        events.append(
            PageEvent(
                number,
                moment,
                severity_of(recording, item),
                str(item.kind),
                item.robots,
                item.begin_s,
                item.end_s,
                item.at_s,
                float(place[number]),
                claim_of(recording, item),
                item.cause,
                doubt_of(recording, item),
                command,
            )
        )
    return tuple(events)


def incident_findings(recording: TeamRecording, incidents: Sequence[Incident]) -> list[Finding]:
    """Return one finding for each kind and code of incidents, of its worst one, the worst first."""

    def key(number: int) -> tuple[int, int, str]:
        item = incidents[number]
        return severity_of(recording, item).rank, list(IncidentKind).index(item.kind), item.code

    found = []
    for _, group in groupby(sorted(range(len(incidents)), key=key), key):
        numbers = sorted(group, key=lambda k: incidents[k].weight)
        item = incidents[numbers[0]]
        more = f" ({len(numbers)} of this kind; this is the worst)" if len(numbers) > 1 else ""
        command, purpose = command_for(recording, item, numbers[0])
        found.append(
            Finding(
                severity_of(recording, item),
                f"{claim_of(recording, item)}{more}",
                doubt_of(recording, item),
                item.cause,
                command,
                purpose,
                item.at_s,
                tuple(sorted(incidents[k].at_s for k in numbers)),
            )
        )
    return sorted(found, key=lambda finding: finding.severity.rank)


def severity_of(recording: TeamRecording, item: Incident) -> Severity:
    """Return how bad an incident is; a contact that the poses cannot tell is in doubt."""
    if item.kind is IncidentKind.CONTACT and _is_in_doubt(recording, item):
        return Severity.DOUBT
    return _SEVERITIES.get(item.kind, Severity.NOTE)


def claim_of(recording: TeamRecording, item: Incident) -> str:
    """Return what happened; a contact that the poses cannot tell is not asserted."""
    is_open = item.kind is IncidentKind.CONTACT and _is_in_doubt(recording, item)
    return item.what.replace(" touched", " may have touched", 1) if is_open else item.what


def doubt_of(recording: TeamRecording, item: Incident) -> str:
    """Return the error of the poses beside a claim on a distance; empty where poses are true or do not matter."""
    error = error_of_distance_m(recording, item)
    if item.kind not in (IncidentKind.CONTACT, IncidentKind.NEAR_CONTACT) or not error:
        return ""
    away = abs(item.value - _contact_m(recording, item))
    what = "overlap" if item.value < _contact_m(recording, item) else "free space"
    told = CANNOT_TELL if away < error else "can be told"
    return f"{what} {1e3 * away:.0f} mm, pose error {1e3 * error:.0f} mm: {told}"


def error_of_distance_m(recording: TeamRecording, item: Incident) -> float:
    """Return the bound of the error of the distance of an encounter [m]: the root of the sum of squares of its robots.

    The bounds of the robot file are three deviations of independent errors.
    """
    own = [pose_error_m(recording, robot) for robot in recording.robots if robot.name in item.robots]
    return float(sum(error**2 for error in own) ** 0.5)


def command_for(recording: TeamRecording, item: Incident, number: int) -> tuple[str, str]:
    """Return the command that examines or corrects an incident, and its purpose."""
    run = recording.folder
    from_s = max(item.at_s - _LOOK_BACK_S, recording.span_s[0] + 0.1)
    if item.kind in (IncidentKind.CONTACT, IncidentKind.NEAR_CONTACT, IncidentKind.DEADLOCK):
        kind = f" --robot {recording.robot_type}" if recording.robot_type else ""
        return f"testudo incident {run} --incident {number}{kind} --save-scenario incident_{number}.yaml", (
            "simulates it with and without the shield, and saves it for training and evaluation"
        )
    if item.kind is IncidentKind.NOT_FOLLOWING:
        return f"testudo identify {run} --out identified.toml", "fits the robot file to what the robots did"
    if item.kind is IncidentKind.SATURATION:
        return f"testudo gap {run}", "compares the commands with the limits of the robot file"
    if item.kind is IncidentKind.LATE_TICK:
        return "testudo bench robot", "measures the computer on which the control loop runs"
    if recording.run is not None and item.kind in (IncidentKind.STOP, IncidentKind.GUARD_BRAKE):
        return f"testudo replay {run} --mode counterfactual --from {from_s:.1f}", _EXAMINE
    return f"testudo inspect {run}", _INPUTS


def _is_in_doubt(recording: TeamRecording, item: Incident) -> bool:
    error = error_of_distance_m(recording, item)
    return abs(item.value - _contact_m(recording, item)) < error


def _contact_m(recording: TeamRecording, item: Incident) -> float:
    """Return the distance at which bodies touch [m]: of two centres, or of one from a wall."""
    radii = [robot.spec.body_radius_m for robot in recording.robots if robot.name in item.robots]
    return sum(radii)
