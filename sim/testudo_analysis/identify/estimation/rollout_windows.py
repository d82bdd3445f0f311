"""A run cut into stretches of equal length, with the prediction windows that start in each.

A model is rolled out once over a stretch, with a warm-up; as motion does not depend on pose, every window within the
stretch is the difference of two times of that path.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np

from testudo_hardware.errors import TestudoError
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec
from testudo_runs.alignment import AlignedRobot, Commands, Trajectory

_FEWEST_WINDOWS = 20
_FINE_BELOW_S = 1000.0
_SAME_SIZE = 32
"""Windows of a stretch are padded to a multiple of this, so that similar runs share a compiled program."""
_NEAR = 0.02  # tolerance of the length of a window [s], and as a share


@dataclass(frozen=True)
class SegmentSettings:
    """Settings of the stretches."""

    horizons_s: tuple[float, ...] = (0.5, 1.0, 2.0)
    stretch_s: float = 5.0  # windows that start within this time are one rollout; also the unit of the bootstrap
    spacing_s: float = 0.1  # least time between starts
    step_s: float = 0.01  # step of the model
    finer: int = 4  # cells of each step with the mean command: the finer, the smoother the loss over the delay
    held_s: float = 1.1
    """Longest time that a command acts without another; after a longer silence the command is unknown. Windows with
    shorter silences are used for validation, not for the fit: a command may not have been recorded."""
    longest_delay_s: float = 0.6  # longest delay of the fit
    warm_up_s: float = 1.0
    """Simulated time before the first start of a stretch, until the velocity follows the commands."""

    @classmethod
    def create(cls, spec: RobotSpec, robot_seconds: float = 0.0) -> Self:
        """Return the settings for a robot, with a finer step for short recordings."""
        lag = spec.quantities["dynamics.velocity_lag"].high
        return cls(step_s=0.005 if robot_seconds < _FINE_BELOW_S else 0.01, warm_up_s=max(1.0, 4 * lag))

    @property
    def steps(self) -> int:
        """Return the number of steps in a stretch."""
        longest = self.warm_up_s + self.stretch_s + self.horizons_s[-1] + _NEAR * max(1.0, self.horizons_s[-1])
        return int(np.ceil(longest / self.step_s)) + 2

    @property
    def reach(self) -> int:
        """Return the number of steps before the stretch whose commands can act in it."""
        return int(np.ceil(self.longest_delay_s / self.step_s)) + 1

    @property
    def cells(self) -> int:
        """Return the number of cells with commands."""
        return (self.reach + self.steps + 1) * self.finer


@dataclass(frozen=True)
class SegmentSet:
    """C stretches of all robots, each with up to S windows; missing windows are not valid."""

    robot: np.ndarray  # (C,) int
    begin_s: np.ndarray  # (C,) [s]: earliest start
    end_s: np.ndarray  # (C,) [s]: last end of its windows
    asked: np.ndarray  # (C, D, cells): mean of the commands in each cell
    phase: np.ndarray
    """(C,) [cells]: offset of the cells before the steps, different in each stretch: the command is constant within a
    cell, and with equal offsets the kinks of the loss over the delay would coincide."""
    start: np.ndarray  # (C, S) [steps] from the beginning of the rollout, not whole
    end: np.ndarray  # (C, S) [steps]
    moved: np.ndarray
    """(C, D, S) [m]: recorded displacement, in the heading at the start (differential drive) or in the world."""
    turned: np.ndarray  # (C, S) [rad]
    horizon: np.ndarray  # (C, S) int: index of the horizon
    valid: np.ndarray  # (C, S) bool
    fitted: np.ndarray  # (C, S) bool: valid and without a gap in the commands

    def __len__(self) -> int:
        return len(self.robot)

    def take(self, which: np.ndarray) -> "SegmentSet":
        """Return some of the stretches: indices or mask (C,)."""
        return replace(self, **{field.name: getattr(self, field.name)[which] for field in fields(self)})


def cut(robots: Sequence[AlignedRobot], spec: RobotSpec, cutting: SegmentSettings) -> SegmentSet:
    """Return the stretches of robots of one kind.

    Windows begin and end at poses, so that nothing is interpolated; none spans a longer gap in the poses than its
    horizon, and all commands that act in it are known.

    Raises:
        TestudoError: too few windows.
    """
    parts = [part for k, robot in enumerate(robots) for part in _cut_robot(k, robot, spec, cutting)]
    found = sum(len(part["start"]) for part in parts)
    if found < _FEWEST_WINDOWS:
        raise TestudoError(
            f"{', '.join(robot.name for robot in robots)}: found {found} windows of {cutting.horizons_s[0]:g} s or "
            f"more with poses and commands, expected at least {_FEWEST_WINDOWS}; record a minute or more of driving"
        )
    size = -(-max(len(part["start"]) for part in parts) // _SAME_SIZE) * _SAME_SIZE

    def padded(value: np.ndarray) -> np.ndarray:
        return np.pad(value, [(0, 0)] * (value.ndim - 1) + [(0, size - value.shape[-1])])

    columns = {name: [part[name] for part in parts] for name in parts[0]}
    windows = {"start", "end", "moved", "turned", "horizon", "valid", "fitted"}
    return SegmentSet(
        **{
            name: np.stack([padded(value) for value in values]) if name in windows else np.array(values)
            for name, values in columns.items()
        }
    )


def _cut_robot(number: int, robot: AlignedRobot, spec: RobotSpec, cutting: SegmentSettings) -> list[dict[str, Any]]:
    """Return the fields of `SegmentSet` for each stretch of one robot."""
    told, seen = robot.needed_commands(), robot.trajectory
    command, stamps = told.values, seen.stamp_s
    integral = np.concatenate(
        [np.zeros((1, command.shape[1])), np.cumsum(np.diff(told.stamp_s)[:, None] * command[:-1], axis=0)]
    )
    # first sample (K,) of each time interval of this length
    first = np.unique(((stamps - stamps[0]) // cutting.spacing_s).astype(int), return_index=True)[1]
    windows = [_ends(stamps, first, horizon) for horizon in cutting.horizons_s]
    start = np.concatenate([first[near] for near, _ in windows])
    end = np.concatenate([ends for _, ends in windows])
    horizon = np.concatenate([np.full(len(ends), k) for k, (_, ends) in enumerate(windows)])
    known, sure = (
        _commanded(told, spec, stamps[start], stamps[end], cutting, silence) for silence in (cutting.held_s, told.gap_s)
    )
    known &= seen.free(start, end)
    start, end, horizon, sure = start[known], end[known], horizon[known], sure[known]
    if not len(start):
        return []
    origin = float(stamps[0])
    part = ((stamps[start] - origin) // cutting.stretch_s).astype(int)
    parts = []
    for k in np.unique(part):
        inside = np.flatnonzero(part == k)
        i, j = start[inside], end[inside]
        begin = origin + k * cutting.stretch_s
        rolled_from = begin - cutting.warm_up_s
        phase = (0.618 * k + 0.31 * number) % 1
        ends = rolled_from + cutting.step_s * ((np.arange(cutting.cells + 1) - phase) / cutting.finer - cutting.reach)
        asked = np.diff(_integral_at(told.stamp_s, integral, command, ends), axis=0) / np.diff(ends)[:, None]
        parts.append(
            {
                "robot": number,
                "begin_s": begin,
                "end_s": float(stamps[j].max()),
                "asked": asked.T,
                "phase": phase,
                "start": (stamps[i] - rolled_from) / cutting.step_s,
                "end": (stamps[j] - rolled_from) / cutting.step_s,
                "moved": _moved(seen, spec, i, j),
                "turned": seen.yaw[j] - seen.yaw[i],
                "horizon": horizon[inside],
                "valid": np.ones(len(inside), bool),
                "fitted": sure[inside],
            }
        )
    return parts


def _ends(stamps: np.ndarray, first: np.ndarray, horizon: float) -> tuple[np.ndarray, np.ndarray]:
    """Return which starts (mask) have a sample near their end, and these samples."""
    wanted = stamps[first] + horizon
    after = np.clip(np.searchsorted(stamps, wanted), 1, len(stamps) - 1)
    end = np.where(wanted - stamps[after - 1] <= stamps[after] - wanted, after - 1, after)
    near = np.abs(stamps[end] - wanted) <= _NEAR * max(1.0, horizon)
    return near, end[near]


def _commanded(
    told: Commands, spec: RobotSpec, begin: np.ndarray, end: np.ndarray, cutting: SegmentSettings, silence_s: float
) -> np.ndarray:
    """Return (S,) bool: all commands between two times are known, each held for at most ``silence_s``."""
    before = begin - cutting.longest_delay_s - spec.velocity_lag_s
    known = (before >= told.stamp_s[0]) & (end <= told.stamp_s[-1] + spec.command_delay_s)
    silent = np.flatnonzero(np.diff(told.stamp_s) > silence_s)
    for lost, found in zip(told.stamp_s[silent], told.stamp_s[silent + 1], strict=True):
        known &= (end <= lost + silence_s) | (before >= found)
    return known


def _integral_at(stamps: np.ndarray, integral: np.ndarray, command: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return the integral (T, D) of held commands at times; the first and the last have no end."""
    index = np.searchsorted(stamps, times, side="right") - 1
    held = np.maximum(index, 0)
    return integral[held] + (times - stamps[held])[:, None] * command[held]


def _moved(seen: Trajectory, spec: RobotSpec, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    way = (seen.position_world[end] - seen.position_world[start]).T
    if spec.kind != DIFFERENTIAL_DRIVE:
        return way[: spec.dimension]
    cos, sin = np.cos(seen.yaw[start]), np.sin(seen.yaw[start])
    return np.stack([way[0] * cos + way[1] * sin, way[1] * cos - way[0] * sin])
