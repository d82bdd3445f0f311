"""Why did it fail? Incidents of a run, their likeliest causes, and what would have happened otherwise."""

from testudo_analysis.incident.find import find_incidents
from testudo_analysis.incident.incident import Incident, IncidentKind, IncidentThresholds

__all__ = ["Incident", "IncidentKind", "IncidentThresholds", "find_incidents"]
