"""Why did it fail? Incidents of a run, their likeliest causes, and what would have happened otherwise."""

from testudo_analysis.incident.find import find_incidents
from testudo_analysis.incident.incident import Bounds, Incident, Kind

__all__ = ["Bounds", "Incident", "Kind", "find_incidents"]
