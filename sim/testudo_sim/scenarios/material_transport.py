"""`material_transport`: fast robots with small loads and slow ones with large loads clear two places.

The task of that name of the Robotarium suite. Material lies in a circle in the middle of the arena and in a zone at its
right end; robots drop it in the zone at the left end. The first half of the team carries 5 units with way-points 0.45 m
away, the other half 15 with way-points 0.15 m away. Reward of all: 0.25 for a robot that loads, 0.75 for one that drops
its load, and -0.1 for each decision while anything is left.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from testudo_deploy.contract.contract import Signal
from testudo_sim.physics.scene import Scene
from testudo_sim.scenarios.goal_scenario import straight_to
from testudo_sim.scenarios.robotarium_task import (
    RobotariumTask,
    entity_signals,
    equal_terms,
    for_all,
    own_and_peers,
)
from testudo_sim.scenarios.roles import Role, Roles, trait_values
from testudo_sim.scenarios.scenario import Observation, StartState, TaskStep

_OBSERVATION = Observation(speed="speed_share")
_ROLES = Roles(
    (
        Role("fast", {"capacity": 5.0, "speed_share": 1.0}),
        Role("slow", {"capacity": 15.0, "speed_share": 0.15 / 0.45}),  # by the way-points of the suite [m]
    )
)
_MEAN, _DEVIATION = (75.0, 15.0), (10.0, 4.0)  # of the material in the middle, and at the right end
_LEAST = 0.25  # share of the material at difficulty 0
_CIRCLE_M, _ZONE_M = 0.35, 0.5  # radius in the middle, width at the ends
_LOADED, _DROPPED, _WAITING = 0.25, 0.75, -0.1  # rewards
_LANES_M = 0.6  # hand-written: the outermost lanes
_SPREAD = 1 / 4  # of the spawn area: where the robots start
_AGE_S = 2.0


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class MaterialTask:
    """The material, and what robots carry."""

    left: jax.Array  # (2, E): in the middle and at the right end
    loaded: jax.Array  # (N, E): 0 or 1
    traits: dict[str, jax.Array]  # of the robots: capacity (N, E), speed_share (N, E)


@dataclass(frozen=True, kw_only=True)
class MaterialTransport(RobotariumTask):
    """Implements `Scenario`."""

    observation: Observation = _OBSERVATION
    roles: Roles = _ROLES
    name: str = "material_transport"
    difficulty: float | jax.Array = 1.0  # see `at`
    steps: int = 70
    step_s: float = 1.98

    @property
    def task_signals(self) -> tuple[Signal, ...]:
        """See `Scenario.task_signals`."""
        return (
            *self.roles.signals,
            *own_and_peers("loaded", "0 or 1", _AGE_S),
            *entity_signals("zone", len(_MEAN), ("load", 1, ""), max_age_s=_AGE_S),
        )

    def at(self, difficulty: float | jax.Array) -> "MaterialTransport":
        """Return the task with less material: a quarter of it at difficulty 0, all of it at 1."""
        return replace(self, difficulty=difficulty)

    def start(self, key: jax.Array, team_size: int) -> StartState:
        """See `Scenario.start`."""
        where, turn, amount = jax.random.split(key, 3)
        left = jnp.array(_MEAN) + jnp.array(_DEVIATION) * jax.random.normal(amount, (len(_MEAN),))
        task = MaterialTask(
            jnp.maximum(left, 0.0) * (_LEAST + (1 - _LEAST) * self.difficulty),
            jnp.zeros(team_size),
            self.roles.traits(team_size, self.name),
        )
        return StartState(self.places(where, team_size, _SPREAD), self.yaws(turn, team_size), task)

    def signals(self, task: MaterialTask, scene: Scene) -> Mapping[str, jax.Array]:
        """See `Scenario.signals`; a zone without material is not there."""
        team = scene.robots.yaw.shape[0]
        place = jnp.broadcast_to(self._zones_world[..., None], (2, *task.left.shape))
        return {
            **trait_values(task.traits),
            "loaded": task.loaded[None],
            "zone_position_world": for_all(place, team),
            "zone_valid": for_all(jnp.where(task.left > 0, 1.0, 0.0)[None], team),
            "zone_load": for_all(task.left[None], team),
        }

    def advance(self, task: MaterialTask, before: Scene, after: Scene, keys: jax.Array) -> TaskStep:
        """See `Scenario.advance`; success: nothing is left, and no robot carries any that has not failed for good."""
        place = after.robots.position_world
        edge = self.arena.high_world[0] - _ZONE_M * self.scale
        inside = jnp.stack([jnp.sum(place**2, axis=0) < (_CIRCLE_M * self.scale) ** 2, place[0] > edge])
        loads = inside & (task.left > 0)[:, None] & (task.loaded == 0)
        drops = (place[0] < -edge) & (task.loaded == 1)
        left = jnp.maximum(task.left - jnp.sum(jnp.where(loads, task.traits["capacity"], 0.0), axis=1), 0.0)
        loaded = jnp.where(jnp.any(loads, axis=0), 1.0, jnp.where(drops, 0.0, task.loaded))
        done = jnp.all(left == 0, axis=0) & after.all_left(loaded == 0)
        dropped = jnp.sum(jnp.where(drops, 1.0, 0.0), axis=0)
        terms = equal_terms(
            place.shape[1],
            loaded=_LOADED * jnp.sum(jnp.where(loads, 1.0, 0.0), axis=(0, 1)),
            dropped=_DROPPED * dropped,
            waiting=jnp.where(done, 0.0, _WAITING),
        )
        return TaskStep(replace(task, left=left, loaded=loaded), terms, done, {"dropped": dropped})

    def nominal_world(self, task: MaterialTask, scene: Scene) -> jax.Array:
        """See `Scenario.nominal_world`: fast robots clear the right end first, slow ones the middle.

        Every robot has a lane of its own, the fast ones the outer lanes; with nothing left to load it stays.
        """
        place = scene.robots.position_world
        team, worlds = place.shape[1:]
        share = task.traits["speed_share"]
        lanes = np.array(sorted(np.linspace(-_LANES_M, _LANES_M, team), key=lambda lane: (-abs(lane), lane)))
        lane = jnp.broadcast_to(self.scale * lanes[:, None], (team, worlds))
        middle, right = (jnp.broadcast_to(left > 0, (team, worlds)) for left in task.left)
        to_right = right & ((share == 1) | ~middle)
        _, end = self._zones_world[0]
        inside = self.scale * _CIRCLE_M / 2
        goal_x = jnp.where(task.loaded > 0, -end, jnp.where(to_right, end, 0.0))
        goal_y = jnp.where((task.loaded > 0) | to_right, lane, jnp.clip(lane, -inside, inside))
        stays = (task.loaded == 0) & ~(middle | right)
        target = jnp.where(stays, place, jnp.stack([goal_x, goal_y]))
        speed = share * self.spec.control_point_speed_m_s
        return straight_to(target, place, self.step_m, speed)

    @property
    def _zones_world(self) -> jax.Array:
        """Return the centres (2, 2) [m] of the places with material."""
        end = self.arena.high_world[0] - _ZONE_M * self.scale / 2
        return jnp.array([[0.0, end], [0.0, 0.0]])
