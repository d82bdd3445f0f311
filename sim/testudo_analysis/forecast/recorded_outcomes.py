"""The start of a recorded run, and what it showed, by the same definitions as for simulated worlds."""

import numpy as np

from testudo_analysis.forecast.forecast import ForecastError
from testudo_analysis.forecast.outcomes import TOLERANCE_M, TeamSeries, outcomes
from testudo_analysis.forecast.sampled_fleets import TeamStart
from testudo_analysis.replay.replayed_team import goals_of, moment_at
from testudo_hardware.spec import RobotSpec
from testudo_runs.alignment import TeamRecording
from testudo_runs.run_reader import ticks_in_order

_HELD_S = 0.5  # a command acts no longer without the next one, where the driver's dead-man time is unknown
_ROUNDED_S = 0.2
_BRAKED, _PASSED = "braked", "passed"


def robot_files(recording: TeamRecording) -> dict[str, RobotSpec]:
    """Return by name what the software of each robot of a run believes: the robot file of its fleet."""
    run = recording.run
    return {robot.name: robot.spec if run is None else run.fleet.robot(robot.name).spec for robot in recording.robots}


def is_measured(recording: TeamRecording) -> bool:
    """Return whether a run is known by the poses of its robots alone, which have errors."""
    run = recording.run
    return run is None or not all(len(run.truth[name].stamp_s) for name in recording.names)


def begin_of(recording: TeamRecording) -> float:
    """Return when the first robot may drive [s since the start of the run]: the first tick that does not brake."""
    low = recording.span_s[0]
    if recording.run is None:
        return low
    drives = [
        tick.stamp_s - recording.start_s
        for name in recording.names
        for tick in recording.run.ticks[name]
        if tick.status != _BRAKED
    ]
    return max(low, min(drives, default=low))


def start_of_run(recording: TeamRecording) -> TeamStart:
    """Return places, headings and goals of a run when its first robot may drive.

    Raises:
        ForecastError: no goals are recorded.
    """
    goal = goals_of(recording)
    if goal is None:
        raise ForecastError(
            f"{recording.folder}: found no goals of the robots, expected one for each: a forecast is of runs to goals; "
            "--fleet FILE gives starts and goals"
        )
    moment = moment_at(recording, begin_of(recording))
    return TeamStart(moment.position_world, moment.yaw, goal)


def observed(recording: TeamRecording, horizon_s: float, *, whole: bool = True) -> dict[str, np.ndarray]:
    """Return each quantity (1,) that a run shows, by name; NaN where it does not determine it.

    Raises:
        ForecastError: with ``whole``, the run ends before all robots arrived and before ``horizon_s``: that is neither
            success nor failure.
    """
    start, begin_s = start_of_run(recording), begin_of(recording)
    series = recorded_series(recording, begin_s, horizon_s)
    goal = start.goal_world[..., None]
    found = outcomes(series, recording.names, goal, horizon_s, recording.spec)
    lasted_s = len(series.position_world) * series.period_s
    if whole and lasted_s < horizon_s - _ROUNDED_S and _is_open(series, goal):
        raise ForecastError(
            f"{recording.folder}: ends after {lasted_s:.1f} s, before all robots arrived and before the end of "
            f"the forecast, {horizon_s:g} s: neither success nor failure; expected "
            "arrival, or a run as long as the forecast"
        )
    return found


def recorded_series(recording: TeamRecording, begin_s: float, horizon_s: float) -> TeamSeries:
    """Return a run at the control ticks from ``begin_s`` on, for at most ``horizon_s``, as one world."""
    period_s = recording.spec.control_period_s
    last_s = min(begin_s + horizon_s, recording.span_s[1])
    at_s = begin_s + period_s * np.arange(max(1, int((last_s - begin_s) / period_s + 1e-6) + 1))
    moved = [robot.trajectory.at(at_s) for robot in recording.robots]
    position, velocity = (np.stack([one[k].T for one in moved], axis=-1).transpose(1, 0, 2)[..., None] for k in (0, 2))
    command = None
    if all(robot.commands is not None for robot in recording.robots):
        held = [robot.needed_commands().held(at_s + 1e-6, robot.dead_man_s or _HELD_S)[0] for robot in recording.robots]
        command = np.stack(held, axis=-1)[..., None]  # (T, D, N, 1)
    return TeamSeries(period_s, position, velocity, command, _changed(recording, at_s))


def _changed(recording: TeamRecording, at_s: np.ndarray) -> np.ndarray | None:
    """Return whether the shield changed the command of the last tick (T, N, 1); None without ticks."""
    run = recording.run
    if run is None or not all(run.ticks[name] for name in recording.names):
        return None
    columns = []
    for name in recording.names:
        ticks = ticks_in_order(run.ticks[name])
        stamps = np.array([tick.stamp_s for tick in ticks]) - recording.start_s
        status = np.array([tick.status != _PASSED for tick in ticks])
        columns.append(status[np.maximum(np.searchsorted(stamps, at_s + 1e-6, side="right") - 1, 0)])
    return np.stack(columns, axis=1)[..., None]


def _is_open(series: TeamSeries, goal_world: np.ndarray) -> bool:
    """Return whether a robot was away from its goal at the end."""
    away = np.linalg.norm(series.position_world[-1] - goal_world, axis=0)
    return bool((away >= TOLERANCE_M).any())
