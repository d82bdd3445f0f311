"""Every start of every robot of one type, through any number of parameter sets at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from testudo_analysis.gap.prediction.prepared_motion import PreparedMotion, timeline_of
from testudo_analysis.replay.command_timeline import CommandTimeline
from testudo_analysis.replay.open_loop_windows import OpenLoopWindows, pick_windows, roll_windows
from testudo_hardware.motion import MotionState, motion_model
from testudo_hardware.spec import RobotSpec

_FARTHEST_S, _SHARE = 0.02, 0.1
"""A sample stands for a horizon if it is off by no more than this, and by no more than this share of it."""
_NO_LIMIT = 1e9


@dataclass(frozen=True)
class RollOut:
    """What was predicted from every start of one robot."""

    motion: PreparedMotion
    windows: OpenLoopWindows
    """Valid for every parameter set."""
    predicted: tuple[MotionState, ...]
    """(D, H, S) at the ends by parameter set; any where not valid."""
    more: tuple[Mapping[str, np.ndarray], ...] = ()
    """Errors (H, S) by further channel that the states do not show, by parameter set."""


def roll_out_all(
    motions: Sequence[PreparedMotion], specs: Sequence[RobotSpec], horizons_s: Sequence[float]
) -> list[RollOut]:
    """Return the predictions of each parameter set from every pose of every robot.

    Args:
        motions: robots of one type.
        specs: that type with one or more sets of parameters; what they share are the windows.
        horizons_s: rising [s].
    """
    made = []
    for spec in specs:
        model = motion_model(spec)
        timelines = by_robot(partial(timeline_of, model), [motion.commands for motion in motions])
        like = made[0][2] if made else [None] * len(motions)
        made.append((model, timelines, by_robot(partial(_windows, horizons_s), timelines, motions, like)))
    valid = [
        np.logical_and.reduce([windows.valid for windows in of_robot])
        for of_robot in zip(*(windows for _, _, windows in made), strict=True)
    ]
    predicted = [
        roll_windows(model, timelines, [replace(own, valid=both) for own, both in zip(windows, valid, strict=True)])
        for model, timelines, windows in made
    ]
    return [
        RollOut(motion, replace(windows, valid=both), of_robot)
        for motion, windows, both, of_robot in zip(
            motions, made[0][2], valid, zip(*predicted, strict=True), strict=True
        )
    ]


def _windows(
    horizons_s: Sequence[float], timeline: CommandTimeline, motion: PreparedMotion, like: OpenLoopWindows | None
) -> OpenLoopWindows:
    """Return the windows of a robot, by other ones that differ only in what is known of the commands."""
    if like is None:
        return pick_windows(timeline, motion.track, horizons_s, _tolerance(motion, horizons_s))
    acting = timeline.acting(motion.track.stamp_s)
    first, last = acting[like.start], acting[like.end]
    return replace(like, valid=like.valid & timeline.all_known(first, last), segment=first, end_segment=last)


def by_robot(function: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
    """Return what a function makes of each robot, on all cores: NumPy lets go of the interpreter meanwhile."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(function, *columns))


def dead_reckoning(spec: RobotSpec) -> RobotSpec:
    """Return a robot that does at once what it is told: the prediction that any model has to beat."""
    plain = {"turn_slip_s_rad": 0.0} if hasattr(spec, "turn_slip_s_rad") else {}
    return replace(
        spec,
        velocity_lag_s=1e-6,
        command_delay_s=0.0,
        speed_scale=1.0,
        turn_scale=1.0,
        acceleration_limit_m_s2=_NO_LIMIT,
        turn_acceleration_limit_rad_s2=_NO_LIMIT,
        **plain,
    )


def _tolerance(motion: PreparedMotion, horizons_s: Sequence[float]) -> np.ndarray:
    """Return by how much an end may miss each horizon (H, 1) [s]: poses of real trackers do not come evenly."""
    half = 0.5 * float(np.median(np.diff(motion.track.stamp_s)))
    return np.maximum(half, np.minimum(_SHARE * np.asarray(horizons_s), _FARTHEST_S))[:, None]
