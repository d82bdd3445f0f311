"""One moment of a run: where the team was, how it moved, and what it was told from then on."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from testudo_analysis.replay.team_story import RobotStory, TeamStory
from testudo_hardware.errors import TestudoError

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


def moment_at(story: TeamStory, time_s: float) -> RunMoment:
    """Return the state of the team at a moment, interpolated between the poses around it.

    Raises:
        TestudoError: outside the time in which all robots were seen, or one of them was not seen around it.
    """
    if not story.robots:
        raise TestudoError(f"{story.folder}: --from: no robot was seen at {time_s:g} s")
    low, high = story.span_s
    if not low <= time_s <= high:
        raise TestudoError(
            f"{story.folder}: --from: found {time_s:g} s, expected {low:.1f} to {high:.1f} s, in which "
            "all robots were seen"
        )
    for robot in story.robots:
        stamps = robot.motion.stamp_s
        after = int(np.clip(np.searchsorted(stamps, time_s), 1, len(stamps) - 1))
        if stamps[after] - stamps[after - 1] > _GAP_S:
            raise TestudoError(
                f"{story.folder}: --from: {robot.name} was not seen between {stamps[after - 1]:.2f} and "
                f"{stamps[after]:.2f} s; take another moment than {time_s:g} s"
            )
    found = [robot.motion.at(np.array([time_s])) for robot in story.robots]
    return RunMoment(
        time_s,
        np.stack([position[0] for position, _, _ in found], axis=1),
        np.array([yaw[0] for _, yaw, _ in found]),
        np.stack([velocity[0] for _, _, velocity in found], axis=1),
    )


def commands_from(story: TeamStory, time_s: float, ticks: int) -> np.ndarray:
    """Return what the robots were told at each tick from a moment on (T, D, N), as actuator commands.

    A robot whose commands were not recorded counts as told to move as it then moved.
    """
    period = story.spec.control_period_s
    at_s = time_s + period * np.arange(ticks)
    return np.stack([_commands(robot, at_s) for robot in story.robots], axis=-1)


def _commands(robot: RobotStory, at_s: np.ndarray) -> np.ndarray:
    if robot.sent is None:
        ahead_s = robot.spec.command_delay_s + robot.spec.velocity_lag_s
        return robot.motion.at(at_s + ahead_s)[2]
    index = np.searchsorted(robot.sent.stamp_s, at_s + 1e-9, side="right") - 1
    age = at_s - robot.sent.stamp_s[np.maximum(index, 0)]
    acts = (index >= 0) & (age <= _FRESH_S)
    return np.where(acts[:, None], robot.sent.command[np.maximum(index, 0)], 0.0)


def goals_of(story: TeamStory) -> np.ndarray | None:
    """Return where the robots wanted to go (D, N) [m]; None if nobody recorded it."""
    goals = [robot.goal_world for robot in story.robots]
    return None if any(goal is None for goal in goals) else np.array(goals, float).T
