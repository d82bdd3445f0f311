"""All incidents of a run."""

from __future__ import annotations

from testudo_analysis.incident.deadlocks import find_deadlocks
from testudo_analysis.incident.incident import Incident, IncidentThresholds
from testudo_analysis.incident.likely_causes import with_likely_cause
from testudo_analysis.incident.motion_incidents import find_in_motion
from testudo_analysis.incident.near_misses import find_encounters
from testudo_analysis.incident.tick_incidents import find_in_ticks
from testudo_runs.alignment import TeamRecording


def find_incidents(recording: TeamRecording, bounds: IncidentThresholds | None = None) -> list[Incident]:
    """Return what went wrong in a run, each with its likeliest cause, in the order of time."""
    bounds = bounds or IncidentThresholds.of(recording)
    found = [
        *find_encounters(recording, bounds),
        *find_in_motion(recording, bounds),
        *find_deadlocks(recording, bounds),
        *find_in_ticks(recording, bounds),
    ]
    return with_likely_cause(recording, sorted(found, key=lambda incident: (incident.begin_s, incident.weight)))
