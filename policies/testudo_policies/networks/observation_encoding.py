"""Encodes raw signals as network inputs; part of the exported graph, so robots need no encoder.

Features are in the goal's horizontal frame (x towards the goal), centred on the robot's control point, so that a
policy does not depend on its place in the world; the world position is kept for the walls.

The encoding of a task signal follows from its name; signals are in alphabetical order:

===================== ==============================================================================
``*_position_world``  offset in the goal's frame, and distance
``*_quarter_yaw``     cosine and sine of four times the angle to the goal's frame, for a body with
                      fourfold symmetry
``*_yaw``             cosine and sine of the angle to the goal's frame
other                 unchanged
===================== ==============================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from testudo_deploy.contract.contract import NEIGHBOUR_SIGNALS
from testudo_hardware.errors import TestudoError

_TINY = 1e-6
_NEAR_M = 0.3
_NEIGHBOUR_RANGE_M = 1.5
_PULL = 2.0
_VERTICAL_GOAL_M = 2e-3
"""A goal with less horizontal distance has no defined direction; the frame then uses the world's x."""
GOAL = "goal_world"
_NEIGHBOUR = "neighbour_"
_POSITION = "_position_world"
_KNOWN = ("position_world", "yaw", "velocity", "control_point_world", GOAL, f"{_NEIGHBOUR}{GOAL}", *NEIGHBOUR_SIGNALS)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Features:
    """Inputs of a network, with leading batch axes (...)."""

    own: jax.Array  # (..., F)
    neighbours: jax.Array  # (..., K, G)
    nearness: jax.Array
    """(..., K): weight of a neighbour, 1 at distance 0 to 0 at `_NEIGHBOUR_RANGE_M`; 0 for an empty slot."""
    pull: jax.Array
    """(..., D): action before the tanh that leads straight to the goal, or to the first position of the task."""
    goal_frame: jax.Array  # (..., 2): cosine and sine of the direction to the goal


@dataclass(frozen=True)
class _Frame:
    """The goal's horizontal frame at the robot's control point."""

    point: jax.Array  # (..., D) [m]
    cosine: jax.Array  # (..., 1)
    sine: jax.Array  # (..., 1)

    def for_slots(self) -> _Frame:
        """Return the same frame for values (..., K, C)."""
        return _Frame(*(x[..., None, :] for x in (self.point, self.cosine, self.sine)))

    def rotated(self, vectors: jax.Array) -> jax.Array:
        """Return world vectors (..., D) in this frame."""
        x, y = vectors[..., 0:1], vectors[..., 1:2]
        return jnp.concatenate(
            [self.cosine * x + self.sine * y, -self.sine * x + self.cosine * y, vectors[..., 2:]], axis=-1
        )

    def angle(self, yaw: jax.Array) -> list[jax.Array]:
        """Return cosine and sine of a world yaw (..., C) in this frame."""
        return [
            jnp.cos(yaw) * self.cosine + jnp.sin(yaw) * self.sine,
            jnp.sin(yaw) * self.cosine - jnp.cos(yaw) * self.sine,
        ]


def encode(signals: Mapping[str, jax.Array]) -> Features:
    """Return the features of signals with leading batch axes: (..., D), neighbours (..., K, D) or (..., K).

    Raises:
        TestudoError: the task has no goal.
    """
    if GOAL not in signals:
        raise TestudoError(
            f"task signals: {GOAL} is missing, found {', '.join(task_names(signals)) or 'none'}; "
            "policies need it, so the scenario must provide it"
        )
    point = signals["control_point_world"]
    offset = signals[GOAL] - point
    horizontal = jnp.sqrt(jnp.sum(offset[..., :2] ** 2, axis=-1, keepdims=True) + _TINY)
    frame = _Frame(point, *_direction(offset, horizontal))
    distance = jnp.sqrt(jnp.sum(offset**2, axis=-1, keepdims=True) + _TINY)
    names = task_names(signals)
    own = jnp.concatenate(
        [
            distance,
            jnp.minimum(distance, _NEAR_M) / _NEAR_M,
            offset[..., 2:],
            point,
            frame.cosine,
            frame.sine,
            *frame.angle(signals["yaw"]),
            signals["velocity"],
            *(
                part
                for name in names
                if not name.startswith(_NEIGHBOUR)
                for part in _task_features(name, signals[name], frame)
            ),
        ],
        axis=-1,
    )
    slots = frame.for_slots()
    relative = slots.rotated(signals["neighbour_position_world"] - slots.point)
    velocity = slots.rotated(signals["neighbour_velocity_world"])
    distance_apart = jnp.sqrt(jnp.sum(relative**2, axis=-1, keepdims=True) + _TINY)
    parts = [relative, distance_apart, 0.2 / (distance_apart + 0.1), velocity, signals["neighbour_age"][..., None]]
    if f"{_NEIGHBOUR}{GOAL}" in signals:  # inputs of the central critic include the peers' goals
        parts.append(slots.rotated(signals[f"{_NEIGHBOUR}{GOAL}"] - slots.point))
    parts += [
        part for name in names if name.startswith(_NEIGHBOUR) for part in _task_features(name, signals[name], slots)
    ]
    nearness = signals["neighbour_valid"] * jnp.clip(1 - distance_apart[..., 0] / _NEIGHBOUR_RANGE_M, 0.0, 1.0)
    return Features(
        own,
        jnp.concatenate(parts, axis=-1),
        nearness,
        _pull(signals, frame, horizontal, offset),
        jnp.concatenate([frame.cosine, frame.sine], axis=-1),
    )


def _direction(offset: jax.Array, horizontal: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return cosine and sine (..., 1) of the horizontal direction to the goal."""
    cosine, sine = offset[..., 0:1] / horizontal, offset[..., 1:2] / horizontal
    if offset.shape[-1] == 2:
        return cosine, sine
    straight_up = horizontal < _VERTICAL_GOAL_M
    return jnp.where(straight_up, 1.0, cosine), jnp.where(straight_up, 0.0, sine)


def task_names(signals: Mapping[str, jax.Array]) -> list[str]:
    """Return the names of the task's own signals (except the goal), in alphabetical order."""
    return sorted(name for name in signals if name not in _KNOWN)


def out_of_goal_frame(vector: jax.Array, goal_frame: jax.Array) -> jax.Array:
    """Return a goal-frame vector (..., D) in the world frame."""
    cosine, sine = goal_frame[..., 0:1], goal_frame[..., 1:2]
    x, y = vector[..., 0:1], vector[..., 1:2]
    return jnp.concatenate([cosine * x - sine * y, sine * x + cosine * y, vector[..., 2:]], axis=-1)


def _task_features(name: str, value: jax.Array, frame: _Frame) -> list[jax.Array]:
    """Return the features (..., C) of a task's own signal (..., C); see the table of the module."""
    if name.endswith(_POSITION):
        relative = frame.rotated(value - frame.point)
        return [relative, jnp.sqrt(jnp.sum(relative**2, axis=-1, keepdims=True) + _TINY)]
    if name.endswith("_quarter_yaw"):
        cosine, sine = _double_angle(*_double_angle(*frame.angle(value)))
        return [cosine, sine]
    return frame.angle(value) if name.endswith("_yaw") else [value]


def _double_angle(cosine: jax.Array, sine: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return cosine and sine of twice the angle."""
    return cosine**2 - sine**2, 2 * sine * cosine


def _pull(signals: Mapping[str, jax.Array], frame: _Frame, horizontal: jax.Array, offset: jax.Array) -> jax.Array:
    """Return the pull (..., D) to the first position signal of the task, else to the goal."""
    positions = [name for name in task_names(signals) if name.endswith(_POSITION) and not name.startswith(_NEIGHBOUR)]
    # exactly along x; rotating the offset would add rounding errors
    target = (
        frame.rotated(signals[positions[0]] - frame.point)
        if positions
        else jnp.concatenate([horizontal, jnp.zeros_like(horizontal), offset[..., 2:]], axis=-1)
    )
    distance = jnp.sqrt(jnp.sum((target if positions else offset) ** 2, axis=-1, keepdims=True) + _TINY)
    return _PULL * target / (distance + _NEAR_M)
