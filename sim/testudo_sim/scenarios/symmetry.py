"""Symmetries of a task: mirrors and turns of the plane that leave reward and dynamics as they are.

A scenario declares those that it has as ``symmetries``; `testudo train --symmetry` learns from mirrored and turned
steps beside those that were lived through. What a map does to a value follows from the value's name, as in
`observation_encoding`: ``*_world`` are vectors of the world, ``yaw`` and ``*_yaw`` are angles, ``velocity`` of a
differential drive is speed and yaw rate, and all else stays.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import pi
from typing import Any

import jax
import jax.numpy as jnp

from testudo_deploy.shield.arena import Arena
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec

_VECTOR, _YAW, _VELOCITY = "_world", "yaw", "velocity"


@dataclass(frozen=True)
class Symmetry:
    """A linear map of the plane about the origin."""

    name: str
    rows: tuple[tuple[int, int], tuple[int, int]]  # of its matrix

    @property
    def sense(self) -> int:
        """Return 1 where turns to the left stay such, and -1 in a mirror."""
        (a, b), (c, d) = self.rows
        return a * d - b * c

    @property
    def turn(self) -> float:
        """Return the angle [rad] of the image of the x axis."""
        (a, _), (c, _) = self.rows
        return {(1, 0): 0.0, (0, 1): pi / 2, (-1, 0): pi, (0, -1): -pi / 2}[a, c]

    def keeps(self, arena: Arena) -> bool:
        """Return whether it maps the arena onto itself; not if there are obstacles."""
        half = [max(map(abs, sides)) for sides in zip(arena.low_world, arena.high_world, strict=True)]
        centred = all(low == -high for low, high in zip(arena.low_world[:2], arena.high_world[:2], strict=True))
        return centred and not arena.obstacles and (self.rows[0][0] != 0 or half[0] == half[1])


MIRROR_X = Symmetry("mirror_x", ((-1, 0), (0, 1)))
MIRROR_Y = Symmetry("mirror_y", ((1, 0), (0, -1)))
HALF_TURN = Symmetry("half_turn", ((-1, 0), (0, -1)))
QUARTER_TURN = Symmetry("quarter_turn", ((0, -1), (1, 0)))


def symmetries_of(arena: Arena) -> tuple[Symmetry, ...]:
    """Return the symmetries of an arena, for a task in which no place of the arena differs from another."""
    return tuple(one for one in (MIRROR_X, MIRROR_Y, HALF_TURN, QUARTER_TURN) if one.keeps(arena))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class WorldMap:
    """The symmetry by which each world (E,) is seen."""

    rows: jax.Array  # (2, 2, E)
    sense: jax.Array  # (E,)
    turn: jax.Array  # (E,) [rad]

    @classmethod
    def drawn(cls, symmetries: tuple[Symmetry, ...], key: jax.Array, worlds: int) -> "WorldMap":
        """Return one of the symmetries for each world."""
        chosen = jax.random.randint(key, (worlds,), 0, len(symmetries))
        rows = jnp.array([one.rows for one in symmetries], jnp.float32)[chosen]
        sense = jnp.array([one.sense for one in symmetries], jnp.float32)[chosen]
        turn = jnp.array([one.turn for one in symmetries], jnp.float32)[chosen]
        return cls(jnp.moveaxis(rows, 0, -1), sense, turn)

    def vector(self, values: jax.Array) -> jax.Array:
        """Return vectors (D, ..., E) of the world; heights stay."""
        x, y = values[0], values[1]
        plane = jnp.stack([row[0] * x + row[1] * y for row in self.rows])
        return jnp.concatenate([plane, values[2:]])

    def angle(self, yaw: jax.Array) -> jax.Array:
        """Return angles (..., E) of the world."""
        return self.sense * yaw + self.turn

    def velocity(self, values: jax.Array, spec: RobotSpec) -> jax.Array:
        """Return the velocity (D, ..., E) of robots, see `MotionState`."""
        if spec.kind == DIFFERENTIAL_DRIVE:
            return jnp.concatenate([values[:1], self.sense * values[1:]])
        return self.vector(values)

    def named(self, name: str, values: jax.Array, spec: RobotSpec) -> jax.Array:
        """Return a value (..., E) with its component first by its name."""
        if name == _VELOCITY:
            return self.velocity(values, spec)
        if name.endswith(_VECTOR):
            return self.vector(values)
        return self.angle(values) if name == _YAW or name.endswith(f"_{_YAW}") else values

    def signals(self, named: Mapping[str, jax.Array], spec: RobotSpec) -> dict[str, jax.Array]:
        """Return the signals of robots, batch first (E, N, ...), of mapped worlds."""
        return {name: self.named(name, value.T, spec).T for name, value in named.items()}

    def task(self, state: Any, spec: RobotSpec) -> Any:
        """Return the state of a task, with values by name as in a fleet file, of mapped worlds."""

        def mapped(path: Any, leaf: jax.Array) -> jax.Array:
            return self.named(jax.tree_util.keystr(path[-1:], simple=True), leaf, spec)

        return jax.tree_util.tree_map_with_path(mapped, state)
