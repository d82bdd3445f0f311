"""One run of a task on the fleet over ROS 2: contacts, what the task node scored, and re-inference."""

import math
from pathlib import Path
from typing import Any

from testudo_analysis.replay import reinfer
from testudo_bench.fleet_tasks.task_case import PreparedCase, figure_of
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.launch.fleet_run import run_fleet
from testudo_hardware.errors import TestudoError
from testudo_runs.run_reader import RecordedRun, read_run

_STARTING_S = 15.0  # beside the time limit of the task, which ends a run


def run_task(prepared: PreparedCase, number: int, folder: Path, *, lock_step: bool) -> dict[str, Any]:
    """Play one episode with the plant and all nodes, and return its figures, JSON-ready.

    Raises:
        TestudoError: a node refused or died before the start, or no robot came to its first tick.
    """
    fleet, run = prepared.fleet(number), folder / "run"
    state = run_fleet(
        fleet,
        run_folder=run,
        seed=number,
        duration_s=prepared.horizon_s + _STARTING_S,
        watch=() if fleet.task is not None else ("task",),
        lock_step=lock_step,
    )
    recorded = read_run(run)
    if not any(recorded.ticks.values()):
        said = f": {state.lines[-1]}" if state.lines else ""
        raise TestudoError(
            f"{prepared.case.scenario}: run {number + 1}: no robot came to its first tick ({state.outcome}){said}; on "
            "a less loaded computer, the same command with its --json file goes on with this run"
        )
    return {
        "number": number,
        "outcome": state.outcome,
        "contacts": state.contacts,
        "separation_m": state.separation_m if math.isfinite(state.separation_m) else None,
        "time_s": state.time_s,
        "real_time_factor": state.real_time_factor,
        "late_ticks": sum(state.late_ticks.values()),
        "error_lines": state.lines,
        **scored(recorded, prepared.case.metric),
        **reinferred(recorded),
    }


def scored(recorded: RecordedRun, metric: str) -> dict[str, Any]:
    """Return what the task node said of the last decision of a run; the figure is None if it scored none."""
    said = [score for score in recorded.task_scores if "decision" in score]
    if not said:
        return {"figure": None, "decisions": 0, "unscored": 0}
    last = said[-1]
    total = sum(last["total"].values()) / len(last["total"])
    figure = figure_of(metric, total, float(bool(last["success"])), last["metrics"])
    return {"figure": figure, "decisions": last["decision"], "unscored": last["decision"] - last["scored"]}


def reinferred(recorded: RecordedRun) -> dict[str, Any]:
    """Return the worst difference of the recorded commands from those inferred again, and what could not be."""
    policy = PolicyArtefact.load(recorded.policy_path, sha256=recorded.policy_sha256)
    result = reinfer(recorded, policy)
    return {
        "reinference_error": result.error if math.isfinite(result.error) else None,
        "reinferred_ticks": sum(robot.reinferred for robot in result.robots),
        "unverified": sum(robot.unverified for robot in result.robots),
    }
