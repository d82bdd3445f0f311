"""Makes a `TeamRecording` of a run: series in order and on one clock, velocities without delay, model commands."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from testudo_deploy.launch.run_folder import FLEET_FILE
from testudo_hardware.frames import rotate_horizontal
from testudo_hardware.links.wire import WORLD_FRAME
from testudo_hardware.schema import DIFFERENTIAL_DRIVE, HOLONOMIC
from testudo_hardware.spec import RobotSpec, load_robot
from testudo_runs.alignment.body_contacts import may_push
from testudo_runs.alignment.sample_cleaning import CleaningReport, ClockFit, heading, on_recorder_clock, tidy
from testudo_runs.alignment.team_recording import (
    AlignedRobot,
    Commands,
    RobotReport,
    TeamRecording,
    Trajectory,
    body_velocity,
)
from testudo_runs.progress_bar import Share, quiet
from testudo_runs.recording.load import load_recording, recording_of_run, start_of
from testudo_runs.recording.recording import Recording, RecordingError, RobotRecording, Series
from testudo_runs.recording.write import IMPORTED
from testudo_runs.run_reader import RecordedRun, read_run

Seen = Literal["truth", "odometry"]
UNTYPED = "its type is not known; give it with --robot-type"
UNSEEN = "neither pose nor odometry is recorded"


def load(
    path: str | Path,
    *,
    robot_type: str | None = None,
    seen: Seen = "truth",
    as_measured: bool = True,
    share: Share = quiet,
) -> TeamRecording:
    """Read a run folder, recorded by `testudo up` or made by `testudo import`, as aligned trajectories and commands.

    ``robot_type`` is a robot or robot file for all robots, by default that of the run; ``seen`` chooses the poses if
    there are both: measured from outside, or the estimate of the robot; ``share`` gets the completed fraction.
    ``as_measured`` uses stamps and velocities of a run of `testudo up` without changes; else, and for imported runs
    always, clocks are corrected and velocities computed from poses.

    Raises:
        RecordingError: no run folder, or nothing readable in it.
        TestudoError: invalid files, or an unknown robot type.
    """
    if (Path(path) / FLEET_FILE).is_file():
        return prepare_run(read_run(path, share), seen=seen, as_measured=as_measured, robot_type=robot_type)
    return prepare(load_recording(path, share=share), robot_type, seen=seen)


def prepare_run(
    run: RecordedRun, *, seen: Seen = "truth", as_measured: bool = True, robot_type: str | None = None
) -> TeamRecording:
    """Return the aligned recording of a run of `testudo up`; see `load`."""
    recording = recording_of_run(run, seen=seen)
    measured = {}
    if as_measured:
        for name in run.robots:
            truth, own = run.truth[name], run.odometry[name]
            pose = truth if seen == "truth" and len(truth.stamp_s) else own
            measured[name] = {"pose": pose.velocity, "odometry": own.velocity}
    team = prepare(recording, robot_type, measured=measured)
    has_goals = run.fleet.task is None  # else the task node sends what the robots drive to
    goals = {robot.name: robot.goal_world if has_goals else None for robot in run.fleet.robots}
    robots = tuple(replace(_with_pushes(robot, run), goal_world=goals[robot.name]) for robot in team.robots)
    return replace(team, robots=robots, run=run, start_s=start_of(run))


def _with_pushes(robot: AlignedRobot, run: RecordedRun) -> AlignedRobot:
    """Return a robot whose trajectory says at which samples it may push a body of its fleet."""
    motion, bodies = robot.trajectory, [(body, run.bodies[body.name]) for body in run.fleet.bodies]
    if not bodies:
        return robot
    pushes = may_push(motion.position_world, motion.stamp_s + start_of(run), robot.spec, bodies)
    report = replace(robot.report, pushing=int(pushes.sum()))
    return replace(robot, trajectory=replace(motion, pushes=pushes), report=report)


def prepare(
    recording: Recording,
    robot_type: str | None = None,
    *,
    seen: Seen = "truth",
    measured: Mapping[str, Mapping[str, np.ndarray]] | None = None,
) -> TeamRecording:
    """Return the aligned recording of series, without robots that cannot be located or have no known type.

    ``robot_type`` and ``seen`` are as for `load`. ``measured`` are recorded velocities (T, D) by robot and role, in the
    channels of the motion model; stamps of robots with them are not corrected.

    Raises:
        TestudoError: no such robot type.
    """
    known_driver = recording.folder is not None and recording.info.get("kind") != IMPORTED
    specs: dict[str, RobotSpec] = {}
    robots, left_out = [], {}
    hides_poses = seen == "odometry" and recording.info.get("kind") == IMPORTED
    for name, raw in recording.robots.items():
        kind = robot_type or raw.robot_type
        if not kind:
            left_out[name] = UNTYPED
            continue
        spec = specs[kind] = specs.get(kind) or load_robot(kind)
        series = {role: own for role, own in raw.series.items() if not (hides_poses and role == "pose")}
        try:
            one = align_robot(replace(raw, series=series), spec, measured=(measured or {}).get(name))
        except RecordingError as error:
            left_out[name] = str(error).removeprefix(f"{name}: ")
            continue
        robots.append(replace(one, dead_man_s=spec.dead_man_s if known_driver else None))
    unseen = [f"{name}: {why}" for name, why in left_out.items() if why.startswith(UNSEEN)]
    warnings = (*recording.warnings, *(f"{text}: left out, its effect on others is not known" for text in unseen))
    return TeamRecording(tuple(robots), recording, left_out, robot_type or "", warnings=warnings)


def align_robot(
    raw: RobotRecording,
    spec: RobotSpec,
    smoother: "Smoother | None" = None,
    *,
    measured: Mapping[str, np.ndarray] | None = None,
) -> AlignedRobot:
    """Return one robot with poses and commands in order and on the clock of the recorder.

    Odometry in ``raw`` replaces missing poses, see `RobotReport.reference`; ``smoother`` chooses the velocity
    estimation, by default by the spacing of the poses; ``measured`` is as for `prepare`, by role.

    Raises:
        RecordingError: fewer than two poses.
    """
    roles = [role for role in ("pose", "odometry") if len(raw.series.get(role, ()))]
    if not roles:
        has = ", ".join(role for role, series in raw.series.items() if len(series)) or "nothing"
        raise RecordingError(UNSEEN if has == "nothing" else f"{UNSEEN}; there is {has}")
    if measured:
        raw = replace(raw, series={role: replace(own, received_s=None) for role, own in raw.series.items()})
    measured = measured or {}
    trajectory, report, clock, smoothing = _trajectory(raw.series[roles[0]], spec, smoother, measured.get(roles[0]))
    tidied, clocks = {"pose": report}, {"pose": clock} if clock else {}
    believed = trajectory
    if roles[-1] != roles[0]:
        with suppress(RecordingError):
            believed = _trajectory(raw.series["odometry"], spec, smoother, measured.get("odometry"))[0]
    commands = None
    if len(raw.series.get("command", ())):
        series, tidied["command"], clock = _aligned(raw.series["command"])
        clocks |= {"command": clock} if clock else {}
        values = model_commands(series, spec, trajectory)
        commands = Commands(series.stamp_s, values, tidied["command"].gap_limit_s) if len(values) else None
    return AlignedRobot(
        raw.name,
        spec,
        trajectory,
        believed,
        commands,
        RobotReport(raw.name, tidied, clocks, smoothing, roles[0]),
        raw=raw,
    )


def model_commands(series: Series, spec: RobotSpec, trajectory: Trajectory) -> np.ndarray:
    """Return twists (M, 6) as commands (M, D) in the channels of the motion model."""
    twist = series.values
    if spec.kind == DIFFERENTIAL_DRIVE:
        return twist[:, [0, 5]]
    if spec.kind == HOLONOMIC and series.frame != WORLD_FRAME:
        yaw = np.interp(series.stamp_s, trajectory.stamp_s, trajectory.yaw)
        return rotate_horizontal(twist[:, :2].T, np.cos(yaw), np.sin(yaw)).T
    return twist[:, : spec.dimension]


def _aligned(series: Series) -> tuple[Series, CleaningReport, ClockFit | None]:
    moved, clock = on_recorder_clock(series)
    clean, report = tidy(moved)
    return clean, report, clock


def _trajectory(
    series: Series, spec: RobotSpec, smoother: "Smoother | None", measured: np.ndarray | None
) -> tuple[Trajectory, CleaningReport, ClockFit | None, dict[str, Any]]:
    """Return the trajectory (T samples) of a series of poses, and its corrections."""
    width = series.values.shape[1]
    if measured is not None:
        series = replace(series, values=np.concatenate([series.values, measured], axis=1))
    clean, report, clock = _aligned(series)
    if len(clean) < 2:
        raise RecordingError(f"found {len(clean)} poses, expected at least 2")
    position, yaw = clean.values[:, : spec.dimension], heading(clean.values[:, 3:7])
    chosen = smoother or Smoother.for_period(report.period_s)
    if measured is not None:
        valid, velocity, smoothing = np.ones(len(yaw), bool), clean.values[:, width:], {}
    else:
        rates = smooth_velocity(clean.stamp_s, np.column_stack([position, yaw]), chosen)
        valid = np.isfinite(rates).all(axis=1)
        smoothing = asdict(chosen) | {"samples": len(rates), "known": int(valid.sum())}
        velocity = _filled(clean.stamp_s, body_velocity(spec, yaw, rates), valid)
    return Trajectory(clean.stamp_s, position, yaw, velocity, valid, chosen.gap_s), report, clock, smoothing


def _filled(stamp_s: np.ndarray, velocity: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Return velocities (T, D), interpolated where not valid; zero if none is valid."""
    if not valid.any():
        return np.zeros_like(velocity)
    return np.stack([np.interp(stamp_s, stamp_s[valid], axis[valid]) for axis in velocity.T], axis=1)


_PERIODS = 2.5  # least half window in sample periods


@dataclass(frozen=True)
class Smoother:
    """Choices of the velocity estimation."""

    half_window_s: float = 0.1  # samples up to this time on either side are used
    degree: int = 2
    gap_s: float = 0.1  # a longer time between samples is not bridged

    @classmethod
    def for_period(cls, period_s: float) -> Self:
        """Return the standard choices, with longer windows for samples more than 40 ms apart."""
        reach = max(cls.half_window_s, _PERIODS * period_s)
        return cls(half_window_s=reach, gap_s=max(cls.gap_s, reach))


def smooth_velocity(stamp_s: np.ndarray, values: np.ndarray, smoother: Smoother | None = None) -> np.ndarray:
    """Return the rates (T, C) of values (T, C) by local least squares with tricube weights.

    They are NaN at samples with fewer than degree + 1 samples in the window. The window is symmetric (Savitzky and
    Golay, Analytical Chemistry 1964, for even stamps), so that it causes no delay; next to a gap it is one-sided.

    Raises:
        RecordingError: stamps do not rise.
    """
    chosen = smoother or Smoother()
    stamp, data = np.asarray(stamp_s, float), np.asarray(values, float)
    if np.any(np.diff(stamp) <= 0):
        raise RecordingError("velocity: stamps do not rise; tidy the series first")
    piece = np.concatenate([[0], np.cumsum(np.diff(stamp) > chosen.gap_s)]) if len(stamp) else np.zeros(0, int)
    rates = np.full(data.shape, np.nan)
    for part in np.unique(piece):
        inside = piece == part
        rates[inside] = _fit(stamp[inside], data[inside], chosen)
    return rates


def _fit(stamp: np.ndarray, data: np.ndarray, chosen: Smoother) -> np.ndarray:
    """Return the rates (T, C) of samples without gaps."""
    size, half = len(stamp), chosen.half_window_s
    first, last = np.searchsorted(stamp, stamp - half), np.searchsorted(stamp, stamp + half, side="right")
    width = int((last - first).max())
    index = first[:, None] + np.arange(width)
    inside = index < last[:, None]
    index = np.minimum(index, size - 1)
    away = np.where(inside, (stamp[index] - stamp[:, None]) / half, 0.0)
    weight = np.where(inside, np.clip(1 - np.abs(away) ** 3, 1e-6, None) ** 3, 0.0)
    powers = away[..., None] ** np.arange(chosen.degree + 1)
    normal = np.einsum("tk,tki,tkj->tij", weight, powers, powers)
    moment = np.einsum("tk,tki,tkc->tic", weight, powers, data[index] - data[:, None, :])
    enough = (last - first > chosen.degree) & (np.linalg.cond(normal) < 1e9)
    rates = np.full(data.shape, np.nan)
    if enough.any():
        rates[enough] = np.linalg.solve(normal[enough], moment[enough])[:, 1] / half
    return rates
