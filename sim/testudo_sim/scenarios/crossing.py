"""`crossing`: two streams of robots cross, each in formation, in the plane or in space.

In space one of the streams climbs or sinks, so that they do not only meet at one height.
"""

import itertools
import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec
from testudo_sim.scenarios.goal_scenario import GoalScenario, GoalTask, room_m, spacing_m, square_arena, yaws
from testudo_sim.scenarios.scenario import StartState

_WAY = 2.8  # distance from the middle of the start of a stream to the crossing, over the spacing
_ANGLES_RAD = (math.radians(60), math.radians(120))  # angle between the streams, seen from above
_SIDE = 1.1  # distance of the places of a stream over the spacing; places are drawn within the excess


@dataclass(frozen=True, kw_only=True)
class Crossing(GoalScenario):
    """Implements `Scenario`."""

    name: str = "crossing"

    @classmethod
    def create(cls, spec: RobotSpec, shield: ProjectionParameters) -> "Crossing":
        """Return the scenario for a kind of robot; the arena has space beside the streams."""
        spacing, room = spacing_m(shield), room_m(spec, shield)
        side = (_WAY + _SIDE) * spacing + max(room, spacing / 2)
        height = 2 * (room + _SIDE * shield.height_ratio * spacing)
        return cls.in_arena(square_arena(spec, side, height), spec, shield)

    def own_start(self, key: jax.Array, team_size: int) -> StartState:
        """Draw the directions of the streams, and the places of the robots in them."""
        # places (D, C) [m] of a stream about its middle: two abreast, two behind, two above if possible
        half, up = _SIDE * self.spacing_m / 2, self._half_height_m
        axes = [(-half, half)] * 2 + ([(-up, up) if up else (0.0,)] if self.spec.dimension == 3 else [])
        cells = np.array(list(itertools.product(*axes)), dtype=np.float32).T
        if team_size > 2 * cells.shape[1]:
            raise TestudoError(f"crossing: {team_size} robots do not fit into two streams of {cells.shape[1]} places")
        first, angle, turn, heading, levels, *streams = jax.random.split(key, 7)
        yaw = jax.random.uniform(first, maxval=2 * math.pi)
        other = yaw + jax.random.uniform(angle, minval=_ANGLES_RAD[0], maxval=_ANGLES_RAD[1])
        level = self._levels(levels)
        counts = (team_size - team_size // 2, team_size // 2)
        starts, goals = [], []
        for k, (stream, count, direction) in enumerate(zip(streams, counts, (yaw, other), strict=True)):
            choice, noise = jax.random.split(stream)
            places = jax.random.permutation(choice, cells, axis=1, independent=False)[:, :count]
            shift = jax.random.uniform(noise, places.shape, minval=-1.0) * (_SIDE - 1) / 2 * self.spacing_m
            shift = shift.at[2:].multiply(self.height_ratio if self._half_height_m else 0.0)
            for sign, found, height in ((-1, starts, level[k, 0]), (1, goals, level[k, 1])):
                found.append(self._turned(places + shift, sign, direction, height))
        order = jax.random.permutation(turn, team_size)
        start, goal = (jnp.concatenate(parts, axis=1)[:, order] for parts in (starts, goals))
        return StartState(start, yaws(heading, self.spec, team_size), GoalTask(goal))

    @property
    def _half_height_m(self) -> float:
        """Return half of the height [m] between two robots above one another; 0 where the arena is too low."""
        if self.spec.dimension == 2:
            return 0.0
        half, high = _SIDE * self.height_ratio * self.spacing_m / 2, self.arena.high_world[2] - 2 * self.room_m
        return half if 4 * half <= high + 1e-9 else 0.0  # twice as high as they stand: room to climb

    def _levels(self, key: jax.Array) -> jax.Array:
        """Return the heights (2, 2) [m] of both streams, of start and goal; the second climbs or sinks."""
        if self.spec.dimension == 2:
            return jnp.zeros((2, 2))
        middle = self.arena.high_world[2] / 2
        half = self._half_height_m
        free = middle - self.room_m - half * (2 - 1 / _SIDE)
        climb = jax.random.uniform(key, (), minval=-1.0, maxval=1.0) * free
        return middle + jnp.stack([jnp.zeros(2), jnp.stack([-climb, climb])])

    def _turned(self, places: jax.Array, sign: int, direction: jax.Array, height: jax.Array) -> jax.Array:
        """Return places (D, N) in the world of a stream before (-1) or behind (1) the crossing."""
        along, aside = places[0] + sign * _WAY * self.spacing_m, places[1]
        flat = [
            jnp.cos(direction) * along - jnp.sin(direction) * aside,
            jnp.sin(direction) * along + jnp.cos(direction) * aside,
        ]
        return jnp.stack(flat if self.spec.dimension == 2 else [*flat, places[2] + height])
