"""A robot's series on one time base: in order, on the recorder's clock, poses as planar numbers, commands as steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from testudo_runs.alignment.clock_fit import ClockFit, on_recorder_clock
from testudo_runs.alignment.latency import LatencyEstimate, response_latency
from testudo_runs.alignment.sample_cleaning import CleaningReport, heading, tidy
from testudo_runs.alignment.velocity_smoothing import Smoothed, Smoother, smooth_velocity
from testudo_runs.recording.recording import RecordingError, RobotRecording, Series


@dataclass(frozen=True)
class RobotReport:
    """What was done to the series of one robot."""

    robot: str
    tidy: dict[str, CleaningReport]
    """By role."""
    clocks: dict[str, ClockFit]
    """By role, of those that know when they were received."""
    latency: LatencyEstimate | None
    """From command to motion."""
    smoothing: dict[str, Any]
    reference: str = "pose"
    """What its poses are: `pose` if it was seen from outside, else `odometry`, what it believed."""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "robot": self.robot,
            "series": {role: report.to_dict() for role, report in self.tidy.items()},
            "clocks": {role: fit.to_dict() for role, fit in self.clocks.items()},
            "latency": None if self.latency is None else self.latency.to_dict(),
            "velocity": self.smoothing,
            "reference": self.reference,
        }


@dataclass(frozen=True)
class AlignedRobot:
    """Pose and command of one robot on the recording's clock."""

    name: str
    stamp_s: np.ndarray
    """(T,) of the poses."""
    position_world: np.ndarray
    """(T, 3) [m]."""
    yaw: np.ndarray
    """(T,) [rad], unwrapped."""
    motion: Smoothed
    """Of x, y, z, yaw; rates in the world."""
    command_s: np.ndarray
    """(M,) from when on each command was sent."""
    command: np.ndarray
    """(M, 6): linear and angular velocity."""
    command_frame: str
    report: RobotReport

    @property
    def body_velocity(self) -> np.ndarray:
        """Return (T, 3): forward, left [m/s] and turn rate [rad/s]; NaN where not known."""
        vx, vy, _, turn = self.motion.rates.T
        cos, sin = np.cos(self.yaw), np.sin(self.yaw)
        return np.stack([vx * cos + vy * sin, vy * cos - vx * sin, turn], axis=1)


def located(robot: RobotRecording) -> RobotRecording:
    """Return a robot that was not seen from outside with what it believed, its odometry, as its poses.

    Raises:
        RecordingError: it has neither.
    """
    if not any(len(robot.series.get(role, ())) for role in ("pose", "odometry")):
        has = ", ".join(name for name, series in robot.series.items() if len(series)) or "nothing"
        raise RecordingError(f"{robot.name}: neither pose nor odometry is recorded; there is {has}")
    if len(robot.series.get("pose", ())):
        return robot
    return replace(robot, series={**robot.series, "pose": robot.series["odometry"]})


def align_robot(
    robot: RobotRecording,
    smoother: Smoother | None = None,
    *,
    world: bool = False,
    roles: Sequence[str] = ("pose", "command"),
) -> AlignedRobot:
    """Return pose and command of a robot in order, on one clock, with velocities and latency.

    Args:
        robot: as recorded; its odometry stands for poses that nobody saw, which the report says.
        smoother: how velocities are found.
        world: commands are velocities in the world rather than in the body.
        roles: what counts as the pose and as the command.

    Raises:
        RecordingError: it has no pose or no command.
    """
    tidied: dict[str, CleaningReport] = {}
    clocks: dict[str, ClockFit] = {}
    series: list[Series] = []
    seen = len(robot.series.get("pose", ())) > 0
    robot = located(robot) if "pose" in roles else robot
    for role in roles:
        moved, fit = on_recorder_clock(robot.find(role))
        clean, tidied[role] = tidy(moved)
        if fit is not None:
            clocks[role] = fit
        series.append(clean)
    pose, command = series
    yaw = heading(pose.values[:, 3:7])
    motion = smooth_velocity(pose.stamp_s, np.concatenate([pose.values[:, :3], yaw[:, None]], axis=1), smoother)
    aligned = AlignedRobot(
        robot.name,
        pose.stamp_s,
        pose.values[:, :3],
        yaw,
        motion,
        command.stamp_s,
        command.values,
        command.frame,
        RobotReport(
            robot.name, tidied, clocks, None, motion.to_dict(), "pose" if seen or "pose" not in roles else "odometry"
        ),
    )
    return replace(aligned, report=replace(aligned.report, latency=_latency(aligned, world)))


def held(stamp_s: np.ndarray, values: np.ndarray, times_s: np.ndarray) -> np.ndarray:
    """Return the values (S, C) that were set last at times (S,); those before the first stamp are zero."""
    index = np.searchsorted(stamp_s, times_s, side="right") - 1
    return np.where((index >= 0)[:, None], values[np.maximum(index, 0)], 0.0)


def interpolated(stamp_s: np.ndarray, values: np.ndarray, times_s: np.ndarray, *, gap_s: float = np.inf) -> np.ndarray:
    """Return values (S, C) linearly between samples; NaN outside of them and within gaps longer than ``gap_s``."""
    found = np.stack([np.interp(times_s, stamp_s, column, np.nan, np.nan) for column in values.T], axis=1)
    after = np.clip(np.searchsorted(stamp_s, times_s), 1, max(len(stamp_s) - 1, 1))
    if len(stamp_s) > 1:
        inside = (
            (stamp_s[after] - stamp_s[after - 1] > gap_s)
            & (times_s != stamp_s[after])
            & (times_s != stamp_s[after - 1])
        )
        found[inside] = np.nan
    return found


def _latency(robot: AlignedRobot, world: bool) -> LatencyEstimate | None:
    """Return the latency from commands to the motion that the poses show."""
    if len(robot.command_s) < 2 or len(robot.stamp_s) < 2:
        return None
    rates = robot.motion.rates
    moved = rates[:, :3] if world else robot.body_velocity
    asked = robot.command[:, :3] if world else robot.command[:, [0, 1, 5]]
    times = np.arange(robot.command_s[0], robot.command_s[-1], 0.01)
    return response_latency(times, held(robot.command_s, asked, times), robot.stamp_s, moved)
