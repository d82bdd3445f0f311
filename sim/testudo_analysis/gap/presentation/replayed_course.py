"""Courses of real robots and of replayed ones, which restart on the real pose every two seconds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from testudo_analysis.replay.batched_rollout import rollout
from testudo_analysis.replay.rollout_inputs import RolloutStarts, timeline_of
from testudo_hardware.motion.motion_model import motion_model
from testudo_hardware.motion.motion_state import MotionState
from testudo_hardware.spec import RobotSpec
from testudo_runs.alignment import AlignedRobot

EVERY_S, STEP_S = 2.0, 0.1


@dataclass(frozen=True)
class ReplayedCourse:
    """Recorded and replayed poses of one robot at common times."""

    robot: str
    time_s: np.ndarray  # (T,) [s], `STEP_S` apart
    real: np.ndarray  # (T, D + 1): position and yaw; NaN if not recorded
    replayed: np.ndarray  # (T, D + 1): NaN if not predicted
    restart: np.ndarray  # (T,) bool: the model restarts on the real pose


def courses(robots: Sequence[AlignedRobot], spec: RobotSpec) -> list[ReplayedCourse]:
    """Return the real and the replayed course of each robot of one type, at the same times."""
    begin = min(robot.trajectory.stamp_s[0] for robot in robots)
    end = max(robot.trajectory.stamp_s[-1] for robot in robots)
    times = np.arange(begin, end, STEP_S)
    return [_course(robot, spec, times) for robot in robots]


def _course(robot: AlignedRobot, spec: RobotSpec, times: np.ndarray) -> ReplayedCourse:
    track, model = robot.trajectory, motion_model(spec)
    timeline = timeline_of(model, robot.pieces)
    position, yaw, velocity = track.at(times)
    real = np.where(track.observed(times, 2 * STEP_S)[:, None], np.column_stack([position, yaw]), np.nan)
    steps = round(EVERY_S / STEP_S)
    starts = np.arange(0, len(times), steps)
    now, moving = np.nan_to_num(real[starts]).T, velocity[starts].T
    state = MotionState(now[: spec.dimension], now[spec.dimension], moving)
    index = starts + np.arange(steps)[:, None]
    ends = times[starts] + STEP_S * np.arange(steps)[:, None]
    first, last = timeline.acting(times[starts]), timeline.acting(ends)
    (found,) = rollout(model, [timeline], [RolloutStarts(state, times[starts], ends, first, last)], exact=True)
    good = (
        (index < len(times))
        & np.isfinite(real[starts]).all(axis=1)
        & (timeline.all_known(first, last) | (ends == times[starts]))
    )
    replayed = np.full_like(real, np.nan)
    replayed[index[good]] = np.concatenate([found.position_world, found.yaw[None]])[:, good].T
    restart = np.zeros(len(times), bool)
    restart[starts] = True
    return ReplayedCourse(robot.name, times, real, replayed, restart)
