"""`navigation`: every robot reaches its own goal through the others, in the plane or in space.

Arena and tolerance are those of the Robotarium suite (arXiv 2505.06771); starts and goals lie on a grid
whose cells are at least the enforced separation and 0.1 m apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from testudo_deploy.shield.arena import Arena, clearance
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec
from testudo_sim.scenarios.goal_scenario import (
    GoalScenario,
    GoalTask,
    arena_height_m,
    decision_ticks,
    room_m,
    spacing_m,
    yaws,
)
from testudo_sim.scenarios.scenario import StartState
from testudo_sim.scenarios.start_grid import ROBOTARIUM, SPAWN_EDGE_M, Grid


@dataclass(frozen=True, kw_only=True)
class Navigation(GoalScenario):
    """Implements `Scenario`."""

    spawn_low_world: tuple[float, ...]
    spawn_high_world: tuple[float, ...]
    crowding: float = 0.0
    """Share of worlds whose starts and goals crowd into one part of the arena."""
    room_m: float = 0.0
    """Distance that starts and goals keep from obstacles."""
    height_ratio: float = 1.0
    """Of the shield: heights between robots count 1/this."""
    name: str = "navigation"

    @classmethod
    def create(cls, spec: RobotSpec, shield: ProjectionParameters) -> Navigation:
        """Return the scenario for a kind of robot: the Robotarium's arena, grown for larger robots."""
        spacing = spacing_m(shield)
        arena, edge = _arena(spec, spacing, room_m(spec, shield), shield.height_ratio)
        low = tuple(x + e for x, e in zip(arena.low_world, edge, strict=True))
        high = tuple(x - e for x, e in zip(arena.high_world, edge, strict=True))
        return cls(
            arena=arena,
            spec=spec,
            spacing_m=spacing,
            decision_ticks=decision_ticks(spec),
            spawn_low_world=low,
            spawn_high_world=high,
            room_m=room_m(spec, shield),
            height_ratio=shield.height_ratio,
        )

    def own_start(self, key: jax.Array, team_size: int) -> StartState:
        """Draw starts and goals on the grid."""
        grid = self._grid()
        cells = grid.points_world
        if team_size > len(cells):
            raise TestudoError(
                f"navigation: {team_size} robots do not fit: {len(cells)} cells of "
                f"{self.spacing_m:.2f} m in the arena; use a smaller team or a larger arena"
            )
        crowd, first, second, noise, turn = jax.random.split(key, 5)
        shape = (cells.shape[1], team_size)
        shifts = jax.random.uniform(noise, (2, *shape), minval=-1.0, maxval=1.0)
        weights = self._crowd_weights(crowd, cells)
        starts, goals = (grid.draw(k, weights, shift) for k, shift in zip((first, second), shifts, strict=True))
        return StartState(starts, yaws(turn, self.spec, team_size), GoalTask(goals))

    def _crowd_weights(self, key: jax.Array, cells: np.ndarray) -> jax.Array:
        """Return how late a cell is chosen (cells,): equal, or growing with the distance from one of them."""
        chance, centre = jax.random.split(key)
        middle = jnp.asarray(cells)[jax.random.randint(centre, (), 0, len(cells))]
        distance = jnp.sqrt(jnp.sum((cells - middle) ** 2, axis=-1)) / self.spacing_m
        return jnp.where(jax.random.uniform(chance) < self.crowding, 2.0, 0.0) * distance

    def for_training(self) -> Navigation:
        """See `Scenario.for_training`: half of the worlds are crowded, so that larger teams work as well."""
        return replace(self, crowding=0.5)

    def _grid(self) -> Grid:
        grid = Grid.create(self.spawn_low_world, self.spawn_high_world, self.spacing_m, self.height_ratio)
        room = self.room_m + float(np.linalg.norm(grid.jitter_m))
        points = grid.points_world.T.astype(float)
        free = [clearance(obstacle, points)[0] >= room for obstacle in self.arena.obstacles]
        return replace(grid, points_world=grid.points_world[np.all(free, axis=0)]) if free else grid


def _arena(
    spec: RobotSpec, spacing_m: float, least_edge_m: float, height_ratio: float
) -> tuple[Arena, tuple[float, ...]]:
    """Return the Robotarium's arena and spawn edge, scaled so that as many robots fit as GRITSBots."""
    scale = max(1.0, spacing_m / 0.45)
    if spec.dimension == 2:
        arena, edge = ROBOTARIUM, SPAWN_EDGE_M
        return (
            Arena(tuple(scale * x for x in arena.low_world), tuple(scale * x for x in arena.high_world)),
            tuple(scale * x for x in edge),
        )
    side, high = 1.6 * scale, arena_height_m(2.0 * scale)
    edge = max(0.4, least_edge_m)
    # places are moved about the cells of the grid by up to this, which heights count more than widths
    length = (high - 2 * edge) / height_ratio
    layers = int(length / spacing_m) + 1
    moved = height_ratio * (length - (layers - 1) * spacing_m) / (2 * layers) if layers > 1 else 0.0
    return Arena((-side, -side, 0.0), (side, side, high)), (0.4 * scale, 0.4 * scale, edge + moved)
