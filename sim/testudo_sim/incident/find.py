"""All incidents of a run."""

from __future__ import annotations

from testudo_sim.alignment import TeamRecording
from testudo_sim.incident.causes import explained
from testudo_sim.incident.deadlocks import find_deadlocks
from testudo_sim.incident.encounters import find_encounters
from testudo_sim.incident.motion import find_in_motion
from testudo_sim.incident.ticks import find_in_ticks
from testudo_sim.incident.types import Bounds, Incident


def find_incidents(recording: TeamRecording, bounds: Bounds | None = None) -> list[Incident]:
    """Return what went wrong in a run, each with its likeliest cause, in the order of time."""
    bounds = bounds or Bounds.of(recording)
    found = [
        *find_encounters(recording, bounds),
        *find_in_motion(recording, bounds),
        *find_deadlocks(recording, bounds),
        *find_in_ticks(recording, bounds),
    ]
    return explained(recording, sorted(found, key=lambda incident: (incident.begin_s, incident.weight)))
