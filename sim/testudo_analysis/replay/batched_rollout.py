"""Batched rollout of many starts through the motion model.

All starts of a robot have the same commands. These are cut once into pieces, each with its lag response. Every start
advances from border to border of the pieces and stores its state there; each horizon is one step from the last border
before it. One program, compiled for all lags, delays and scales, runs on all cores in blocks that fit the cache, or on
an accelerator. NumPy computes the same in double precision.
"""

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from testudo_analysis.replay.rollout_inputs import CommandTimeline, RolloutStarts
from testudo_hardware.arrays import Array, array_namespace
from testudo_hardware.frames import wrap_angle
from testudo_hardware.motion import LagResponse, MotionModel, MotionState, motion_model
from testudo_hardware.spec import RobotSpec
from testudo_sim import devices  # noqa: F401  (registers the pytrees)

LONGEST_STEP_S = 0.05
"""A model step is exact only for a constant turn rate; a long command is cut into parts."""
_QUICKEST_LAG_S = 1e-6
_NO_LIMIT = 1e9
_BLOCK = 128  # starts in one block on a processor
_CALL = 128 * _BLOCK  # starts of one call: one program fits runs of any length
_ROUND = 64  # the number of borders is padded to a multiple, so that one program fits many runs
_STATE = ("position_world", "yaw", "velocity")
_LOCK = Lock()
_PROGRAMS: dict[tuple[Any, ...], Callable[..., Any]] = {}


def dead_reckoning(spec: RobotSpec) -> RobotSpec:
    """Return a robot that follows every command exactly and without delay: the baseline of all models."""
    return replace(
        spec,
        velocity_lag_s=_QUICKEST_LAG_S,
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
    lag_s = max(float(model.spec.velocity_lag_s), _QUICKEST_LAG_S)
    found = [_empty(own) for own in starts]
    pieces = [_Pieces.create(timeline, own, lag_s, precision) for timeline, own in zip(commands, starts, strict=True)]

    def roll(k: int, part: slice) -> None:
        block = _Block.create(pieces[k], starts[k], part, precision)
        made = (_step_by_step if exact else _compiled)(model, pieces[k].table, block, precision(lag_s))
        _store(found[k], starts[k].state, part, made)

    calls = [(k, begin) for k, own in enumerate(starts) for begin in range(0, len(own.start_s), _CALL)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in [pool.submit(roll, k, slice(begin, begin + _CALL)) for k, begin in calls]:
            done.result()
    return found


@dataclass(frozen=True)
class _Pieces:
    """The commands of a robot in P pieces of at most `LONGEST_STEP_S`, from the first start to the last end."""

    first: np.ndarray  # (M,) int: the first piece of each command
    count: np.ndarray  # (M,) int: pieces of each command
    low_s: np.ndarray  # (M,) [s]: begin of the first piece
    length_s: np.ndarray  # (M,) [s]: length of each piece
    table: np.ndarray  # (D + 3, P): effective command, duration [s], gain and mean share of the response

    @classmethod
    def create(
        cls, timeline: CommandTimeline, starts: RolloutStarts, lag_s: float, precision: type[np.floating]
    ) -> "_Pieces":
        low = np.maximum(timeline.begin_s, starts.start_s.min(initial=np.inf))
        high = np.minimum(np.append(timeline.begin_s[1:], np.inf), starts.end_s.max(initial=-np.inf))
        # a command that does not act in this time has one piece of zero length
        span = np.maximum(high - low, 0.0)
        count = np.maximum(np.ceil(span / LONGEST_STEP_S - 1e-9), 1).astype(np.int64)
        length = span / count
        which = np.repeat(np.arange(len(count)), count)
        response = LagResponse.create(length[which], lag_s)
        table = np.concatenate(
            [timeline.effective[:, which], response.duration_s[None], response.gain[None], response.mean_share[None]]
        )
        return cls(np.cumsum(count) - count, count, low, length, table.astype(precision))

    def at(self, segment: np.ndarray, time_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the piece at times within commands (...), and the time since it began [s]."""
        length = self.length_s[segment]
        since = np.maximum(time_s - self.low_s[segment], 0.0)
        index = np.minimum((since / np.maximum(length, 1e-12)).astype(np.int64), self.count[segment] - 1)
        return self.first[segment] + index, since - index * length


@dataclass(frozen=True)
class _Block:
    """Some starts of one robot."""

    velocity: np.ndarray  # (D, B)
    yaw: np.ndarray  # (B,) [rad]
    piece: np.ndarray  # (B,) int: piece at the start
    rest_s: np.ndarray  # (B,) [s]: remaining time of that piece
    borders: np.ndarray  # (H, B) int: number of borders until each end
    left_s: np.ndarray  # (H, B) [s]: time from the last border, or from the start, to the end

    @classmethod
    def create(cls, pieces: _Pieces, starts: RolloutStarts, part: slice, precision: type[np.floating]) -> "_Block":
        segment, end_s = starts.segment[part], starts.end_s[:, part]
        piece, since = pieces.at(segment, starts.start_s[part])
        end, end_since = pieces.at(starts.end_segment[:, part], end_s)
        borders = np.maximum(end - piece, 0)
        left = np.where(borders > 0, end_since, end_s - starts.start_s[part])
        rest = np.maximum(pieces.length_s[segment] - since, 0.0)
        velocity, yaw = starts.state.velocity[:, part], wrap_angle(starts.state.yaw[part])
        velocity, yaw, rest, left = (values.astype(precision) for values in (velocity, yaw, rest, left))
        return cls(velocity, yaw, piece, rest, borders, left)


def _step_by_step(model: MotionModel, table: np.ndarray, block: _Block, lag_s: np.floating) -> MotionState:
    """Return the states (D, H, B) at the ends, positions relative to the start; border by border."""
    most = int(block.borders.max(initial=0))
    state = MotionState(np.zeros_like(block.velocity), block.yaw, block.velocity)
    states = [state]
    for k in range(most):
        effective, whole = _row(tuple(table), block.piece + k)
        state = model.step(state, effective, LagResponse.create(block.rest_s, lag_s) if k == 0 else whole)
        states.append(state)
    kept = MotionState(*(np.stack([getattr(one, name) for one in states]) for name in _STATE))
    return _to_ends(model, kept, _row(tuple(table), block.piece + block.borders), block, lag_s)


def _row(table: tuple[Array, ...], piece: Array) -> tuple[Array, LagResponse]:
    """Return effective commands (D, ...) and responses (...) of pieces (...); past the end those of the last piece."""
    xp = array_namespace(table[0])
    index = xp.minimum(piece, len(table[0]) - 1)
    # row by row: gathering from a matrix costs twice as much in XLA
    *effective, duration, gain, share = (values[index] for values in table)
    return xp.stack(effective), LagResponse(duration, gain, share)


def _to_ends(
    model: MotionModel, kept: MotionState, row: tuple[Array, LagResponse], block: _Block, lag_s: Any
) -> MotionState:
    """Return the states at the ends from the states (borders + 1, ...) at the borders."""
    index = array_namespace(kept.yaw).arange(block.borders.shape[1])[None]
    velocity = [kept.velocity[block.borders, d, index] for d in range(len(block.velocity))]
    position = [kept.position_world[block.borders, d, index] for d in range(len(block.velocity))]
    xp = array_namespace(kept.yaw)
    here = MotionState(xp.stack(position), kept.yaw[block.borders, index], xp.stack(velocity))
    return model.step(here, row[0], LagResponse.create(block.left_s, lag_s))


def _compiled(model: MotionModel, table: np.ndarray, block: _Block, lag_s: np.floating) -> MotionState:
    """Return the result of `_step_by_step`, by one program for all models that differ only in lag, delay and scales."""
    count, most = len(block.yaw), int(block.borders.max(initial=0))
    columns = {name: _filled(values, _CALL) for name, values in vars(block).items()}
    table = _filled(table, 1 << (table.shape[1] - 1).bit_length())
    made = _program(model, -(-most // _ROUND) * _ROUND)(_Block(**columns), tuple(table), lag_s)
    return MotionState(*(np.asarray(getattr(made, name))[..., :count] for name in _STATE))


def _program(model: MotionModel, room: int) -> Callable[..., Any]:
    spec = replace(model.spec, velocity_lag_s=_QUICKEST_LAG_S, command_delay_s=0.0, speed_scale=1.0, turn_scale=1.0)
    numbers = (value for value in vars(spec).values() if isinstance(value, float) and not math.isnan(value))
    key = (room, spec.kind, *numbers)
    with _LOCK:
        if key not in _PROGRAMS:
            _PROGRAMS[key] = jax.jit(partial(_mapped, motion_model(spec), room))
        return _PROGRAMS[key]


def _mapped(model: MotionModel, room: int, block: _Block, table: tuple[Array, ...], lag_s: Array) -> MotionState:
    """Compute `_step_by_step` for small blocks in sequence; on an accelerator for one large block."""
    size = _BLOCK if jax.default_backend() == "cpu" else _CALL
    small = jax.tree.map(lambda values: jnp.moveaxis(values.reshape(*values.shape[:-1], -1, size), -2, 0), block)
    made = jax.lax.map(lambda own: _looped(model, room, own, table, lag_s), small)
    return jax.tree.map(lambda values: jnp.moveaxis(values, 0, -2).reshape(*values.shape[1:-1], -1), made)


def _looped(model: MotionModel, room: int, block: _Block, table: tuple[Array, ...], lag_s: Array) -> MotionState:
    """Compute `_step_by_step` for at most ``room`` borders."""
    state = MotionState(jnp.zeros_like(block.velocity), block.yaw, block.velocity)
    kept = jax.tree.map(lambda values: jnp.zeros((room + 1, *values.shape), values.dtype).at[0].set(values), state)

    def advance(
        k: Array, carry: tuple[MotionState, MotionState], response: LagResponse | None = None
    ) -> tuple[MotionState, MotionState]:
        effective, whole = _row(table, block.piece + k)
        after = model.step(carry[0], effective, response or whole)
        return after, jax.tree.map(lambda all_, one: all_.at[k + 1].set(one), carry[1], after)

    first = advance(jnp.int32(0), (state, kept), LagResponse.create(block.rest_s, lag_s))
    _, kept = jax.lax.fori_loop(1, jnp.max(block.borders), advance, first)
    return _to_ends(model, kept, _row(table, block.piece + block.borders), block, lag_s)


jax.tree_util.register_dataclass(
    _Block, data_fields=["velocity", "yaw", "piece", "rest_s", "borders", "left_s"], meta_fields=[]
)


def _filled(values: np.ndarray, size: int) -> np.ndarray:
    """Return values with the last axis padded to ``size`` with zeros, which have no duration."""
    values = values.astype(np.int32) if values.dtype.kind == "i" else values
    return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, size - values.shape[-1])])


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
