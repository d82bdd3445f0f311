"""From raw signals to what a network reads: part of the exported graph, so a robot never encodes.

Everything is seen in the goal's horizontal frame (x towards the goal), centred on the own control point,
so that a policy does not depend on where in the world it acts; the world position is kept for the walls.

What a task adds to `goal_world` is read by its name, the names in alphabetical order:

===================== ==============================================================================
``*_position_world``  offset in the goal's frame, and distance
``*_quarter_yaw``     cosine and sine of four times the angle to the goal's frame: the yaw of a thing
                      that looks the same after a quarter turn
``*_yaw``             cosine and sine of the angle to the goal's frame
anything else         as it is
===================== ==============================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from testudo_deploy.contract.signals import NEIGHBOUR_SIGNALS
from testudo_hardware.errors import TestudoError

_TINY = 1e-6
_NEAR_M = 0.3
_SIGHT_M = 1.5
_PULL = 2.0
_LEAN_M = 2e-3
"""A goal that is above or below, as exactly as this, has no direction seen from above: along x is taken for it."""
GOAL = "goal_world"
_PEERS = "neighbour_"
_PLACE = "_position_world"
_KNOWN = ("position_world", "yaw", "velocity", "control_point_world", GOAL, f"{_PEERS}{GOAL}", *NEIGHBOUR_SIGNALS)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Features:
    """What a network reads; leading batch axes (...)."""

    own: jax.Array
    """(..., F)."""
    neighbours: jax.Array
    """(..., K, G)."""
    nearness: jax.Array
    """(..., K): weight of a peer, from 1 when touching to 0 from `_SIGHT_M` on; 0 if there is none."""
    pull: jax.Array
    """(..., D): action, before the squashing, that leads straight to the goal, or to the task's first thing."""
    goal_frame: jax.Array
    """(..., 2): cosine and sine of the direction to the goal."""


@dataclass(frozen=True)
class _Frame:
    """The goal's horizontal frame at the own control point."""

    point: jax.Array
    """(..., D) [m]."""
    cosine: jax.Array
    """(..., 1)."""
    sine: jax.Array
    """(..., 1)."""

    def for_slots(self) -> _Frame:
        """Return the same frame for values (..., K, C)."""
        return _Frame(*(x[..., None, :] for x in (self.point, self.cosine, self.sine)))

    def turned(self, vectors: jax.Array) -> jax.Array:
        """Return vectors (..., D) of the world in this frame."""
        x, y = vectors[..., 0:1], vectors[..., 1:2]
        return jnp.concatenate(
            [self.cosine * x + self.sine * y, -self.sine * x + self.cosine * y, vectors[..., 2:]], axis=-1
        )

    def angle(self, yaw: jax.Array) -> list[jax.Array]:
        """Return cosine and sine of a yaw (..., C) of the world in this frame."""
        return [
            jnp.cos(yaw) * self.cosine + jnp.sin(yaw) * self.sine,
            jnp.sin(yaw) * self.cosine - jnp.cos(yaw) * self.sine,
        ]


def encode(signals: Mapping[str, jax.Array]) -> Features:
    """Return the features of signals with batch axes first: (..., D), neighbours (..., K, D) or (..., K).

    Raises:
        TestudoError: the task gives no goal.
    """
    if GOAL not in signals:
        raise TestudoError(
            f"task signals: {GOAL} is missing, found {', '.join(task_names(signals)) or 'none'}; "
            "a policy looks towards it, so the scenario must give it"
        )
    point = signals["control_point_world"]
    offset = signals[GOAL] - point
    across = jnp.sqrt(jnp.sum(offset[..., :2] ** 2, axis=-1, keepdims=True) + _TINY)
    frame = _Frame(point, *_direction(offset, across))
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
            *(part for name in names if not name.startswith(_PEERS) for part in _seen(name, signals[name], frame)),
        ],
        axis=-1,
    )
    slots = frame.for_slots()
    place = slots.turned(signals["neighbour_position_world"] - slots.point)
    velocity = slots.turned(signals["neighbour_velocity_world"])
    apart = jnp.sqrt(jnp.sum(place**2, axis=-1, keepdims=True) + _TINY)
    parts = [place, apart, 0.2 / (apart + 0.1), velocity, signals["neighbour_age"][..., None]]
    if f"{_PEERS}{GOAL}" in signals:  # the central critic knows where the peers want to go
        parts.append(slots.turned(signals[f"{_PEERS}{GOAL}"] - slots.point))
    parts += [part for name in names if name.startswith(_PEERS) for part in _seen(name, signals[name], slots)]
    nearness = signals["neighbour_valid"] * jnp.clip(1 - apart[..., 0] / _SIGHT_M, 0.0, 1.0)
    return Features(
        own,
        jnp.concatenate(parts, axis=-1),
        nearness,
        _pull(signals, frame, across, offset),
        jnp.concatenate([frame.cosine, frame.sine], axis=-1),
    )


def _direction(offset: jax.Array, across: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return cosine and sine (..., 1) of the direction to the goal as seen from above."""
    cosine, sine = offset[..., 0:1] / across, offset[..., 1:2] / across
    if offset.shape[-1] == 2:
        return cosine, sine
    straight_up = across < _LEAN_M
    return jnp.where(straight_up, 1.0, cosine), jnp.where(straight_up, 0.0, sine)


def task_names(signals: Mapping[str, jax.Array]) -> list[str]:
    """Return the names of the signals that a task adds to those of a robot and to the goal, in their order."""
    return sorted(name for name in signals if name not in _KNOWN)


def out_of_goal_frame(vector: jax.Array, goal_frame: jax.Array) -> jax.Array:
    """Return a vector (..., D) of the goal frame in the world."""
    cosine, sine = goal_frame[..., 0:1], goal_frame[..., 1:2]
    x, y = vector[..., 0:1], vector[..., 1:2]
    return jnp.concatenate([cosine * x - sine * y, sine * x + cosine * y, vector[..., 2:]], axis=-1)


def _seen(name: str, value: jax.Array, frame: _Frame) -> list[jax.Array]:
    """Return the features (..., C) of a task's own signal (..., C); the module's table."""
    if name.endswith(_PLACE):
        place = frame.turned(value - frame.point)
        return [place, jnp.sqrt(jnp.sum(place**2, axis=-1, keepdims=True) + _TINY)]
    if name.endswith("_quarter_yaw"):
        cosine, sine = _doubled(*_doubled(*frame.angle(value)))
        return [cosine, sine]
    return frame.angle(value) if name.endswith("_yaw") else [value]


def _doubled(cosine: jax.Array, sine: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return cosine and sine of twice the angle."""
    return cosine**2 - sine**2, 2 * sine * cosine


def _pull(signals: Mapping[str, jax.Array], frame: _Frame, across: jax.Array, offset: jax.Array) -> jax.Array:
    """Return the pull (..., D) to what the task is about: its first thing that has a place, else the goal."""
    things = [name for name in task_names(signals) if name.endswith(_PLACE) and not name.startswith(_PEERS)]
    # exactly along x, which turning the offset would only give to rounding
    target = (
        frame.turned(signals[things[0]] - frame.point)
        if things
        else jnp.concatenate([across, jnp.zeros_like(across), offset[..., 2:]], axis=-1)
    )
    distance = jnp.sqrt(jnp.sum((target if things else offset) ** 2, axis=-1, keepdims=True) + _TINY)
    return _PULL * target / (distance + _NEAR_M)
