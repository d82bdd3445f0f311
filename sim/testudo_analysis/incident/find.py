"""All incidents of a run."""

from __future__ import annotations

from testudo_analysis.incident.deadlocks import find_deadlocks
from testudo_analysis.incident.incident import Incident, IncidentThresholds
from testudo_analysis.incident.likely_causes import with_likely_cause
from testudo_analysis.incident.motion_incidents import find_in_motion
from testudo_analysis.incident.near_misses import find_encounters
from testudo_analysis.incident.tick_incidents import find_in_ticks
from testudo_analysis.replay.team_story import TeamStory


def find_incidents(story: TeamStory, bounds: IncidentThresholds | None = None) -> list[Incident]:
    """Return what went wrong in a run, each with its likeliest cause, in the order of time."""
    bounds = bounds or IncidentThresholds.of(story)
    found = [
        *find_encounters(story, bounds),
        *find_in_motion(story, bounds),
        *find_deadlocks(story, bounds),
        *find_in_ticks(story, bounds),
    ]
    return with_likely_cause(story, sorted(found, key=lambda incident: (incident.begin_s, incident.weight)))
