"""`warehouse`: robots of two colours carry loads across each other's way.

The task of that name of the Robotarium suite. At the right end of the arena a robot loads, at the left end it unloads;
the upper half of the right end and the lower half of the left end are red, the others green, and a robot may use those
of its colour only. Reward of all: 1 for a robot that loads, 3 for one that unloads.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from testudo_deploy.contract.contract import Signal
from testudo_sim.physics.scene import Scene
from testudo_sim.scenarios.goal_scenario import straight_to
from testudo_sim.scenarios.robotarium_task import RobotariumTask, equal_terms, own_and_peers
from testudo_sim.scenarios.roles import Role, Roles, trait_values
from testudo_sim.scenarios.scenario import StartState, TaskStep

_ZONE_M = 0.5  # width of the zones
_LOADED, _UNLOADED = 1.0, 3.0  # rewards
_AGE_S = 1.0
# colour: where the loading zone is, along y
_ROLES = Roles((Role("green", {"colour": -1.0}), Role("red", {"colour": 1.0})))
_LANE_M = 0.25  # hand-written: distance of the targets from the middle line


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class WarehouseTask:
    """Colours and loads."""

    loaded: jax.Array  # (N, E): 0 or 1
    traits: dict[str, jax.Array]  # of the robots: colour (N, E), 1 red, -1 green


@dataclass(frozen=True, kw_only=True)
class Warehouse(RobotariumTask):
    """Implements `Scenario`."""

    roles: Roles = _ROLES
    name: str = "warehouse"
    steps: int = 70

    @property
    def task_signals(self) -> tuple[Signal, ...]:
        """See `Scenario.task_signals`."""
        return (*self.roles.signals, *own_and_peers("loaded", "0 or 1", _AGE_S))

    def start(self, key: jax.Array, team_size: int) -> StartState:
        """See `Scenario.start`."""
        where, turn = jax.random.split(key)
        task = WarehouseTask(jnp.zeros(team_size), self.roles.traits(team_size, self.name))
        return StartState(self.places(where, team_size), self.yaws(turn, team_size), task)

    def signals(self, task: WarehouseTask, scene: Scene) -> Mapping[str, jax.Array]:
        """See `Scenario.signals`."""
        return {**trait_values(task.traits), "loaded": task.loaded[None]}

    def advance(self, task: WarehouseTask, before: Scene, after: Scene, keys: jax.Array) -> TaskStep:
        """See `Scenario.advance`; the episode lasts to its time limit."""
        x, y = after.robots.position_world
        edge = self.arena.high_world[0] - _ZONE_M * self.scale
        colour = task.traits["colour"]
        loads = (x > edge) & (y * colour > 0) & (task.loaded == 0)
        unloads = (x < -edge) & (y * colour < 0) & (task.loaded == 1)
        loaded, delivered = (jnp.sum(jnp.where(each, 1.0, 0.0), axis=0) for each in (loads, unloads))
        terms = equal_terms(x.shape[0], loaded=_LOADED * loaded, unloaded=_UNLOADED * delivered)
        next_task = replace(task, loaded=jnp.where(loads, 1.0, jnp.where(unloads, 0.0, task.loaded)))
        return TaskStep(next_task, terms, None, {"deliveries": delivered})

    def nominal_world(self, task: WarehouseTask, scene: Scene) -> jax.Array:
        """See `Scenario.nominal_world`: straight to the other zone of the colour."""
        side = jnp.where(task.loaded > 0, -1.0, 1.0)
        x = side * (self.arena.high_world[0] - _ZONE_M * self.scale / 2)
        y = side * task.traits["colour"] * self.scale * _LANE_M
        place = scene.robots.position_world
        return straight_to(jnp.stack([x, y]), place, self.step_m, self.spec.control_point_speed_m_s)
