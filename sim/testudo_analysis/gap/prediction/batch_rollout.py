"""Every start of every robot of one type, through any number of parameter sets at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from testudo_analysis.replay.batched_rollout import rollout
from testudo_analysis.replay.command_timeline import CommandTimeline, timeline_of
from testudo_analysis.replay.open_loop_windows import OpenLoopWindows, pick_windows
from testudo_hardware.motion import MotionState, motion_model
from testudo_hardware.spec import RobotSpec
from testudo_runs.alignment import AlignedRobot

_FARTHEST_S, _SHARE = 0.02, 0.1
"""A sample stands for a horizon if it is off by no more than this, and by no more than this share of it."""


@dataclass(frozen=True)
class RollOut:
    """What was predicted from every start of one robot."""

    robot: AlignedRobot
    windows: OpenLoopWindows
    """Valid for every parameter set."""
    predicted: tuple[MotionState, ...]
    """(D, H, S) at the ends by parameter set; any where not valid."""
    more: tuple[Mapping[str, np.ndarray], ...] = ()
    """Errors (H, S) by further channel that the states do not show, by parameter set."""


def roll_out_all(
    robots: Sequence[AlignedRobot], specs: Sequence[RobotSpec], horizons_s: Sequence[float]
) -> list[RollOut]:
    """Return the predictions of each parameter set from every pose of every robot.

    Args:
        robots: robots of one type.
        specs: that type with one or more sets of parameters; what they share are the windows.
        horizons_s: rising [s].
    """
    made = []
    for spec in specs:
        model = motion_model(spec)
        timelines = by_robot(partial(timeline_of, model), [robot.pieces for robot in robots])
        like = made[0][2] if made else [None] * len(robots)
        made.append((model, timelines, by_robot(partial(_windows, horizons_s), timelines, robots, like)))
    valid = [
        np.logical_and.reduce([windows.valid for windows in of_robot])
        for of_robot in zip(*(windows for _, _, windows in made), strict=True)
    ]
    predicted = [
        rollout(model, timelines, [replace(own, valid=both).starts for own, both in zip(windows, valid, strict=True)])
        for model, timelines, windows in made
    ]
    return [
        RollOut(robot, replace(windows, valid=both), of_robot)
        for robot, windows, both, of_robot in zip(robots, made[0][2], valid, zip(*predicted, strict=True), strict=True)
    ]


def _windows(
    horizons_s: Sequence[float], timeline: CommandTimeline, robot: AlignedRobot, like: OpenLoopWindows | None
) -> OpenLoopWindows:
    """Return the windows of a robot, by other ones that differ only in what is known of the commands."""
    if like is None:
        return pick_windows(timeline, robot.trajectory, horizons_s, _tolerance(robot, horizons_s))
    acting = timeline.acting(robot.trajectory.stamp_s)
    first, last = acting[like.start], acting[like.end]
    return replace(like, valid=like.valid & timeline.all_known(first, last), segment=first, end_segment=last)


def by_robot(function: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
    """Return what a function makes of each robot, on all cores: NumPy lets go of the interpreter meanwhile."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(function, *columns))


def _tolerance(robot: AlignedRobot, horizons_s: Sequence[float]) -> np.ndarray:
    """Return by how much an end may miss each horizon (H, 1) [s]: poses of real trackers do not come evenly."""
    half = 0.5 * float(np.median(np.diff(robot.trajectory.stamp_s)))
    return np.maximum(half, np.minimum(_SHARE * np.asarray(horizons_s), _FARTHEST_S))[:, None]
