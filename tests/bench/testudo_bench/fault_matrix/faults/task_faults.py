"""Rows 36 to 38: the task node stops, its messages are late, or it runs the task of another policy."""

import signal
import time

from testudo_bench.fault_matrix.harness.fault_case import FaultFinding, FaultRow, brakes
from testudo_bench.fault_matrix.harness.fleet_bed import FleetBed
from testudo_bench.fault_matrix.harness.fleet_harness import FleetHarness
from testudo_deploy.control.task_receiver import OLDEST_TASK_S

_LATE_S = 0.5
_PERIOD_S = 0.05  # of the task's messages


def _all_brake(harness: FleetHarness, fault_s: float, code: str) -> FaultFinding | None:
    """Return the longest time to the brake of a robot; every robot must brake and name the code."""
    found: list[FaultFinding] = []
    for name in harness.fleet.names:
        finding = brakes(harness, fault_s, code=code, name=name)
        if finding is None:
            return None
        found.append(finding)
    return max(found, key=lambda finding: finding.time_s or 0.0)


def stopped(harness: FleetHarness) -> FaultFinding | None:
    """The task node is killed."""
    fault_s = harness.send("task", signal.SIGKILL)
    try:
        return _all_brake(harness, fault_s, "task_stale")
    finally:
        harness.restart("task")


def _requested(harness: FleetHarness, request: str, code: str) -> FaultFinding | None:
    """Let the task node send wrong messages until all robots brake."""
    file = harness.task_fault_file
    harness.events()
    file.write_text(request, encoding="utf-8")
    try:
        fault_s = harness.wait(
            lambda: next((one.values["stamp_s"] for one in harness.events() if one.kind == "fault"), None),
            "the task node did not take the request",
            2.0,
        )
        return _all_brake(harness, fault_s, code)
    finally:
        file.unlink()
        time.sleep(_LATE_S)  # messages as before


def late(harness: FleetHarness) -> FaultFinding | None:
    """Every message arrives half a second late."""
    return _requested(harness, f"late {_LATE_S:g}", "task_stale")


def foreign(harness: FleetHarness) -> FaultFinding | None:
    """The messages carry the hash of another task."""
    return _requested(harness, "contract", "task_contract")


def _aged(bed: FleetBed) -> float:
    """Return the age at which a message of the task is too old, and a tick."""
    return OLDEST_TASK_S + bed.spec.control_period_s


def _next(bed: FleetBed) -> float:
    """Return the time in which the next message of the task comes, and a tick."""
    return _PERIOD_S + bed.spec.control_period_s


ROWS = (
    FaultRow(36, "task node stopped", "all brake", _aged, stopped, fleet="tasked"),
    FaultRow(37, "messages of the task 0.5 s late", "all brake", _aged, late, fleet="tasked"),
    FaultRow(38, "task of another policy", "all brake", _next, foreign, fleet="tasked"),
)
