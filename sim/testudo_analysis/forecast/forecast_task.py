"""Reads whose next run is forecast, from recorded runs or from a fleet file."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from testudo_analysis.forecast.forecast import MEASURED, ForecastError
from testudo_analysis.forecast.make_forecast import ForecastTask, RunThatWas
from testudo_analysis.forecast.recorded_outcomes import is_measured, observed, robot_files, start_of_run
from testudo_analysis.forecast.sampled_fleets import TeamStart
from testudo_deploy.fleet.fleet import Fleet
from testudo_runs.alignment import TeamRecording


def task_of_runs(recordings: Sequence[TeamRecording], horizon_s: float) -> ForecastTask:
    """Return the task of teams that begin as in one of the runs; the last one's outcomes are shown beside the forecast.

    Raises:
        ForecastError: runs of different robots, without goals, or some with true poses and some without.
    """
    first, last = recordings[0], recordings[-1]
    files = robot_files(first)
    for other in recordings[1:]:
        if robot_files(other) != files:
            raise ForecastError(
                f"{other.folder}: found robots {', '.join(other.names)}, expected {', '.join(first.names)} with the "
                f"same robot files, as in {first.folder}"
            )
    seen = {is_measured(one) for one in recordings}
    if len(seen) > 1:
        raise ForecastError(
            f"{last.folder}: found runs with and without true poses, expected one kind: a robot's own poses have errors"
        )
    return ForecastTask(
        first.names,
        tuple(spec.name for spec in files.values()),
        tuple(files.values()),
        tuple(map(start_of_run, recordings)),
        tuple(str(one.folder) for one in recordings),
        observed(last, horizon_s, whole=False),
        tuple(past for past in (_over(one, horizon_s) for one in recordings) if past is not None),
        seen.pop(),
    )


def _over(recording: TeamRecording, horizon_s: float) -> RunThatWas | None:
    """Return what a run showed; None for one without a policy, or that ended before arrival and horizon."""
    if recording.run is None:
        return None
    try:
        found = observed(recording, horizon_s)
    except ForecastError:
        return None
    values = {name: float(value[0]) for name, value in found.items()}
    return RunThatWas(start_of_run(recording), values, recording.run.policy_sha256)


def task_of_fleet(fleet: Fleet) -> ForecastTask:
    """Return the task of a fleet file: its starts and goals.

    Raises:
        ForecastError: a task other than goals, several policies, or robots that nobody controls.
    """
    if fleet.task is not None or fleet.policies or fleet.untrusted or any(robot.follows for robot in fleet.robots):
        raise ForecastError(
            f"{fleet.file}: found a task, several policies, untrusted or following robots; a forecast is of one policy "
            "whose robots each have a fixed goal"
        )
    robots = fleet.robots
    start = TeamStart(
        np.array([robot.initial_position_world for robot in robots], float).T,
        np.array([robot.initial_yaw for robot in robots], float),
        np.array([robot.goal_world for robot in robots], float).T,
    )
    types = tuple(robot.type for robot in robots)
    return ForecastTask(fleet.names, types, tuple(robot.spec for robot in robots), (start,))


def with_fleet(task: ForecastTask | None, fleet: Fleet) -> ForecastTask:
    """Return the task of a fleet file, with what the last of the runs showed beside it.

    Raises:
        ForecastError: other robots than in the runs, or as `task_of_fleet`.
    """
    made = task_of_fleet(fleet)
    if task is None:
        return made
    if made.names != task.names:
        raise ForecastError(f"{fleet.file}: found {', '.join(made.names)}, expected {', '.join(task.names)}, as in RUN")
    return replace(made, runs=task.runs, last=task.last, past=task.past, measured=task.measured)


def seen_by(task: ForecastTask, poses: str) -> ForecastTask:
    """Return the task whose next run is seen by true or measured poses; past runs of the other kind say nothing."""
    measured = poses == MEASURED
    return replace(task, measured=measured, past=task.past if task.measured == measured else ())
