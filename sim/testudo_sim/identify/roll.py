"""Rolls candidates over all stretches at once through the motion model, and differentiates their errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from testudo_hardware.motion import LagResponse, MotionState, motion_model
from testudo_hardware.motion.model import effective_command
from testudo_hardware.schema import DIFFERENTIAL_DRIVE, QUANTITIES
from testudo_hardware.spec import RobotSpec
from testudo_sim import pytrees  # noqa: F401  (registers the types)
from testudo_sim.identify.windows import Cutting, Stretches

DELAY, SLIP = "dynamics.command_delay", "dynamics.turn_slip"
INSTANT_S = 1e-4
"""Lag of a robot that follows its commands at once."""
NO_LIMIT = 1e6
_NEVER_ZERO_M_S = 1e-5
"""Far below any error of a pose."""


@dataclass(frozen=True)
class Curvature:
    """Robust loss of each stretch with its first and (Gauss-Newton) second derivative."""

    loss: np.ndarray
    """(C,)."""
    gradient: np.ndarray
    """(C, P)."""
    hessian: np.ndarray
    """(C, P, P)."""


class Roller:
    """The errors of one robot type on given stretches, as functions of its parameters.

    Parameters are those of the robot file, but for the turn slip, which is squared: at none its own derivative is zero.
    """

    def __init__(self, spec: RobotSpec, keys: tuple[str, ...], stretches: Stretches, cutting: Cutting) -> None:
        """Prepare the functions.

        Args:
            spec: what is not among the keys is as it says.
            keys: parameters of the robot file, P of them.
            stretches: C of them.
            cutting: how the run was cut.
        """
        self.spec, self.keys, self.stretches, self.cutting = spec, keys, stretches, cutting
        self._data = _Data(*(jnp.asarray(value, jnp.float32) for value in (
            stretches.asked, stretches.phase, stretches.start, stretches.end, stretches.moved, stretches.turned)),
            jnp.asarray(stretches.horizon), *(jnp.asarray(value) for value in (stretches.valid, stretches.fitted)))
        self._errors = jax.jit(jax.vmap(partial(_errors, spec, keys, cutting)))
        self._curvature = jax.jit(jax.vmap(partial(_curvature, spec, keys, cutting), in_axes=(0, 0, None)))

    def errors(self, parameters: np.ndarray) -> np.ndarray:
        """Return predicted minus seen (C, E, S): position [m] in the start's axes, then yaw [rad]; (C, P) each."""
        return np.asarray(self._errors(jnp.asarray(parameters, jnp.float32), self._data), float)

    def curvature(self, parameters: np.ndarray, scale: np.ndarray) -> Curvature:
        """Return loss and derivatives at parameters (C, P), for errors over a scale (H, E)."""
        found = self._curvature(jnp.asarray(parameters, jnp.float32), self._data, jnp.asarray(scale, jnp.float32))
        return Curvature(*(np.asarray(value, float) for value in found))

    def nominal(self) -> np.ndarray:
        """Return the parameters (P,) of the robot file itself."""
        return to_inner(self.keys, np.array([getattr(self.spec, QUANTITIES[key].attribute) for key in self.keys]))


def to_inner(keys: tuple[str, ...], values: np.ndarray) -> np.ndarray:
    """Return parameters (..., P) as they are fitted, from those of the robot file."""
    squared = np.array([key == SLIP for key in keys])
    return np.where(squared, values**2, values)


def to_file(keys: tuple[str, ...], values: np.ndarray) -> np.ndarray:
    """Return parameters (..., P) of the robot file, from those that are fitted."""
    squared = np.array([key == SLIP for key in keys])
    return np.where(squared, np.sqrt(np.maximum(values, 0)), values)


def dead_reckoning(spec: RobotSpec) -> RobotSpec:
    """Return the robot that follows every command at once and exactly."""
    changes: dict[str, float] = {"velocity_lag_s": INSTANT_S, "command_delay_s": 0.0, "speed_scale": 1.0,
                                 "acceleration_limit_m_s2": NO_LIMIT}
    if spec.kind == DIFFERENTIAL_DRIVE:
        changes |= {"turn_scale": 1.0, "turn_slip_s_rad": 0.0, "turn_acceleration_limit_rad_s2": NO_LIMIT}
    return replace(spec, **changes)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _Data:
    """`Stretches` as arrays of the accelerator."""

    asked: jax.Array
    phase: jax.Array
    start: jax.Array
    end: jax.Array
    moved: jax.Array
    turned: jax.Array
    horizon: jax.Array
    valid: jax.Array
    fitted: jax.Array


def _parametrised(spec: RobotSpec, keys: tuple[str, ...], values: jax.Array) -> RobotSpec:
    changes: Mapping[str, Any] = {
        QUANTITIES[key].attribute: _root(values[k]) if key == SLIP else values[k] for k, key in enumerate(keys)}
    return replace(spec, **changes)


def _root(value: jax.Array) -> jax.Array:
    """Return the square root with a derivative at zero that the square which follows makes one again."""
    return jnp.sqrt(value + 1e-8)


def _path(spec: RobotSpec, cutting: Cutting, asked: jax.Array, phase: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return positions (D, T) [m] and headings (T,) of one stretch, from the origin."""
    model, step = motion_model(spec), cutting.step_s
    # a step's command is the mean of what was asked during it, so that the delay acts smoothly; of parts of it, as what
    # is lost in turns is not linear
    parts = jnp.arange(cutting.steps * cutting.finer + 1) / cutting.finer
    nodes = (parts + cutting.reach + phase - spec.command_delay_s / step) * cutting.finer
    below = jnp.clip(jnp.floor(nodes), 0, asked.shape[1] - 2).astype(jnp.int32)
    integral = asked[:, below] + (nodes - below) * (asked[:, below + 1] - asked[:, below])
    command = (integral[:, 1:] - integral[:, :-1]) * (cutting.finer / step)
    if spec.kind != DIFFERENTIAL_DRIVE:  # the length of a vector has no derivative at zero
        command = command + _NEVER_ZERO_M_S
    effective = effective_command(model, command)
    effective = jnp.mean(jnp.reshape(effective, (asked.shape[0], cutting.steps, cutting.finer)), axis=2)
    response = LagResponse.create(jnp.float32(step), jnp.float32(1.0) * spec.velocity_lag_s)
    size = asked.shape[0]
    if spec.kind != DIFFERENTIAL_DRIVE:
        effective = effective + _NEVER_ZERO_M_S * (-1.0) ** jnp.arange(cutting.steps)
    zero = jnp.zeros((size,), jnp.float32)
    first = MotionState(zero, jnp.float32(0.0), effective[:, 0])

    def advance(state: MotionState, command: jax.Array) -> tuple[MotionState, tuple[jax.Array, jax.Array]]:
        after = model.step(state, command, response)
        return after, (after.position_world, after.yaw)

    _, (position, yaw) = jax.lax.scan(advance, first, effective.T)
    return jnp.concatenate([zero[:, None], position.T], axis=1), jnp.concatenate([jnp.zeros(1), yaw])


def _errors(spec: RobotSpec, keys: tuple[str, ...], cutting: Cutting, values: jax.Array, data: _Data) -> jax.Array:
    """Return predicted minus seen (E, S) of one stretch."""
    found = _parametrised(spec, keys, values)
    position, yaw = _path(found, cutting, data.asked, data.phase)
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


def _curvature(spec: RobotSpec, keys: tuple[str, ...], cutting: Cutting, values: jax.Array, data: _Data,
               scale: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return soft-l1 loss, gradient and Gauss-Newton Hessian of one stretch; rho = 2 (sqrt(1 + z) - 1)."""
    def whitened(at: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = _errors(spec, keys, cutting, at, data) / scale[data.horizon].T
        return found, found

    slope, errors = _forward(whitened, values)
    z = jnp.sum(errors**2, axis=0)
    weight = data.fitted / jnp.sqrt(1 + z)
    loss = jnp.sum(data.fitted * 2 * (jnp.sqrt(1 + z) - 1))
    gradient = jnp.einsum("es,s,esp->p", errors, weight, slope)
    # of the loss itself, not of weighted squares, which would be too steep by what the weights lose along the error
    along = jnp.einsum("es,esp->sp", errors, slope)
    bent = jnp.einsum("sp,s,sq->pq", along, weight / (1 + z), along)
    return loss, gradient, jnp.einsum("esp,s,esq->pq", slope, weight, slope) - bent


def _forward(function: Callable[[jax.Array], tuple[jax.Array, jax.Array]], at: jax.Array
             ) -> tuple[jax.Array, jax.Array]:
    return jax.jacfwd(function, has_aux=True)(at)
