"""The replayed course of a robot for the eye: the model set on the real pose every two seconds, and let go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from testudo_hardware.motion import LagResponse, MotionState, motion_model
from testudo_hardware.spec import RobotSpec
from testudo_sim.gap.motion import Motion, seen, timeline_of
from testudo_sim.replay.timeline import Timeline

EVERY_S, STEP_S = 2.0, 0.1


@dataclass(frozen=True)
class Course:
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


def courses(motions: Sequence[Motion], spec: RobotSpec) -> list[Course]:
    """Return the real and the replayed course of each robot of one type, on the same times."""
    begin = min(motion.track.stamp_s[0] for motion in motions)
    end = max(motion.track.stamp_s[-1] for motion in motions)
    times = np.arange(begin, end, STEP_S)
    return [_course(motion, spec, times) for motion in motions]


def _course(motion: Motion, spec: RobotSpec, times: np.ndarray) -> Course:
    track, model = motion.track, motion_model(spec)
    timeline = timeline_of(model, motion.commands)
    real, velocity = seen(track, times, 2 * STEP_S)
    steps = round(EVERY_S / STEP_S)
    starts = np.arange(0, len(times), steps)
    good = np.isfinite(real[starts]).all(axis=1)
    now, moving = np.nan_to_num(real[starts]).T, np.nan_to_num(velocity[starts]).T
    state = MotionState(now[: spec.dimension], now[spec.dimension], moving)
    replayed = np.full_like(real, np.nan)
    for k in range(steps):
        index = starts + k
        inside = index < len(times)
        rows = np.concatenate([state.position_world, state.yaw[None]]).T
        replayed[index[inside & good]] = rows[inside & good]
        state, known = _advance(model, timeline, state, times[starts] + k * STEP_S)
        good = good & known
    restart = np.zeros(len(times), bool)
    restart[starts] = True
    return Course(motion.robot, times, real, replayed, restart)


def _advance(model, timeline: Timeline, state: MotionState, now_s: np.ndarray  # noqa: ANN001
             ) -> tuple[MotionState, np.ndarray]:
    """Return the states `STEP_S` later, and whether all commands until then are known."""
    until, next_s = now_s + STEP_S, np.append(timeline.begin_s[1:], np.inf)
    segment = np.searchsorted(timeline.begin_s, now_s, side="right") - 1
    known = timeline.known[segment]
    lag = np.array(model.spec.velocity_lag_s)
    while np.any(now_s < until):
        end = np.minimum(np.maximum(next_s[segment], now_s), until)
        state = model.step(state, timeline.effective[:, segment], LagResponse.create(end - now_s, lag))
        moving = end < until
        segment = np.where(moving, np.minimum(segment + 1, len(next_s) - 1), segment)
        known = known & timeline.known[segment]
        now_s = end
    return state, known
