"""Batched rollout of many starts through the motion model.

Every start of every robot advances along its robot's commands, see `rollout_blocks`. One program, compiled for all
lags, delays and scales, runs on all cores, or on an accelerator. NumPy computes the same in double precision, on one.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from testudo_analysis.replay.rollout_blocks import CALL, QUICKEST_LAG_S, Pieces, StartBlock, step_by_step
from testudo_analysis.replay.rollout_inputs import CommandTimeline, RolloutStarts
from testudo_hardware.frames import wrap_angle
from testudo_hardware.motion import MotionModel, MotionState
from testudo_hardware.spec import RobotSpec

_NO_LIMIT = 1e9


def dead_reckoning(spec: RobotSpec) -> RobotSpec:
    """Return a robot that follows every command exactly and without delay: the baseline of all models."""
    return replace(
        spec,
        velocity_lag_s=QUICKEST_LAG_S,
        command_delay_s=0.0,
        speed_scale=1.0,
        turn_scale=1.0,
        turn_slip_s_rad=0.0,
        acceleration_limit_m_s2=_NO_LIMIT,
        turn_acceleration_limit_rad_s2=_NO_LIMIT,
    )


def rollout(
    model: MotionModel, commands: Sequence[CommandTimeline], starts: Sequence[RolloutStarts], *, exact: bool = False
) -> list[MotionState]:
    """Return for each robot the predicted states (D, H, S) at the ends.

    ``commands`` of each robot are effective and delayed. The result is in double precision and not compiled if
    ``exact``; otherwise it is to about 1e-6 of the way.
    """
    precision = np.float64 if exact else np.float32
    lag_s = max(float(model.spec.velocity_lag_s), QUICKEST_LAG_S)
    found = [_empty(own) for own in starts]
    pieces = [Pieces.create(timeline, own, lag_s, precision) for timeline, own in zip(commands, starts, strict=True)]
    advance = step_by_step if exact else _compiled()

    def roll(k: int, part: slice) -> None:
        block = StartBlock.create(pieces[k], starts[k], part, precision)
        made = advance(model, pieces[k].table, block, precision(lag_s))
        _store(found[k], starts[k].state, part, made)

    calls = [(k, begin) for k, own in enumerate(starts) for begin in range(0, len(own.start_s), CALL)]
    if exact:  # NumPy's short operations hold the interpreter: threads would only take it from each other
        for k, begin in calls:
            roll(k, slice(begin, begin + CALL))
        return found
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in [pool.submit(roll, k, slice(begin, begin + CALL)) for k, begin in calls]:
            done.result()
    return found


def _compiled() -> Callable[..., MotionState]:
    # JAX takes seconds to start; the exact rollout of a run, as in `testudo replay`, does without
    from testudo_analysis.replay.compiled_rollout import compiled  # noqa: PLC0415

    return compiled


def _empty(starts: RolloutStarts) -> MotionState:
    shape = starts.end_s.shape
    size = len(starts.state.velocity)
    return MotionState(np.empty((size, *shape)), np.empty(shape), np.empty((size, *shape)))


def _store(found: MotionState, state: MotionState, part: slice, made: MotionState) -> None:
    """Store the states of some starts, positions and headings added to those at the starts."""
    np.add(made.position_world, state.position_world[:, None, part], out=found.position_world[..., part])
    yaw = state.yaw[part]
    np.add(made.yaw, yaw - wrap_angle(yaw), out=found.yaw[..., part])
    found.velocity[..., part] = made.velocity
