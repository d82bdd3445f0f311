"""Open-loop replay of very many starts: the roll-out of `windows.roll_windows`, compiled, on all cores.

Starts go through the motion model block by block, so that a block stays in the cache and stops as soon as the last of
its starts is at its horizon. Only the step of the model is compiled: lag, delay and scales are arguments, so that many
candidates of the parameters share one program.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from testudo_hardware.frames import wrap_angle
from testudo_hardware.motion import LagResponse, MotionModel, MotionState, motion_model
from testudo_sim.replay.timeline import Timeline

_BLOCK = 64
"""Starts that go together."""
_CALL = 256 * _BLOCK
"""Starts of one call: one program fits runs of any length."""
_QUICKEST_LAG_S = 1e-6
_LONGEST_STEP_S = 0.05
"""A step of the model is exact for a constant turn rate only; a command that holds for long is taken in parts."""
_LOCK = Lock()
_PROGRAMS: dict[tuple[Any, ...], Callable[..., Any]] = {}


def roll_batch(model: MotionModel, timeline: Timeline, state: MotionState, start_s: np.ndarray, end_s: np.ndarray,
               segment: np.ndarray) -> MotionState:
    """Return the states (D, H, S) at the ends, from each start on its own.

    Computed in single precision from the start on, so to about 1e-6 of the way within the horizon.

    Args:
        model: the robot.
        timeline: its effective commands, delayed.
        state: at the starts, (D, S).
        start_s: (S,) [s].
        end_s: (H, S) [s], rising with H; what lies before the start counts as the start.
        segment: (S,) command of the timeline that acts at each start.
    """
    count, horizons = len(start_s), len(end_s)
    begins = np.maximum.accumulate(np.maximum(end_s, start_s), axis=0)
    ways = np.diff(begins, axis=0, prepend=start_s[None])
    next_s = np.append(timeline.begin_s[1:], np.inf)
    lengths = np.append(np.diff(timeline.begin_s), np.inf)
    size = 1 << int(np.ceil(np.log2(max(len(lengths), 2))))
    commands = _filled(timeline.effective, size)
    yaw = wrap_angle(state.yaw)
    columns = (state.velocity, yaw, segment.astype(np.int32), next_s[segment] - start_s, ways)
    shared = (np.float32(max(model.spec.velocity_lag_s, _QUICKEST_LAG_S)), commands.astype(np.float32),
              _filled(lengths, size).astype(np.float32))
    program = _program(model, horizons)
    found = np.zeros((2 * len(state.velocity) + 1, horizons, count))

    def part(begin: int) -> None:
        mine = slice(begin, min(begin + _CALL, count))
        given = [_filled(column[..., mine], _CALL) for column in columns]
        made = program(*[a if a.dtype == np.int32 else a.astype(np.float32) for a in given], *shared)
        found[..., mine] = np.asarray(made)[..., : mine.stop - mine.start]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(part, range(0, count, _CALL)))
    dimension = len(state.velocity)
    return MotionState(state.position_world[:, None] + found[:dimension], state.yaw - yaw + found[dimension],
                       found[dimension + 1 :])


def _filled(values: np.ndarray, size: int) -> np.ndarray:
    """Return values with the last axis as long as ``size``: zeros, which end at once."""
    return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, size - values.shape[-1])])


def _program(model: MotionModel, horizons: int) -> Callable[..., Any]:
    """Return the compiled roll-out of models with the same step but for lag, delay and scale, which are arguments."""
    spec = replace(model.spec, velocity_lag_s=_QUICKEST_LAG_S, command_delay_s=0.0, speed_scale=1.0, turn_scale=1.0)
    key = (horizons, spec.kind, *(value for value in vars(spec).values() if isinstance(value, float)
                                  and not math.isnan(value)))
    with _LOCK:
        if key not in _PROGRAMS:
            _PROGRAMS[key] = jax.jit(partial(_roll, motion_model(spec), horizons))
        return _PROGRAMS[key]


def _roll(model: MotionModel, horizons: int, *given: Any) -> Any:
    """Return (2 D + 1, H, S): position from the start on, yaw and velocity; see `_roll_block` for the arguments."""
    def split(column: Any) -> Any:
        return jnp.moveaxis(column.reshape(*column.shape[:-1], -1, _BLOCK), -2, 0)
    own, shared = given[:5], given[5:]
    made = lax.map(lambda part: _roll_block(model, horizons, *part, *shared), tuple(map(split, own)))
    made = jnp.moveaxis(made, 0, -2)
    return made.reshape(*made.shape[:-2], -1)


def _roll_block(model: MotionModel, horizons: int, velocity: Any, yaw: Any, segment: Any, rest: Any, ways: Any,
                *shared: Any) -> Any:
    """Roll one block out.

    Args:
        model: whose step is taken.
        horizons: H.
        velocity: (D, B) at the starts.
        yaw: (B,) at the starts [rad].
        segment: (B,) int, command that acts.
        rest: (B,) for how long still [s].
        ways: (H, B) time from horizon to horizon [s].
        shared: lag [s], effective commands (D, M), and for how long each acts (M,) [s].
    """
    lag, commands, lengths = shared

    def on(carry: Any) -> Any:
        position, yaw, velocity, segment, rest, left = carry
        duration = jnp.minimum(jnp.minimum(rest, left), _LONGEST_STEP_S)
        after = model.step(MotionState(position, yaw, velocity), commands[:, segment],
                           LagResponse.create(duration, lag))
        ended = rest <= duration
        segment = jnp.where(ended, jnp.minimum(segment + 1, len(lengths) - 1), segment)
        rest = jnp.where(ended, lengths[segment], rest - duration)
        return after.position_world, after.yaw, after.velocity, segment, rest, left - duration

    carry, found = (jnp.zeros_like(velocity), yaw, velocity, segment, rest), []
    for h in range(horizons):
        *carry, _ = lax.while_loop(lambda state: jnp.any(state[-1] > 0), on, (*carry, ways[h]))
        found.append(jnp.concatenate([carry[0], carry[1][None], carry[2]]))
    return jnp.stack(found, axis=1)
