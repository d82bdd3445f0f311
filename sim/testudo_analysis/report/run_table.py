"""What came of each of several runs over ROS 2, in one line each."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence

from testudo_analysis.report.fleet_summary import control_point_distances
from testudo_analysis.report.report_data import FlownRun, ReportVerdict
from testudo_deploy.launch.fleet_run import FleetRunState
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_runs.run_reader import RecordedRun

COLUMNS = ("seed", "outcome", "time", "contacts", "centres", "control points", "kept", "late ticks", "load")


def flown_run(seed: int, state: FleetRunState, recording: RecordedRun, shield: ProjectionParameters) -> FlownRun:
    """Return what came of a run that has just ended; ``seed`` is that of its start and of the plant."""
    pairs = control_point_distances(recording, shield.height_ratio)
    distances = [float(values.min()) for _, values in pairs if len(values)]
    return FlownRun(
        seed,
        state.outcome,
        state.time_s,
        state.contacts,
        state.separation_m,
        min(distances, default=math.inf),
        shield.separation_m,
        sum(state.late_ticks.values()),
        sum(state.ticks.values()),
        os.getloadavg()[0],
    )


def flown_row(run: FlownRun) -> tuple[str, ...]:
    """Return the line of a run in a table, by `COLUMNS`."""
    return (
        str(run.seed),
        run.outcome,
        f"{run.time_s:.1f} s",
        str(run.contacts),
        f"{run.separation_m:.3f} m",
        f"{run.control_points_m:.3f} m",
        f"{run.kept_m:.3f} m",
        f"{run.late_ticks} of {run.ticks}",
        f"{run.load:.1f}",
    )


def flown_verdicts(runs: Sequence[FlownRun]) -> Iterator[ReportVerdict]:
    """Yield the lines of several runs for the table of checks; none for a single run, which has its own."""
    if len(runs) < 2:
        return
    arrived, touched = sum(run.outcome == "arrived" for run in runs), sum(run.contacts for run in runs)
    yield ReportVerdict(
        f"arrived, {len(runs)} runs over ROS 2", f"{arrived} of {len(runs)}", "all", arrived == len(runs)
    )
    yield ReportVerdict(f"contacts, {len(runs)} runs over ROS 2", str(touched), "0", not touched)
    least, short = min(run.separation_m for run in runs), max(run.short_m for run in runs)
    yield ReportVerdict(f"least distance, {len(runs)} runs over ROS 2", f"{least:.3f} m", "", None)
    yield ReportVerdict("control points within what the shield keeps", f"{1e3 * short:.0f} mm", "", None)
