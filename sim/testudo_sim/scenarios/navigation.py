"""`navigation`: every robot reaches its own goal through the others, in the plane or in space.

Arena and tolerance are those of the Robotarium suite (arXiv 2505.06771); starts and goals lie on a grid
whose cells are at least the enforced separation and 0.1 m apart.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from testudo_deploy.shield.arena import Arena, clearances
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec
from testudo_sim.scenarios.goal_scenario import (
    ROBOTARIUM,
    SPAWN_EDGE_M,
    GoalScenario,
    GoalTask,
    Grid,
    room_m,
    spacing_m,
    spawn_box,
    square_arena,
    yaws,
)
from testudo_sim.scenarios.scenario import StartState


@dataclass(frozen=True, kw_only=True)
class Navigation(GoalScenario):
    """Implements `Scenario`."""

    spawn_low_world: tuple[float, ...]
    spawn_high_world: tuple[float, ...]
    crowding: float = 0.0  # share of worlds whose starts and goals crowd into one part of the arena
    name: str = "navigation"

    @classmethod
    def create(cls, spec: RobotSpec, shield: ProjectionParameters) -> "Navigation":
        """Return the scenario for a kind of robot: the arena of the Robotarium, scaled for larger robots."""
        arena, edge = _arena(spec, spacing_m(shield), room_m(spec, shield), shield.height_ratio)
        low, high = spawn_box(arena, edge)
        return cls.in_arena(arena, spec, shield, spawn_low_world=low, spawn_high_world=high)

    def own_start(self, key: jax.Array, team_size: int) -> StartState:
        """Draw starts and goals on the grid."""
        places = Grid.create(self.spawn_low_world, self.spawn_high_world, self.spacing_m, self.height_ratio)
        room = self.room_m + float(np.linalg.norm(places.jitter_m))
        points = places.points_world.T.astype(float)
        grid = places
        if self.arena.obstacles:
            free = np.all(clearances(self.arena.groups, points)[0] >= room, axis=0)
            grid = replace(places, points_world=places.points_world[free])
        cells = grid.points_world
        if team_size > len(cells):
            raise TestudoError(
                f"navigation: {team_size} robots do not fit: {len(cells)} cells of "
                f"{self.spacing_m:.2f} m in the arena; use a smaller team or a larger arena"
            )
        crowd, first, second, noise, turn = jax.random.split(key, 5)
        shape = (cells.shape[1], team_size)
        shifts = jax.random.uniform(noise, (2, *shape), minval=-1.0, maxval=1.0)
        # scores (cells,) of the grid, see `Grid.draw`: equal, or the distance from one of the cells
        chance, centre = jax.random.split(crowd)
        middle = jnp.asarray(cells)[jax.random.randint(centre, (), 0, len(cells))]
        distance = jnp.sqrt(jnp.sum((cells - middle) ** 2, axis=-1)) / self.spacing_m
        weights = jnp.where(jax.random.uniform(chance) < self.crowding, 2.0, 0.0) * distance
        starts, goals = (grid.draw(k, weights, shift) for k, shift in zip((first, second), shifts, strict=True))
        return StartState(starts, yaws(turn, self.spec, team_size), GoalTask(goals))

    def for_training(self) -> "Navigation":
        """See `Scenario.for_training`: half of the worlds are crowded, for larger teams."""
        return replace(self, crowding=0.5)


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
    arena = square_arena(spec, 1.6 * scale, 2.0 * scale)
    edge = max(0.4, least_edge_m)
    # the largest shift of a place from its grid point, along z
    length = (arena.high_world[2] - 2 * edge) / height_ratio
    layers = int(length / spacing_m) + 1
    moved = height_ratio * (length - (layers - 1) * spacing_m) / (2 * layers) if layers > 1 else 0.0
    return arena, (0.4 * scale, 0.4 * scale, edge + moved)
