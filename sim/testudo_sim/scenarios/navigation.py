"""`navigation`: every robot reaches its own goal through the others, in the plane or in space.

Arena and tolerance are those of the Robotarium suite (arXiv 2505.06771); starts and goals lie on a grid
whose cells are at least the enforced separation and 0.1 m apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from testudo_deploy.contract import Signal
from testudo_deploy.shield.margins import ShieldParameters
from testudo_deploy.shield.obstacles import Obstacle, clearance
from testudo_deploy.shield.space_margins import space_parameters
from testudo_deploy.shield.walls import Arena
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import MotionState
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec
from testudo_sim.scenarios.base import StartState
from testudo_sim.scenarios.grid import Grid
from testudo_sim.scene import Box, Scene
from testudo_sim.starts import Starts

_ROBOTARIUM = Arena((-1.6, -1.0), (1.6, 1.0))
_SPAWN_EDGE_M = (0.35, 0.25)
"""Starts and goals lie inside 2.5 m x 1.5 m of the Robotarium's arena."""
_FIRST_GAP_M = 0.1
"""Goals are at least the enforced separation and this apart, and at least `_GRID_M`."""
_GRID_M = 0.45
_STARTS_STREAM, _CHOICE_STREAM = 11, 12


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class NavigationTask:
    """The goals."""

    goal_world: jax.Array
    """(D, N, E) [m]."""


@dataclass(frozen=True)
class Navigation:
    """Implements `Scenario`."""

    arena: Arena
    spawn_low_world: tuple[float, ...]
    spawn_high_world: tuple[float, ...]
    spacing_m: float
    """Least distance of starts, and of goals."""
    speed_m_s: float
    """Speed that scales the reward for progress."""
    decision_s: float
    decision_ticks: int = 10
    horizon_s: float = 40.0
    tolerance_m: float = 0.1
    crowding: float = 0.0
    """Share of worlds whose starts and goals crowd into one part of the arena."""
    room_m: float = 0.0
    """Distance that starts and goals keep from obstacles."""
    name: str = "navigation"
    boxes: tuple[Box, ...] = ()
    task_signals: tuple[Signal, ...] = ()
    spec: RobotSpec | None = None
    starts: Starts | None = None
    """What worlds begin from; None are starts of its own."""
    starts_share: float = 1.0
    """Share of the worlds that begin from them; the others have starts of its own."""

    @classmethod
    def create(cls, spec: RobotSpec, shield: ShieldParameters) -> Navigation:
        """Return the scenario for a kind of robot: the Robotarium's arena, grown for larger robots."""
        spacing = max(shield.separation_m + _FIRST_GAP_M, _GRID_M)
        arena, edge = _arena(spec, spacing)
        ticks = max(1, round(0.33 / spec.control_period_s))
        signal = Signal("goal_world", (spec.dimension,), "m", "world", None)
        low = tuple(x + e for x, e in zip(arena.low_world, edge, strict=True))
        high = tuple(x - e for x, e in zip(arena.high_world, edge, strict=True))
        return cls(arena, low, high, spacing, spec.control_point_speed_m_s, ticks * spec.control_period_s, ticks,
                   room_m=_room_m(spec, shield), task_signals=(signal,), spec=spec)

    def start(self, key: jax.Array, team_size: int) -> StartState:
        """See `Scenario.start`."""
        if self.starts is None:
            return self._start(key, team_size)
        self.starts.check_fits(self.spec, team_size, "--starts")
        position, yaw, velocity, goal = self.starts.draw(jax.random.fold_in(key, _STARTS_STREAM))
        recorded = StartState(position, yaw, NavigationTask(goal), velocity=velocity)
        if self.starts_share == 1:
            return recorded
        own = replace(self._start(key, team_size), velocity=jnp.zeros_like(velocity))
        chosen = jax.random.uniform(jax.random.fold_in(key, _CHOICE_STREAM)) < self.starts_share
        return jax.tree.map(lambda one, other: jnp.where(chosen, one, other), recorded, own)

    def _start(self, key: jax.Array, team_size: int) -> StartState:
        """Draw starts and goals on the grid."""
        grid = self._grid()
        cells = grid.points_world
        if team_size > len(cells):
            raise TestudoError(f"navigation: {team_size} robots do not fit: {len(cells)} cells of "
                               f"{self.spacing_m:.2f} m in the arena; use a smaller team or a larger arena")
        crowd, first, second, noise, turn = jax.random.split(key, 5)
        shape = (cells.shape[1], team_size)
        shifts = jax.random.uniform(noise, (2, *shape), minval=-1.0, maxval=1.0)
        weights = self._crowd_weights(crowd, cells)
        starts, goals = (grid.draw(k, weights, shift) for k, shift in zip((first, second), shifts, strict=True))
        yaw = jax.random.uniform(turn, (team_size,), minval=-np.pi, maxval=np.pi)
        return StartState(starts, yaw if shape[0] == 2 else 0 * yaw, NavigationTask(goals))

    def signals(self, task: NavigationTask, scene: Scene) -> Mapping[str, jax.Array]:
        """See `Scenario.signals`."""
        return {"goal_world": task.goal_world}

    def rewards(self, task: NavigationTask, before: Scene, after: Scene
                ) -> Mapping[str, jax.Array]:
        """See `Scenario.rewards`: progress to the goal, a price on time, and a share in the success."""
        distance = self.distance(task, after.robots)
        progress = (self.distance(task, before.robots) - distance) / (self.speed_m_s * self.decision_s)
        there = distance < self.tolerance_m
        done = jnp.broadcast_to(jnp.all(there, axis=0), there.shape)
        return {"progress": progress, "waiting": jnp.where(there, 0.0, -0.05),
                "success": jnp.where(done, 5.0, 0.0)}

    def success(self, task: NavigationTask, scene: Scene) -> jax.Array:
        """See `Scenario.success`: all robots within the tolerance at once."""
        return jnp.all(self.distance(task, scene.robots) < self.tolerance_m, axis=0)

    def distance(self, task: NavigationTask, motion: MotionState) -> jax.Array:
        """Return the distance of every robot to its goal (N, E) [m]."""
        return jnp.sqrt(jnp.sum((task.goal_world - motion.position_world) ** 2, axis=0))

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
        grid = Grid.create(self.spawn_low_world, self.spawn_high_world, self.spacing_m)
        room = self.room_m + float(np.linalg.norm(grid.jitter_m))
        points = grid.points_world.T.astype(float)
        free = [clearance(obstacle, points)[0] >= room for obstacle in self.arena.obstacles]
        return replace(grid, points_world=grid.points_world[np.all(free, axis=0)]) if free else grid

    def with_obstacles(self, obstacles: tuple[Obstacle, ...]) -> Navigation:
        """Return the same scenario with obstacles in its arena, off which starts and goals lie."""
        return replace(self, arena=replace(self.arena, obstacles=obstacles))

    def with_starts(self, starts: Starts, share: float = 1.0) -> Navigation:
        """Return the same scenario begun from moments of a run, in the arena of that run if it is known."""
        return replace(self, starts=starts, starts_share=share, horizon_s=starts.horizon_s if share == 1 else
                       self.horizon_s, arena=starts.arena if starts.arena and share == 1 else self.arena)

    def with_horizon(self, horizon_s: float) -> Navigation:
        """Return the same scenario with another time limit [s]."""
        return replace(self, horizon_s=horizon_s)


def _room_m(spec: RobotSpec, shield: ShieldParameters) -> float:
    """Return how far from an obstacle a robot can be at rest, whatever its heading."""
    ahead = spec.look_ahead_m if spec.kind == DIFFERENTIAL_DRIVE else 0.0
    return max(shield.wall_m + ahead, space_parameters(spec).wall_m) + 0.01


def _arena(spec: RobotSpec, spacing_m: float) -> tuple[Arena, tuple[float, ...]]:
    """Return the Robotarium's arena and spawn edge, scaled so that as many robots fit as GRITSBots."""
    scale = max(1.0, spacing_m / 0.45)
    if spec.dimension == 2:
        arena, edge = _ROBOTARIUM, _SPAWN_EDGE_M
    else:
        arena, edge = Arena((-1.6, -1.6, 0.0), (1.6, 1.6, 2.0)), (0.4, 0.4, 0.4)
    return (Arena(tuple(scale * x for x in arena.low_world), tuple(scale * x for x in arena.high_world)),
            tuple(scale * x for x in edge))
