"""The report of a run: plots, one self-contained HTML page, and a summary in JSON."""

from testudo_analysis.report.fleet_summary import FleetSummary, RobotSummary, summarise_fleet
from testudo_analysis.report.html_page import write_html
from testudo_analysis.report.report_data import (
    EvaluationRow,
    FleetSection,
    FlownRun,
    ParitySection,
    ReinferenceSection,
    ReportData,
    ReportVerdict,
    TrainingSection,
)
from testudo_analysis.report.summary import verdicts, write_summary

__all__ = [
    "EvaluationRow",
    "FleetSection",
    "FleetSummary",
    "FlownRun",
    "ParitySection",
    "ReinferenceSection",
    "ReportData",
    "ReportVerdict",
    "RobotSummary",
    "TrainingSection",
    "summarise_fleet",
    "verdicts",
    "write_html",
    "write_summary",
]
