"""`crossing_map`: robots cross a map of obstacles, each to its own goal: random squares, mazes, caves, warehouses.

Among the maps by name are those of CAMAR (arXiv 2508.12845). What plays the part of the body there are the distances
that the shield keeps: in a corridor of one cell, the narrowest of a map, two robots can just pass each other.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np

from testudo_deploy.contract.contract import Signal
from testudo_deploy.shield.arena import Obstacle
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec
from testudo_sim.maps.named_maps import CELLS, map_obstacles
from testudo_sim.maps.ranges import nearest_points, ray_ranges
from testudo_sim.maps.ways import Ways, ways_on
from testudo_sim.physics.scene import Scene
from testudo_sim.scenarios.goal_scenario import GoalScenario, GoalTask, Grid, square_arena, straight_to, yaws
from testudo_sim.scenarios.robotarium_task import check_on_the_ground, entity_signals
from testudo_sim.scenarios.scenario import Observation, StartState, TaskStep

POINTS, RAYS = 6, 16
"""Obstacles that a robot knows the nearest point of, and ranges that it has."""
_SEEN_CELLS = 2.5  # how far a robot perceives obstacles, in cells
_PASSING_M = 0.02  # width of the narrowest corridor over what two robots need
_DRIVING_M = 0.01  # by which ways keep farther from obstacles than the shield
_SLOW = 2.0  # the time limit over the time of the longest way at full speed
_AGE_S = 1.0
_OBSERVATION = Observation("way_position_world", "way_position_world")


@dataclass(frozen=True, kw_only=True)
class CrossingMap(GoalScenario):
    """Implements `Scenario`."""

    drive_m: float  # how far ways keep from obstacles
    observation: Observation = _OBSERVATION
    name: str = "crossing_map"

    @classmethod
    def create(cls, spec: RobotSpec, shield: ProjectionParameters) -> Self:
        """Return the scenario for a kind of ground robot, without obstacles.

        Raises:
            TestudoError: the robot flies.
        """
        check_on_the_ground(cls.name, spec)
        cell_m = shield.separation_m + 2 * shield.wall_m + _PASSING_M
        made = cls.in_arena(
            square_arena(spec, CELLS * cell_m / 2, 0.0), spec, shield, drive_m=shield.wall_m + _DRIVING_M
        )
        return made.with_obstacles(())

    @property
    def cell_m(self) -> float:
        """Return the width of the narrowest corridor of a map [m]."""
        return (self.arena.high_world[0] - self.arena.low_world[0]) / CELLS

    @property
    def task_signals(self) -> tuple[Signal, ...]:
        """See `Scenario.task_signals`."""
        return (
            *super().task_signals,
            Signal("way_position_world", (2,), "m", "world", _AGE_S),
            Signal("ranges", (RAYS,), "cells", "body", _AGE_S),
            *entity_signals("obstacle", POINTS, max_age_s=_AGE_S),
        )

    def map_obstacles(self, name: str) -> tuple[Obstacle, ...]:
        """Return the obstacles of a map NAME or NAME:SEED for this robot; see `testudo_sim.maps.named_maps`."""
        return map_obstacles(name, self.arena.high_world[0] - self.arena.low_world[0])

    def with_obstacles(self, obstacles: tuple[Obstacle, ...]) -> Self:
        """Return the same scenario with obstacles, and time for the longest way among them."""
        made = super().with_obstacles(obstacles)
        longest_s = made.ways.longest_m / self.spec.control_point_speed_m_s
        return replace(made, horizon_s=_SLOW * longest_s)

    @property
    def ways(self) -> Ways:
        """Return the ways on the map; raises `TestudoError` if no cell is free."""
        return ways_on(self.arena, CELLS, self.drive_m, max(self.room_m, self.drive_m))

    def own_start(self, key: jax.Array, team_size: int) -> StartState:
        """Draw starts and goals among the free cells that are connected."""
        cells = self.ways.nodes_world[self.ways.goals]
        if team_size > len(cells):
            raise TestudoError(f"crossing_map: {team_size} robots do not fit: {len(cells)} free cells; use another map")
        grid = Grid(cells, np.zeros(2, np.float32))
        first, second, turn = jax.random.split(key, 3)
        starts, goals = (grid.draw(k, jnp.zeros(len(cells)), jnp.zeros((2, team_size))) for k in (first, second))
        return StartState(starts, yaws(turn, self.spec, team_size), GoalTask(goals))

    def signals(self, task: GoalTask, scene: Scene) -> Mapping[str, jax.Array]:
        """See `Scenario.signals`: the goal, the way to it, ranges in cells, and the nearest points of obstacles."""
        place, seen_m = scene.robots.position_world, _SEEN_CELLS * self.cell_m
        points, near = nearest_points(self.arena, place, POINTS, seen_m)
        ranges = ray_ranges(self.arena, place, scene.robots.yaw, RAYS, seen_m)
        return {
            "goal_world": task.goal_world,
            "way_position_world": self.ways.towards(place, task.goal_world)[0],
            "ranges": ranges / self.cell_m,
            "obstacle_position_world": points,
            "obstacle_valid": near[None],
        }

    def advance(self, task: GoalTask, before: Scene, after: Scene, keys: jax.Array) -> TaskStep:
        """See `Scenario.advance`: as with goals in the open, progress is that along the way.

        ``arrived`` counts robots that come to their goals, less those that leave them: over an episode, how many are
        there at its end, or were at its beginning.
        """
        step = super().advance(task, before, after, keys)
        left_m = [self.ways.towards(scene.robots.position_world, task.goal_world)[1] for scene in (before, after)]
        there = [self.distance(task, scene.robots) < self.tolerance_m for scene in (before, after)]
        arrived = jnp.sum(there[1], axis=0) - jnp.sum(there[0], axis=0)
        terms = {**step.terms, "progress": (left_m[0] - left_m[1]) / self.full_step_m}
        return replace(step, terms=terms, metrics={"arrived": arrived.astype(jnp.float32)})

    def nominal_world(self, task: GoalTask, scene: Scene) -> jax.Array:
        """See `Scenario.nominal_world`: along the shortest way."""
        target, left_m = self.ways.towards(scene.robots.position_world, task.goal_world)
        velocity = straight_to(target, scene.robots.position_world, 1e-3, self.spec.control_point_speed_m_s)
        return velocity * jnp.minimum(left_m / self.full_step_m, 1.0)
