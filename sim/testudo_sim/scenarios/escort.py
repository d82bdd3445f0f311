"""`escort`: every drone stays above its own robot on the ground, which drives from place to place.

The policy controls the drones; its goal is a moving place. In a run the robots on the ground have the policy
`navigation`; here they are points that drive straight to their goals. Arena: the walls of `navigation`, and a floor
above all ground robots (`testudo_deploy.fleet.policy_groups`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from testudo_deploy.contract.contract import Signal
from testudo_deploy.shield.arena import Arena
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import MotionState
from testudo_hardware.spec import RobotSpec
from testudo_plant.worlds.robot_bodies import Box
from testudo_sim.physics.scene import Scene
from testudo_sim.scenarios.goal_scenario import (
    ROBOTARIUM,
    SPAWN_EDGE_M,
    Grid,
    decision_ticks,
    goal_signal,
    spawn_box,
    straight_to,
)
from testudo_sim.scenarios.scenario import Observation, StartState, TaskStep

_FLOOR_M, _HEIGHT_M, _CEILING_M = 0.4, 1.0, 2.0
_ROOM_M = 0.1
_LEADER_M_S = (0.05, 0.2)  # speeds of the robots on the ground; 0.2 m/s is the top speed of those of the Robotarium
_NEAR_M = 0.5  # distance from which the cost of distance is constant
_OBSERVATION = Observation("goal_world", "goal_world")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EscortTask:
    """Positions and goals of the robots on the ground."""

    leader_world: jax.Array  # (2, N, E) [m]
    goal_world: jax.Array  # (2, N, E) [m]: of the leaders
    speed_m_s: jax.Array  # (N, E): of the leaders


@dataclass(frozen=True)
class Escort:
    """Implements `Scenario`, for drones."""

    arena: Arena
    grid: Grid
    speed_m_s: float  # of the drones; scales the reward for progress
    decision_s: float
    decision_ticks: int
    task_signals: tuple[Signal, ...]
    horizon_s: float = 60.0
    height_m: float = _HEIGHT_M  # height of a drone above the ground
    tolerance_m: float = 0.15
    name: str = "escort"
    boxes: tuple[Box, ...] = ()
    observation: Observation = _OBSERVATION

    @classmethod
    def create(cls, spec: RobotSpec, shield: ProjectionParameters) -> "Escort":
        """Return the scenario for a kind of drone.

        Raises:
            TestudoError: the robot does not fly.
        """
        if spec.dimension != 3:
            raise TestudoError(
                f"escort: found {spec.name}, which drives on the ground; expected a drone, for example --robot "
                "crazyflie_2x; the robots on the ground learn `navigation`"
            )
        grid = Grid.create(*spawn_box(ROBOTARIUM, SPAWN_EDGE_M), shield.separation_m + _ROOM_M)
        ticks = decision_ticks(spec, 0.2)
        arena = Arena((*ROBOTARIUM.low_world, _FLOOR_M), (*ROBOTARIUM.high_world, _CEILING_M))
        return cls(arena, grid, spec.control_point_speed_m_s, ticks * spec.control_period_s, ticks, (goal_signal(3),))

    def start(self, key: jax.Array, team_size: int) -> StartState:
        """See `Scenario.start`: drones stand above their leaders."""
        cells = len(self.grid.points_world)
        if team_size > cells:
            raise TestudoError(
                f"escort: {team_size} drones do not fit: {cells} places in the arena; use a smaller team"
            )
        first, second, noise, quick = jax.random.split(key, 4)
        shifts = jax.random.uniform(noise, (2, 2, team_size), minval=-1.0, maxval=1.0)
        weights = jnp.zeros(cells)
        leaders, goals = (self.grid.draw(k, weights, shift) for k, shift in zip((first, second), shifts, strict=True))
        speed = jax.random.uniform(quick, (team_size,), minval=_LEADER_M_S[0], maxval=_LEADER_M_S[1])
        place = jnp.concatenate([leaders, jnp.full((1, team_size), self.height_m)])
        return StartState(place, jnp.zeros(team_size), EscortTask(leaders, goals, speed))

    def for_training(self) -> "Escort":
        """See `Scenario.for_training`: the same."""
        return self

    def signals(self, task: EscortTask, scene: Scene) -> Mapping[str, jax.Array]:
        """See `Scenario.signals`."""
        return {"goal_world": self._stations(task)}

    def advance(self, task: EscortTask, before: Scene, after: Scene, keys: jax.Array) -> TaskStep:
        """See `Scenario.advance`: leaders drive on; progress to the station, a cost of distance, a bonus for success.

        Success: all leaders have arrived, and every drone that has not failed for good is above its own.
        """
        way = task.goal_world - task.leader_world
        left = jnp.sqrt(jnp.sum(way**2, axis=0))
        share = jnp.minimum(task.speed_m_s * self.decision_s / jnp.maximum(left, 1e-6), 1.0)
        moved = replace(task, leader_world=task.leader_world + share * way)
        distance = self.distance(moved, after.robots)
        progress = (self.distance(task, before.robots) - distance) / (self.speed_m_s * self.decision_s)
        away = jnp.clip((distance - self.tolerance_m) / _NEAR_M, 0.0, 1.0)
        arrived = (1 - share) * left < self.tolerance_m / 10
        success = jnp.all(arrived, axis=0) & after.all_left(distance < self.tolerance_m)
        bonus = jnp.broadcast_to(jnp.where(success, 5.0, 0.0), distance.shape)
        return TaskStep(moved, {"progress": progress, "away": -0.1 * away, "success": bonus}, success)

    def nominal_world(self, task: EscortTask, scene: Scene) -> jax.Array:
        """See `Scenario.nominal_world`: straight to the station."""
        return straight_to(
            self._stations(task), scene.robots.position_world, self.speed_m_s * self.decision_s, self.speed_m_s
        )

    def distance(self, task: EscortTask, motion: MotionState) -> jax.Array:
        """Return the distance of every drone to its station (N, E) [m]."""
        return jnp.sqrt(jnp.sum((self._stations(task) - motion.position_world) ** 2, axis=0))

    def _stations(self, task: EscortTask) -> jax.Array:
        height = jnp.full_like(task.leader_world[:1], self.height_m)
        return jnp.concatenate([task.leader_world, height])
