"""The replayed course of a robot for the eye: the model set on the real pose every two seconds, and let go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from testudo_analysis.gap.prediction.prepared_motion import PreparedMotion, measured_poses, timeline_of
from testudo_analysis.replay.batched_rollout import RolloutStarts, roll_out
from testudo_hardware.motion import MotionState, motion_model
from testudo_hardware.spec import RobotSpec

EVERY_S, STEP_S = 2.0, 0.1


@dataclass(frozen=True)
class ReplayedCourse:
    """What a robot really did and what a model says, on common times."""

    robot: str
    time_s: np.ndarray
    """(T,) even, `STEP_S` apart."""
    real: np.ndarray
    """(T, D + 1): position and yaw; NaN where it was not seen."""
    replayed: np.ndarray
    """(T, D + 1): NaN where nothing could be predicted."""
    restart: np.ndarray
    """(T,) bool: here the model is set on the real pose."""


def courses(motions: Sequence[PreparedMotion], spec: RobotSpec) -> list[ReplayedCourse]:
    """Return the real and the replayed course of each robot of one type, on the same times."""
    begin = min(motion.track.stamp_s[0] for motion in motions)
    end = max(motion.track.stamp_s[-1] for motion in motions)
    times = np.arange(begin, end, STEP_S)
    return [_course(motion, spec, times) for motion in motions]


def _course(motion: PreparedMotion, spec: RobotSpec, times: np.ndarray) -> ReplayedCourse:
    track, model = motion.track, motion_model(spec)
    timeline = timeline_of(model, motion.commands)
    real, velocity = measured_poses(track, times, 2 * STEP_S)
    steps = round(EVERY_S / STEP_S)
    starts = np.arange(0, len(times), steps)
    now, moving = np.nan_to_num(real[starts]).T, np.nan_to_num(velocity[starts]).T
    state = MotionState(now[: spec.dimension], now[spec.dimension], moving)
    index = starts + np.arange(steps)[:, None]
    ends = times[starts] + STEP_S * np.arange(steps)[:, None]
    first, last = timeline.acting(times[starts]), timeline.acting(ends)
    (found,) = roll_out(model, [timeline], [RolloutStarts(state, times[starts], ends, first, last)], exact=True)
    good = (
        (index < len(times))
        & np.isfinite(real[starts]).all(axis=1)
        & (timeline.all_known(first, last) | (ends == times[starts]))
    )
    replayed = np.full_like(real, np.nan)
    replayed[index[good]] = np.concatenate([found.position_world, found.yaw[None]])[:, good].T
    restart = np.zeros(len(times), bool)
    restart[starts] = True
    return ReplayedCourse(motion.robot, times, real, replayed, restart)
