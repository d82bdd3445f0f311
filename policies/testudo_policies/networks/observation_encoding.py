"""Encodes raw signals as network inputs; part of the exported graph, so robots need no encoder.

Features are centred on the robot's control point, in a horizontal frame that the scenario declares
(`testudo_sim.scenarios.scenario.Observation`), so that a policy depends little on its place in the world; the world
position is kept for the walls.

The encoding of a task signal follows from its name; signals are in alphabetical order. Those of entities are encoded
for each entity, those of peers for each neighbour:

===================== ==============================================================================
``*_position_world``  offset in the frame, and distance
``*_velocity_world``  turned into the frame
``*_quarter_yaw``     cosine and sine of four times the angle to the frame, for a body with fourfold
                      symmetry
``*_yaw``             cosine and sine of the angle to the frame
``*_valid``           whether an entity is there; not a feature
other                 unchanged
===================== ==============================================================================

What peers say (``neighbour_message``) is a group of entities of its own, with their offsets and the ages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp

from testudo_deploy.contract.contract import NEIGHBOUR_MESSAGE, NEIGHBOUR_SIGNALS
from testudo_hardware.errors import TestudoError
from testudo_sim.scenarios.scenario import BODY, GOAL, PEER, POSITION, VALID, WORLD, Observation, group_of

_TINY = 1e-6
_NEAR_M = 0.3
_HEARD = "heard_message"  # group of what the peers say; those of a task have no underscore
_PULL = 2.0
_VERTICAL_GOAL_M = 2e-3
"""A goal with less horizontal distance has no defined direction; the frame then uses the world's x."""
_VELOCITY = "_velocity_world"
_KNOWN = ("position_world", "yaw", "velocity", "control_point_world", GOAL, f"{PEER}{GOAL}", *NEIGHBOUR_SIGNALS)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Features:
    """Inputs of a network, with leading batch axes (...)."""

    own: jax.Array  # (..., F)
    neighbours: jax.Array  # (..., K, G)
    nearness: jax.Array
    """(..., K): weight of a neighbour, 1 at distance 0 to 0 at `Observation.peer_range_m`; 0 for an empty slot."""
    pull: jax.Array  # (..., D): action before the tanh that an untrained policy adds; zero without a declared pull
    frame: jax.Array  # (..., 2): cosine and sine of the frame's x axis in the world
    entities: Mapping[str, jax.Array] = field(default_factory=dict)  # (..., K, H) by group
    presence: Mapping[str, jax.Array] = field(default_factory=dict)  # (..., K) by group: 1, or 0 for no entity
    speed: jax.Array | None = None  # (..., 1): share of full speed that the robot may command; None: all of it
    point: jax.Array | None = None  # (..., D) [m, world]: the control point, for actions that are way-points; no input


@dataclass(frozen=True)
class _Frame:
    """The horizontal frame of the features at the robot's control point."""

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


def encode(signals: Mapping[str, jax.Array], observation: Observation) -> Features:
    """Return the features of signals with leading batch axes: (..., D), slots (..., K, D) or (..., K).

    Raises:
        TestudoError: the task lacks a signal that its observation names.
    """
    _check_named(signals, observation)
    frame, towards = _frame_of(signals, observation)
    slots, groups = frame.for_slots(), entity_groups(signals)
    neighbours, distance_apart = _neighbour_features(signals, slots)
    entities = {group: _entity_features(signals, members, slots) for group, members in groups.items()}
    presence = {group: _presence(signals, group, members) for group, members in groups.items()}
    if NEIGHBOUR_MESSAGE in signals:
        entities[_HEARD], presence[_HEARD] = _heard_features(signals, slots), signals["neighbour_valid"]
    goal = (GOAL,) if GOAL in signals and observation.frame != GOAL else ()
    own = [
        *towards,
        frame.point,
        frame.cosine,
        frame.sine,
        *frame.angle(signals["yaw"]),
        signals["velocity"],
        *(
            part
            for name in (*goal, *task_names(signals))
            if not name.startswith(PEER) and signals[name].ndim == frame.point.ndim
            for part in _task_features(name, signals[name], frame)
        ),
    ]
    return Features(
        jnp.concatenate(own, axis=-1),
        neighbours,
        signals["neighbour_valid"] * jnp.clip(1 - distance_apart / observation.peer_range_m, 0.0, 1.0),
        _pull(signals, observation, frame),
        jnp.concatenate([frame.cosine, frame.sine], axis=-1),
        entities,
        presence,
        jnp.clip(signals[observation.speed], 0.0, 1.0) if observation.speed else None,
    )


def _neighbour_features(signals: Mapping[str, jax.Array], slots: _Frame) -> tuple[jax.Array, jax.Array]:
    """Return the features (..., K, G) of the neighbours, and their distances (..., K) [m]."""
    relative = slots.rotated(signals["neighbour_position_world"] - slots.point)
    velocity = slots.rotated(signals["neighbour_velocity_world"])
    distance_apart = jnp.sqrt(jnp.sum(relative**2, axis=-1, keepdims=True) + _TINY)
    parts = [relative, distance_apart, 0.2 / (distance_apart + 0.1), velocity, signals["neighbour_age"][..., None]]
    if f"{PEER}{GOAL}" in signals:  # inputs of the central critic include the peers' goals
        parts.append(slots.rotated(signals[f"{PEER}{GOAL}"] - slots.point))
    parts += [
        part
        for name in task_names(signals)
        if name.startswith(PEER)
        for part in _task_features(name, signals[name], slots)
    ]
    return jnp.concatenate(parts, axis=-1), distance_apart[..., 0]


def _heard_features(signals: Mapping[str, jax.Array], slots: _Frame) -> jax.Array:
    """Return what each peer says, from where, and how old it is (..., K, H), as an entity of its own.

    A neighbour counts less the farther it is, and not at all from `Observation.peer_range_m` on; what it says counts
    anywhere, as the radio that brings it reaches all peers.
    """
    relative = slots.rotated(signals["neighbour_position_world"] - slots.point)
    age = signals["neighbour_age"][..., None]
    return jnp.concatenate([signals[NEIGHBOUR_MESSAGE], relative, age], axis=-1)


def _entity_features(signals: Mapping[str, jax.Array], members: list[str], slots: _Frame) -> jax.Array:
    """Return the features (..., K, H) of the entities of a group."""
    parts = [part for name in members for part in _task_features(name, signals[name], slots)]
    return jnp.concatenate(parts, axis=-1)


def _presence(signals: Mapping[str, jax.Array], group: str, members: list[str]) -> jax.Array:
    """Return whether each entity of a group is there (..., K); all are if no signal says so."""
    valid = signals.get(f"{group}{VALID}")
    return jnp.ones(signals[members[0]].shape[:-1]) if valid is None else valid[..., 0]


def entity_groups(signals: Mapping[str, jax.Array]) -> dict[str, list[str]]:
    """Return the names of the features of entities, by group."""
    axes, groups = signals["yaw"].ndim, dict[str, list[str]]()
    for name in task_names(signals):
        if not name.startswith(PEER) and signals[name].ndim > axes and not name.endswith(VALID):
            groups.setdefault(group_of(name), []).append(name)
    return groups


def _check_named(signals: Mapping[str, jax.Array], observation: Observation) -> None:
    for use, name in (("frame", observation.frame), ("pull", observation.pull), ("speed", observation.speed)):
        if name and name not in (WORLD, BODY) and name not in signals:
            raise TestudoError(
                f"task signals: {name} is missing, found {', '.join(task_names(signals)) or 'none'}; the scenario's "
                f"observation names it as {use}"
            )


def _frame_of(signals: Mapping[str, jax.Array], observation: Observation) -> tuple[_Frame, list[jax.Array]]:
    """Return the frame, and the features of the signal to which it points."""
    point = signals["control_point_world"]
    if observation.frame == BODY:
        return _Frame(point, jnp.cos(signals["yaw"]), jnp.sin(signals["yaw"])), []
    if observation.frame == WORLD:
        return _Frame(point, jnp.ones_like(signals["yaw"]), jnp.zeros_like(signals["yaw"])), []
    offset = signals[observation.frame] - point
    horizontal = _horizontal(offset)
    distance = jnp.sqrt(jnp.sum(offset**2, axis=-1, keepdims=True) + _TINY)
    return _Frame(point, *_direction(offset, horizontal)), [
        distance,
        jnp.minimum(distance, _NEAR_M) / _NEAR_M,
        offset[..., 2:],
    ]


def _horizontal(offset: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.sum(offset[..., :2] ** 2, axis=-1, keepdims=True) + _TINY)


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


def out_of_frame(vector: jax.Array, frame: jax.Array) -> jax.Array:
    """Return a vector (..., D) of the features' frame, see `Features.frame`, in the world frame."""
    cosine, sine = frame[..., 0:1], frame[..., 1:2]
    x, y = vector[..., 0:1], vector[..., 1:2]
    return jnp.concatenate([cosine * x - sine * y, sine * x + cosine * y, vector[..., 2:]], axis=-1)


def _task_features(name: str, value: jax.Array, frame: _Frame) -> list[jax.Array]:
    """Return the features (..., C) of a task's own signal (..., C); see the table of the module."""
    if name.endswith(_VELOCITY):
        return [frame.rotated(value)]
    if name.endswith(POSITION) or name == GOAL:
        relative = frame.rotated(value - frame.point)
        return [relative, jnp.sqrt(jnp.sum(relative**2, axis=-1, keepdims=True) + _TINY)]
    if name.endswith("_quarter_yaw"):
        cosine, sine = _double_angle(*_double_angle(*frame.angle(value)))
        return [cosine, sine]
    return frame.angle(value) if name.endswith("_yaw") else [value]


def _double_angle(cosine: jax.Array, sine: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return cosine and sine of twice the angle."""
    return cosine**2 - sine**2, 2 * sine * cosine


def _pull(signals: Mapping[str, jax.Array], observation: Observation, frame: _Frame) -> jax.Array:
    """Return the pull (..., D) to the declared position signal."""
    if not observation.pull:
        return jnp.zeros_like(frame.point)
    offset = signals[observation.pull] - frame.point
    along = observation.pull == observation.frame
    # exactly along x; rotating the offset would add rounding errors
    horizontal = _horizontal(offset)
    target = (
        jnp.concatenate([horizontal, jnp.zeros_like(horizontal), offset[..., 2:]], axis=-1)
        if along
        else frame.rotated(offset)
    )
    distance = jnp.sqrt(jnp.sum((offset if along else target) ** 2, axis=-1, keepdims=True) + _TINY)
    return _PULL * target / (distance + _NEAR_M)
