"""One moment of a run: where the team was, how it moved, and what it was told from then on."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from testudo_hardware.errors import TestudoError
from testudo_runs.alignment import AlignedRobot, TeamRecording

_GAP_S = 1.0
"""A robot that nobody saw for longer around a moment is not where a straight line between the poses would put it."""
_FRESH_S = 0.5
"""A command that was followed by none for so long does not act any more."""


@dataclass(frozen=True)
class RunMoment:
    """Where every robot was."""

    time_s: float
    """Since the start of the run."""
    position_world: np.ndarray = field(repr=False)
    """(D, N) [m]."""
    yaw: np.ndarray = field(repr=False)
    """(N,) [rad]."""
    velocity: np.ndarray = field(repr=False)
    """(D, N): see `MotionState.velocity`."""


def moment_at(recording: TeamRecording, time_s: float) -> RunMoment:
    """Return the state of the team at a moment, interpolated between the poses around it.

    Raises:
        TestudoError: outside the time in which all robots were seen, or one of them was not seen around it.
    """
    if not recording.robots:
        raise TestudoError(f"{recording.folder}: --from: no robot was seen at {time_s:g} s")
    low, high = recording.span_s
    if not low <= time_s <= high:
        raise TestudoError(
            f"{recording.folder}: --from: found {time_s:g} s, expected {low:.1f} to {high:.1f} s, in which "
            "all robots were seen"
        )
    for robot in recording.robots:
        stamps = robot.trajectory.stamp_s
        after = int(np.clip(np.searchsorted(stamps, time_s), 1, len(stamps) - 1))
        if stamps[after] - stamps[after - 1] > _GAP_S:
            raise TestudoError(
                f"{recording.folder}: --from: {robot.name} was not seen between {stamps[after - 1]:.2f} and "
                f"{stamps[after]:.2f} s; take another moment than {time_s:g} s"
            )
    found = [robot.trajectory.at(np.array([time_s])) for robot in recording.robots]
    return RunMoment(
        time_s,
        np.stack([position[0] for position, _, _ in found], axis=1),
        np.array([yaw[0] for _, yaw, _ in found]),
        np.stack([velocity[0] for _, _, velocity in found], axis=1),
    )


def commands_from(recording: TeamRecording, time_s: float, ticks: int) -> np.ndarray:
    """Return what the robots were told at each tick from a moment on (T, D, N), as actuator commands.

    A robot whose commands were not recorded counts as told to move as it then moved.
    """
    period = recording.spec.control_period_s
    at_s = time_s + period * np.arange(ticks)
    return np.stack([_commands(robot, at_s) for robot in recording.robots], axis=-1)


def _commands(robot: AlignedRobot, at_s: np.ndarray) -> np.ndarray:
    if robot.commands is None:
        ahead_s = robot.spec.command_delay_s + robot.spec.velocity_lag_s
        return robot.trajectory.at(at_s + ahead_s)[2]
    return robot.commands.held(at_s + 1e-9, _FRESH_S + 1e-9)[0]


def goals_of(recording: TeamRecording) -> np.ndarray | None:
    """Return where the robots wanted to go (D, N) [m]; None if nobody recorded it."""
    goals = [robot.goal_world for robot in recording.robots]
    return None if any(goal is None for goal in goals) else np.array(goals, float).T
