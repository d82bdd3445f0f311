"""`swap`: robots on a ring change places with the one opposite, in the plane or in space.

In space the ring lies flat, leans or stands upright, so that robots meet at one height, or one above another and
have to fly around: what is above another blows it down. Between robots heights count less than ways across
(`height_ratio`); an upright ring is higher by as much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from testudo_deploy.shield.margins import ShieldParameters
from testudo_deploy.shield.walls import Arena
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec
from testudo_sim.scenarios.base import StartState
from testudo_sim.scenarios.goals import (
    GoalScenario,
    GoalTask,
    arena_height_m,
    decision_ticks,
    height_ratio,
    room_m,
    spacing_m,
    yaws,
)

_LARGEST = 2.0
"""Largest radius of the ring over the spacing: 12 robots fit."""
_UPRIGHT = 0.8
"""Half the height of an upright ring over the spacing: four robots fit (0.71), and a little more."""
_FLAT_SHARE, _UPRIGHT_SHARE = 0.4, 0.3
"""Of the worlds in space; the other rings lean."""


@dataclass(frozen=True, kw_only=True)
class Swap(GoalScenario):
    """Implements `Scenario`."""

    room_m: float
    """Least distance of starts and goals from floor and ceiling."""
    height_ratio: float
    """How much farther than beside another a robot has to be above another."""
    name: str = "swap"

    @classmethod
    def create(cls, spec: RobotSpec, shield: ShieldParameters) -> Swap:
        """Return the scenario for a kind of robot; the arena lets robots pass outside of the largest ring."""
        spacing, room, up = spacing_m(shield), room_m(spec, shield), height_ratio(shield)
        side = _LARGEST * spacing + max(room, spacing)
        low, high = (-side, -side), (side, side)
        if spec.dimension == 3:
            low = (*low, 0.0)
            high = (*high, arena_height_m(2 * (_UPRIGHT * up * spacing + room)))
        return cls(arena=Arena(low, high), spec=spec, spacing_m=spacing, decision_ticks=decision_ticks(spec),
                   room_m=room, height_ratio=up)

    def own_start(self, key: jax.Array, team_size: int) -> StartState:
        """Draw a ring and the place of each robot on it."""
        least = max(1.0, 0.5 / math.sin(math.pi / team_size)) * self.spacing_m
        most = _LARGEST * self.spacing_m
        if least > most:
            fit = math.floor(math.pi / math.asin(0.5 / _LARGEST))
            raise TestudoError(f"swap: {team_size} robots do not fit on a ring of {most:.2f} m with "
                               f"{self.spacing_m:.2f} m between them, {fit} do")
        size, turn, place, heading, lean = jax.random.split(key, 5)
        radius = jax.random.uniform(size, (), minval=least, maxval=most)
        angle = 2 * math.pi * (jnp.arange(team_size) / team_size + jax.random.uniform(turn))
        ring = jnp.stack([jnp.cos(angle), jnp.sin(angle)])
        shift = jax.random.uniform(place, (3,), minval=-1.0, maxval=1.0)
        offset = radius * ring if self.spec.dimension == 2 else self._in_space(lean, radius, ring)
        centre = shift[:2] * (most - radius)
        if self.spec.dimension == 3:
            middle, half = self.arena.high_world[2] / 2, jnp.max(jnp.abs(offset[2]))
            centre = jnp.append(centre, middle + shift[2] * (middle - self.room_m - half))
        start = centre[:, None] + offset
        goal = jnp.roll(start, -(team_size // 2), axis=1)
        return StartState(start, yaws(heading, self.spec, team_size), GoalTask(goal))

    def _in_space(self, key: jax.Array, radius: jax.Array, ring: jax.Array) -> jax.Array:
        """Return places (3, N) [m] about the centre for those (2, N) on a unit circle: the ring leans about x'.

        Stretching an axis brings no two places nearer, so that the ring may be lower than it is wide.
        """
        kind, how, about = jax.random.split(key, 3)
        team_size = ring.shape[1]
        half_m = min(_UPRIGHT * self.spacing_m, (self.arena.high_world[2] / 2 - self.room_m) / self.height_ratio)
        # where robots above one another do not fit below the ceiling, the ring leans as far as it lets it
        steepest = min(1.0, 2 * half_m * math.sin(math.pi / team_size) / self.spacing_m)
        leaning = jax.random.uniform(how, minval=0.0, maxval=steepest)
        chance = jax.random.uniform(kind)
        sine = jnp.where(chance < _FLAT_SHARE, 0.0, jnp.where(chance < _FLAT_SHARE + _UPRIGHT_SHARE, steepest, leaning))
        cosine = jnp.sqrt(1 - sine**2)
        across = jnp.minimum(radius, half_m / jnp.maximum(sine, 1e-6))
        along_m, across_m = radius * ring[0], across * ring[1]
        yaw = jax.random.uniform(about, minval=0.0, maxval=2 * math.pi)
        flat = jnp.stack([along_m, cosine * across_m])
        turned = jnp.stack([jnp.cos(yaw) * flat[0] - jnp.sin(yaw) * flat[1],
                            jnp.sin(yaw) * flat[0] + jnp.cos(yaw) * flat[1]])
        return jnp.concatenate([turned, (self.height_ratio * sine * across_m)[None]])
