"""`pickup_delivery`: robots carry parcels from shelves in the west to stations in the east, without an end.

Lifelong multi-agent pickup and delivery in a free arena in place of a grid world. A robot that reaches its place gets
the next one: a station once it has loaded, a shelf once it has delivered. No two robots have the same place at a time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np

from testudo_deploy.contract.contract import NEIGHBOURS, Signal
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec
from testudo_sim.physics.scene import Scene
from testudo_sim.scenarios.goal_scenario import (
    DECISION_S,
    SPAWN_EDGE_M,
    Grid,
    decision_ticks,
    spacing_m,
    spawn_box,
    straight_to,
)
from testudo_sim.scenarios.robotarium_task import RobotariumTask
from testudo_sim.scenarios.scenario import Observation, StartState, TaskStep

_ZONE_COLUMNS = 2  # of the grid of places: shelves, and as many of stations
_TOLERANCE_M = 0.1
_HORIZON_S = 100.0
_DELIVERED = 2.0  # reward of the robot that delivers
_AGE_S = 2.0
_OBSERVATION = Observation("goal_world", "goal_world")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DeliveryTask:
    """Where each robot drives, and whether it carries a parcel there."""

    place: jax.Array  # (N, E) int: number of the place, shelves first
    carries: jax.Array  # (N, E): 0 or 1


@dataclass(frozen=True, kw_only=True)
class PickupDelivery(RobotariumTask):
    """Implements `Scenario`."""

    observation: Observation = _OBSERVATION
    name: str = "pickup_delivery"

    @classmethod
    def create(cls, spec: RobotSpec, shield: ProjectionParameters) -> Self:
        """Return the task for a kind of ground robot; see `RobotariumTask.create`."""
        made = super().create(spec, shield)
        ticks = decision_ticks(spec, DECISION_S)
        return replace(made, spacing_m=spacing_m(shield), decision_ticks=ticks, horizon_s=_HORIZON_S)

    @property
    def task_signals(self) -> tuple[Signal, ...]:
        """See `Scenario.task_signals`."""
        return (
            Signal("goal_world", (2,), "m", "world", _AGE_S),
            Signal("carries", (1,), "0 or 1", "", _AGE_S),
            Signal("neighbour_carries", (NEIGHBOURS, 1), "0 or 1", "", _AGE_S),
        )

    def start(self, key: jax.Array, team_size: int) -> StartState:
        """See `Scenario.start`: empty robots, each with a shelf of its own."""
        where, turn, shelves = jax.random.split(key, 3)
        half = len(self._places_world()) // 2
        if team_size > half:
            raise TestudoError(f"{self.name}: {team_size} robots, expected at most {half}, as there are shelves")
        place = jax.random.permutation(shelves, half)[:team_size]
        task = DeliveryTask(place, jnp.zeros(team_size))
        return StartState(self.places(where, team_size), self.yaws(turn, team_size), task)

    def signals(self, task: DeliveryTask, scene: Scene) -> Mapping[str, jax.Array]:
        """See `Scenario.signals`."""
        return {"goal_world": self._goal_world(task), "carries": task.carries[None]}

    def advance(self, task: DeliveryTask, before: Scene, after: Scene, keys: jax.Array) -> TaskStep:
        """See `Scenario.advance`; the episode lasts to its time limit."""
        goal = self._goal_world(task)
        first, last = (_distance(goal, scene.robots.position_world) for scene in (before, after))
        there = last < _TOLERANCE_M * self.scale
        delivered = jnp.where(there, task.carries, 0.0)
        carries = jnp.where(there, 1 - task.carries, task.carries)
        half = len(self._places_world()) // 2
        drawn = jax.vmap(_new_places, in_axes=(0, -1, -1, -1, None), out_axes=-1)
        place = jnp.where(there, drawn(keys, task.place, there, carries > 0, half), task.place)
        terms = {"progress": (first - last) / self.step_m, "delivered": _DELIVERED * delivered}
        return TaskStep(DeliveryTask(place, carries), terms, None, {"deliveries": jnp.sum(delivered, axis=0)})

    def nominal_world(self, task: DeliveryTask, scene: Scene) -> jax.Array:
        """See `Scenario.nominal_world`: straight to the own place."""
        place, speed = scene.robots.position_world, self.spec.control_point_speed_m_s
        return straight_to(self._goal_world(task), place, self.step_m, speed)

    def _goal_world(self, task: DeliveryTask) -> jax.Array:
        return jnp.moveaxis(jnp.asarray(self._places_world())[task.place], -1, 0)

    def _places_world(self) -> np.ndarray:
        """Return the shelves, and then as many stations (2 K, 2) [m]."""
        low, high = spawn_box(self.arena, [self.scale * x for x in SPAWN_EDGE_M])
        cells = Grid.create(low, high, self.spacing_m).points_world  # by column, from the west
        column = int(np.sum(cells[:, 0] == cells[0, 0]))
        return np.concatenate([cells[: _ZONE_COLUMNS * column], cells[-_ZONE_COLUMNS * column :]])


def _distance(goal_world: jax.Array, place_world: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.sum((goal_world - place_world) ** 2, axis=0))


def _new_places(key: jax.Array, place: jax.Array, there: jax.Array, carries: jax.Array, half: int) -> jax.Array:
    """Draw a place (N,) for each robot that arrived, a station if it carries, distinct from all others' places.

    A zone has at least as many places as there are robots, so that those which arrive find enough free ones.
    """
    taken = jnp.zeros(2 * half).at[place].max(1.0)
    order = jnp.argsort((taken + jax.random.uniform(key, taken.shape)).reshape(2, half), axis=1)
    shelf, station = (
        order[zone, jnp.maximum(jnp.cumsum(there & (carries == bool(zone))) - 1, 0)] + zone * half for zone in (0, 1)
    )
    return jnp.where(carries, station, shelf)
