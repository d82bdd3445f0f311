"""The rollout of `rollout_blocks` as one program of JAX, in single precision, on all cores or on an accelerator.

It fits all models that differ only in lag, delay and scales.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from testudo_analysis.replay.rollout_blocks import CALL, QUICKEST_LAG_S, STATE, StartBlock, row, to_ends
from testudo_hardware.arrays import Array
from testudo_hardware.motion import LagResponse, MotionModel, MotionState, motion_model
from testudo_sim import devices  # noqa: F401  (registers the pytrees)

_BLOCK = 128  # starts in one block on a processor, which fits the cache
_ROUND = 64  # the number of borders is padded to a multiple, so that one program fits many runs
_LOCK = Lock()
_PROGRAMS: dict[tuple[Any, ...], Callable[..., Any]] = {}


def compiled(model: MotionModel, table: np.ndarray, block: StartBlock, lag_s: np.floating) -> MotionState:
    """Return the result of `step_by_step`, by one program for all models that differ only in lag, delay and scales."""
    count, most = len(block.yaw), int(block.borders.max(initial=0))
    columns = {name: _filled(values, CALL) for name, values in vars(block).items()}
    table = _filled(table, 1 << (table.shape[1] - 1).bit_length())
    made = _program(model, -(-most // _ROUND) * _ROUND)(StartBlock(**columns), tuple(table), lag_s)
    return MotionState(*(np.asarray(getattr(made, name))[..., :count] for name in STATE))


def _program(model: MotionModel, room: int) -> Callable[..., Any]:
    spec = replace(model.spec, velocity_lag_s=QUICKEST_LAG_S, command_delay_s=0.0, speed_scale=1.0, turn_scale=1.0)
    numbers = (value for value in vars(spec).values() if isinstance(value, float) and not math.isnan(value))
    key = (room, spec.kind, *numbers)
    with _LOCK:
        if key not in _PROGRAMS:
            _PROGRAMS[key] = jax.jit(partial(_mapped, motion_model(spec), room))
        return _PROGRAMS[key]


def _mapped(model: MotionModel, room: int, block: StartBlock, table: tuple[Array, ...], lag_s: Array) -> MotionState:
    """Compute `step_by_step` for small blocks in sequence; on an accelerator for one large block."""
    size = _BLOCK if jax.default_backend() == "cpu" else CALL
    small = jax.tree.map(lambda values: jnp.moveaxis(values.reshape(*values.shape[:-1], -1, size), -2, 0), block)
    made = jax.lax.map(lambda own: _looped(model, room, own, table, lag_s), small)
    return jax.tree.map(lambda values: jnp.moveaxis(values, 0, -2).reshape(*values.shape[1:-1], -1), made)


def _looped(model: MotionModel, room: int, block: StartBlock, table: tuple[Array, ...], lag_s: Array) -> MotionState:
    """Compute `step_by_step` for at most ``room`` borders."""
    state = MotionState(jnp.zeros_like(block.velocity), block.yaw, block.velocity)
    kept = jax.tree.map(lambda values: jnp.zeros((room + 1, *values.shape), values.dtype).at[0].set(values), state)

    def advance(
        k: Array, carry: tuple[MotionState, MotionState], response: LagResponse | None = None
    ) -> tuple[MotionState, MotionState]:
        effective, whole = row(table, block.piece + k)
        after = model.step(carry[0], effective, response or whole)
        return after, jax.tree.map(lambda all_, one: all_.at[k + 1].set(one), carry[1], after)

    first = advance(jnp.int32(0), (state, kept), LagResponse.create(block.rest_s, lag_s))
    _, kept = jax.lax.fori_loop(1, jnp.max(block.borders), advance, first)
    return to_ends(model, kept, row(table, block.piece + block.borders), block, lag_s)


jax.tree_util.register_dataclass(
    StartBlock, data_fields=["velocity", "yaw", "piece", "rest_s", "borders", "left_s"], meta_fields=[]
)


def _filled(values: np.ndarray, size: int) -> np.ndarray:
    """Return values with the last axis padded to ``size`` with zeros, which have no duration."""
    values = values.astype(np.int32) if values.dtype.kind == "i" else values
    return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, size - values.shape[-1])])
