"""Rollouts of candidate parameters over all stretches through the motion model, with derivatives of the errors."""

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from testudo_analysis.identify.estimation.rollout_windows import SegmentSet, SegmentSettings
from testudo_hardware.motion import LagResponse, MotionModel, MotionState, motion_model
from testudo_hardware.motion.motion_model import effective_command
from testudo_hardware.schema import DIFFERENTIAL_DRIVE, QUANTITIES
from testudo_hardware.spec import RobotSpec
from testudo_sim import devices  # noqa: F401  (registers the pytrees)

DELAY, SLIP = "dynamics.command_delay", "dynamics.turn_slip"
_TOGETHER = 16  # stretches of one rollout
_MOST_THREADS = 4
_NO_CHANGE = 1e-12  # squared change of command that counts as zero


@dataclass(frozen=True)
class Curvature:
    """Robust loss of each stretch with its first and (Gauss-Newton) second derivative."""

    loss: np.ndarray  # (C,)
    gradient: np.ndarray  # (C, P)
    hessian: np.ndarray  # (C, P, P)


class BatchedRollout:
    """The errors of one robot type on given stretches as functions of its parameters.

    Parameters are those of the robot file, except the turn slip, which is squared: at zero its own derivative is zero.
    """

    def __init__(self, spec: RobotSpec, keys: tuple[str, ...], stretches: SegmentSet, cutting: SegmentSettings) -> None:
        """Compile the functions.

        ``spec`` has the values of all parameters but the P ``keys`` of the robot file; there are C ``stretches``.
        """
        self.spec, self.keys, self.stretches, self.cutting = spec, keys, stretches, cutting
        # parts of equal size fit the cache, and all runs share one compiled program
        self._order = np.minimum(np.arange(-(-len(stretches) // _TOGETHER) * _TOGETHER), len(stretches) - 1)
        self._data = [_Data.create(stretches.take(part)) for part in self._order.reshape(-1, _TOGETHER)]
        self._errors = jax.jit(jax.vmap(partial(_errors, spec, keys, cutting)))
        self._moving = jax.jit(jax.vmap(partial(_moving, spec, keys, cutting)))
        self._curvature = jax.jit(jax.vmap(partial(_curvature, spec, keys, cutting), in_axes=(0, 0, None)))

    def errors(self, parameters: np.ndarray) -> np.ndarray:
        """Return predicted less recorded (C, E, S): position [m] in the start's axes, yaw [rad]; parameters (C, P)."""
        return self._in_parts(self._errors, parameters)[0]

    def velocities(self, parameters: np.ndarray) -> np.ndarray:
        """Return the velocities (C, D, T) of the model at the beginning of each step; parameters (C, P)."""
        return self._in_parts(self._moving, parameters)[0]

    def curvature(self, parameters: np.ndarray, scale: np.ndarray) -> Curvature:
        """Return loss and derivatives at parameters (C, P), for errors divided by a scale (H, E)."""
        return Curvature(*self._in_parts(self._curvature, parameters, jnp.asarray(scale, jnp.float32)))

    def nominal(self) -> np.ndarray:
        """Return the parameters (P,) of the robot file."""
        return to_inner(self.keys, np.array([getattr(self.spec, QUANTITIES[key].attribute) for key in self.keys]))

    def _in_parts(self, function: Callable[..., Any], parameters: np.ndarray, *rest: jax.Array) -> list[np.ndarray]:
        """Return the results of a function for the stretches (C, ...), in parts on several cores."""
        values = np.asarray(parameters, np.float32)[self._order]
        values = values.reshape(len(self._data), _TOGETHER, values.shape[1])

        def one(part: int) -> list[np.ndarray]:
            found = function(jnp.asarray(values[part]), self._data[part], *rest)
            return [np.asarray(value, float) for value in jax.tree.leaves(found)]

        first = one(0)  # compiles
        with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as pool:
            found = [first, *pool.map(one, range(1, len(self._data)))]
        return [np.concatenate(column)[: len(self.stretches)] for column in zip(*found, strict=True)]


def to_inner(keys: tuple[str, ...], values: np.ndarray) -> np.ndarray:
    """Return parameters (..., P) as fitted, from those of the robot file."""
    squared = np.array([key == SLIP for key in keys])
    return np.where(squared, values**2, values)


def to_file(keys: tuple[str, ...], values: np.ndarray) -> np.ndarray:
    """Return parameters (..., P) of the robot file, from fitted ones."""
    squared = np.array([key == SLIP for key in keys])
    return np.where(squared, np.sqrt(np.maximum(values, 0)), values)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _Data:
    """`SegmentSet` as arrays of the accelerator."""

    asked: jax.Array
    phase: jax.Array
    start: jax.Array
    end: jax.Array
    moved: jax.Array
    turned: jax.Array
    horizon: jax.Array
    valid: jax.Array
    fitted: jax.Array

    @classmethod
    def create(cls, stretches: SegmentSet) -> "_Data":
        values = {each.name: np.asarray(getattr(stretches, each.name)) for each in fields(cls)}
        return cls(
            **{
                name: jnp.asarray(value, jnp.float32 if value.dtype.kind == "f" else None)
                for name, value in values.items()
            }
        )


def _parametrised(spec: RobotSpec, keys: tuple[str, ...], values: jax.Array) -> RobotSpec:
    # square root with a finite derivative at zero
    changes: Mapping[str, Any] = {
        QUANTITIES[key].attribute: jnp.sqrt(values[k] + 1e-8) if key == SLIP else values[k]
        for k, key in enumerate(keys)
    }
    return replace(spec, **changes)


def _response(spec: RobotSpec, cutting: SegmentSettings) -> LagResponse:
    return LagResponse.create(jnp.float32(cutting.step_s), jnp.float32(1.0) * spec.velocity_lag_s)


def _velocities(
    model: MotionModel, response: LagResponse, cutting: SegmentSettings, asked: jax.Array, phase: jax.Array
) -> jax.Array:
    """Return the velocities (D, T) of one stretch at the beginning of each step."""
    before, after, share = _driving(model, cutting, asked, phase)
    nowhere = MotionState(jnp.zeros((len(asked),), jnp.float32), jnp.float32(0.0), before[:, 0])

    def advance(velocity: jax.Array, driven: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        first, last, part = driven
        ends = [model.step(replace(nowhere, velocity=velocity), end, response).velocity for end in (first, last)]
        return ends[0] + part * (ends[1] - ends[0]), velocity

    return jax.lax.scan(advance, before[:, 0], (before.T, after.T, share))[1].T


def _driving(
    model: MotionModel, cutting: SegmentSettings, asked: jax.Array, phase: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the effective commands (D, T) at the begin and end of each step, and the share (T,) of the latter.

    With an active acceleration limit the mean of two commands is wrong: the velocity would change during a whole step
    although the second command acts only at its end, half a step too early on average.
    """
    spec, finer, steps = model.spec, cutting.finer, cutting.steps
    late = cutting.reach * finer + phase - spec.command_delay_s * (finer / cutting.step_s)
    whole = jnp.clip(jnp.floor(late), 1, asked.shape[1] - steps * finer - 2).astype(jnp.int32)
    near = jax.lax.dynamic_slice_in_dim(asked, whole - 1, steps * finer + 3, axis=1)
    command = near[:, :-1] + (late - whole) * (near[:, 1:] - near[:, :-1])
    effective = effective_command(model, command)
    mean = jnp.mean(jnp.reshape(effective[:, 1:-1], (len(asked), steps, finer)), axis=2)
    before, after = effective[:, :-2:finer], effective[:, finer + 1 :: finer]
    change = after - before
    share = jnp.clip(jnp.sum((mean - before) * change, axis=0) / (jnp.sum(change**2, axis=0) + _NO_CHANGE), 0.0, 1.0)
    rest = mean - before - share * change  # several changes in one step: their mean
    return before + rest, after + rest, share


def _travelled(model: MotionModel, velocity: jax.Array, response: LagResponse) -> tuple[jax.Array, jax.Array]:
    """Return positions (D, T) and headings (T,) of velocities (D, T) at the beginning of each step, from the origin."""
    change = velocity[:, 1:] - velocity[:, :-1]
    zero = jnp.zeros_like(change)
    # the unlimited command that causes this change of velocity
    reached = velocity[:, :-1] + change / response.gain
    moved = model.step(MotionState(zero, zero[0], velocity[:, :-1]), reached, response)
    way, turned = moved.position_world, moved.yaw
    yaw = jnp.cumsum(turned)
    if model.spec.kind == DIFFERENTIAL_DRIVE:
        cos, sin = jnp.cos(yaw - turned), jnp.sin(yaw - turned)
        way = jnp.stack([cos * way[0] - sin * way[1], sin * way[0] + cos * way[1]])
    start = jnp.zeros((len(velocity), 1), jnp.float32)
    return jnp.concatenate([start, jnp.cumsum(way, axis=1)], axis=1), jnp.concatenate([start[0], yaw])


def _moving(
    spec: RobotSpec, keys: tuple[str, ...], cutting: SegmentSettings, values: jax.Array, data: _Data
) -> jax.Array:
    """Return the velocities (D, T) of one stretch."""
    found = _parametrised(spec, keys, values)
    return _velocities(motion_model(found), _response(found, cutting), cutting, data.asked, data.phase)


def _errors(
    spec: RobotSpec, keys: tuple[str, ...], cutting: SegmentSettings, values: jax.Array, data: _Data
) -> jax.Array:
    """Return predicted less recorded (E, S) of one stretch."""
    found = _parametrised(spec, keys, values)
    # positions (D, T) [m] and headings (T,) of one stretch, from the origin
    response = _response(found, cutting)
    model = motion_model(found)
    position, yaw = _travelled(model, _velocities(model, response, cutting, data.asked, data.phase), response)
    whole = jnp.concatenate([position, yaw[None]])
    begin, end = (_at(whole, moment) for moment in (data.start, data.end))
    way, turn = (end - begin)[:-1], (end - begin)[-1]
    if spec.kind == DIFFERENTIAL_DRIVE:
        cos, sin = jnp.cos(begin[-1]), jnp.sin(begin[-1])
        way = jnp.stack([way[0] * cos + way[1] * sin, way[1] * cos - way[0] * sin])
    return jnp.concatenate([way - data.moved, (turn - data.turned)[None]]) * data.valid


def _at(path: jax.Array, moment: jax.Array) -> jax.Array:
    below = jnp.clip(jnp.floor(moment), 0, path.shape[1] - 2).astype(jnp.int32)
    return path[:, below] + (moment - below) * (path[:, below + 1] - path[:, below])


def _curvature(
    spec: RobotSpec, keys: tuple[str, ...], cutting: SegmentSettings, values: jax.Array, data: _Data, scale: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return soft-l1 loss, gradient and Gauss-Newton Hessian of one stretch; rho = 2 (sqrt(1 + z) - 1)."""

    def whitened(at: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = _errors(spec, keys, cutting, at, data) / scale[data.horizon].T
        return found, found

    slope, errors = jax.jacfwd(whitened, has_aux=True)(values)
    z = jnp.sum(errors**2, axis=0)
    weight = data.fitted / jnp.sqrt(1 + z)
    loss = jnp.sum(data.fitted * 2 * (jnp.sqrt(1 + z) - 1))
    gradient = jnp.einsum("es,s,esp->p", errors, weight, slope)
    # of the loss, not of weighted squares, which are too steep as the weights fall along the error
    along = jnp.einsum("es,esp->sp", errors, slope)
    bent = jnp.einsum("sp,s,sq->pq", along, weight / (1 + z), along)
    return loss, gradient, jnp.einsum("esp,s,esq->pq", slope, weight, slope) - bent
