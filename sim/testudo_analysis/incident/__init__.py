"""Incidents of a recorded run.

In: a team recording.
Out: incidents with their likeliest causes, counterfactual outcomes, a table, start files.
"""

from testudo_analysis.incident.find_incidents import find_incidents
from testudo_analysis.incident.incident import Incident, IncidentKind, IncidentThresholds

__all__ = ["Incident", "IncidentKind", "IncidentThresholds", "find_incidents"]
