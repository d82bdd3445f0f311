"""`foraging`: robots of different levels gather at resources that need their levels together.

The task of that name of the Robotarium suite: robot i has level i; the resources are foraged once robots within 0.3 m
have their level together. The reward of all is the level that was foraged. The first resource needs the whole team and
each further one a robot less, so that a team that splits badly waits for ever.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from testudo_deploy.contract.contract import Signal
from testudo_sim.physics.scene import Scene
from testudo_sim.scenarios.goal_scenario import straight_to
from testudo_sim.scenarios.robotarium_task import (
    RobotariumTask,
    distances,
    entity_signals,
    equal_terms,
    for_all,
)
from testudo_sim.scenarios.roles import Role, Roles, trait_values
from testudo_sim.scenarios.scenario import StartState, TaskStep
from testudo_sim.scenarios.symmetry import Symmetry, symmetries_of

RESOURCES = 2
_REACH_M = 0.3
_ROLES = Roles((Role("forager", {"level": float}),))  # robot i has level i
_AGE_S = 3.0  # resources do not move: knowledge of them may be old


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ForagingTask:
    """The resources and the levels of the robots."""

    resource_world: jax.Array  # (2, K, E) [m]
    level: jax.Array  # (K, E): needed
    left: jax.Array  # (K, E): 1 until it is foraged, then 0
    traits: dict[str, jax.Array]  # of the robots: level (N, E)


@dataclass(frozen=True, kw_only=True)
class Foraging(RobotariumTask):
    """Implements `Scenario`."""

    roles: Roles = _ROLES
    name: str = "foraging"

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        """Return those of the arena: all places have the same worth."""
        return symmetries_of(self.arena)

    @property
    def task_signals(self) -> tuple[Signal, ...]:
        """See `Scenario.task_signals`."""
        return (
            *self.roles.signals,
            *entity_signals("resource", RESOURCES, ("level", 1, ""), max_age_s=_AGE_S),
        )

    def start(self, key: jax.Array, team_size: int) -> StartState:
        """See `Scenario.start`."""
        where, turn, order = jax.random.split(key, 3)
        places = self.places(where, team_size + RESOURCES)
        traits = self.roles.traits(team_size, self.name)
        own = traits["level"]
        # the levels of all robots from the k-th on
        needed = jnp.stack([jnp.sum(own[min(k, team_size - 1) :]) for k in range(RESOURCES)])
        task = ForagingTask(places[:, team_size:], jax.random.permutation(order, needed), jnp.ones(RESOURCES), traits)
        return StartState(places[:, :team_size], self.yaws(turn, team_size), task)

    def signals(self, task: ForagingTask, scene: Scene) -> Mapping[str, jax.Array]:
        """See `Scenario.signals`."""
        team = scene.robots.yaw.shape[0]
        return {
            **trait_values(task.traits),
            "resource_position_world": for_all(task.resource_world, team),
            "resource_valid": for_all(task.left[None], team),
            "resource_level": for_all(task.level[None], team),
        }

    def advance(self, task: ForagingTask, before: Scene, after: Scene, keys: jax.Array) -> TaskStep:
        """See `Scenario.advance`; success: all resources are foraged."""
        near = distances(after.robots.position_world, task.resource_world) < _REACH_M * self.scale
        together = jnp.sum(jnp.where(near, task.traits["level"][:, None], 0.0), axis=0)
        foraged = jnp.where(together >= task.level - 1e-3, task.left, 0.0)
        left = task.left - foraged
        terms = equal_terms(after.robots.yaw.shape[0], forage=jnp.sum(foraged * task.level, axis=0))
        counts = {"foraged": jnp.sum(foraged, axis=0)}
        return TaskStep(replace(task, left=left), terms, jnp.all(left == 0, axis=0), counts)

    def nominal_world(self, task: ForagingTask, scene: Scene) -> jax.Array:
        """See `Scenario.nominal_world`: all to the resource that is nearest to them together, then to the next."""
        place = scene.robots.position_world
        total = jnp.sum(distances(place, task.resource_world), axis=0) + 1e3 * (1 - task.left)
        chosen = jnp.argmin(total, axis=0)[None] == jnp.arange(total.shape[0])[:, None]
        target = jnp.sum(jnp.where(chosen, task.resource_world, 0.0), axis=1)
        return straight_to(target[:, None], place, self.step_m, self.spec.control_point_speed_m_s)
