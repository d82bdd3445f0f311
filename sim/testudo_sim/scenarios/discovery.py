"""`discovery`: some robots find landmarks, and others, who cannot see them, tag those that were found.

The task of that name of the Robotarium suite: the first half of the team senses landmarks within 0.45 m, the other half
tags them within 0.25 m. Reward of all: 1 for a landmark that is sensed, 5 for one that is tagged, and -0.05 for each
decision while any is untagged.
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
    distances,
    entity_signals,
    equal_terms,
    for_all,
)
from testudo_sim.scenarios.roles import Role, Roles, trait_values
from testudo_sim.scenarios.scenario import StartState, TaskStep
from testudo_sim.scenarios.symmetry import Symmetry, symmetries_of

LANDMARKS = 6
_SENSE_M, _TAG_M = 0.45, 0.25
_SENSED, _TAGGED, _WAITING = 1.0, 5.0, -0.05  # rewards
_SPREAD = 1 / 3  # of the spawn area: where the robots start
_AGE_S = 3.0  # landmarks do not move: knowledge of them may be old


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DiscoveryTask:
    """The landmarks, and how far robots see and reach."""

    landmark_world: jax.Array  # (2, K, E) [m]
    sensed: jax.Array  # (K, E): 0 or 1
    tagged: jax.Array  # (K, E): 0 or 1
    traits: dict[str, jax.Array]  # of the robots: reach (2, N, E) [m], from which one senses, and tags; 0: it cannot


@dataclass(frozen=True, kw_only=True)
class Discovery(RobotariumTask):
    """Implements `Scenario`."""

    name: str = "discovery"

    @property
    def roles(self) -> Roles:
        """Return who senses and who tags, and from where."""
        senses, tags = (self.scale * _SENSE_M, 0.0), (0.0, self.scale * _TAG_M)
        return Roles((Role("searcher", {"reach": senses}), Role("tagger", {"reach": tags})), {"reach": "m"})

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        """Return those of the arena: all places have the same worth."""
        return symmetries_of(self.arena)

    @property
    def task_signals(self) -> tuple[Signal, ...]:
        """See `Scenario.task_signals`."""
        return (
            *self.roles.signals,
            *entity_signals("landmark", LANDMARKS, ("open", 1, "0 or 1"), max_age_s=_AGE_S),
        )

    def start(self, key: jax.Array, team_size: int) -> StartState:
        """See `Scenario.start`; robots and landmarks are drawn by themselves, so that one may start at another."""
        where, turn, marks = jax.random.split(key, 3)
        none = jnp.zeros(LANDMARKS)
        traits = self.roles.traits(team_size, self.name)
        task = DiscoveryTask(self.places(marks, LANDMARKS), none, none, traits)
        return StartState(self.places(where, team_size, _SPREAD), self.yaws(turn, team_size), task)

    def signals(self, task: DiscoveryTask, scene: Scene) -> Mapping[str, jax.Array]:
        """See `Scenario.signals`: a landmark is known to all robots once one has sensed it."""
        team, known = scene.robots.yaw.shape[0], task.sensed
        return {
            **trait_values(task.traits),
            "landmark_position_world": for_all(known * task.landmark_world, team),
            "landmark_valid": for_all(known[None], team),
            "landmark_open": for_all((known * (1 - task.tagged))[None], team),
        }

    def advance(self, task: DiscoveryTask, before: Scene, after: Scene, keys: jax.Array) -> TaskStep:
        """See `Scenario.advance`; success: all landmarks are tagged."""
        apart = distances(after.robots.position_world, task.landmark_world)
        seen, reached = (jnp.where(jnp.any(apart < reach[:, None], axis=0), 1.0, 0.0) for reach in task.traits["reach"])
        sensed, tagged = jnp.maximum(task.sensed, seen), jnp.maximum(task.tagged, reached)
        new_sensed, new_tagged = jnp.sum(sensed - task.sensed, axis=0), jnp.sum(tagged - task.tagged, axis=0)
        done = jnp.all(tagged > 0, axis=0)
        terms = equal_terms(
            after.robots.yaw.shape[0],
            sensed=_SENSED * new_sensed,
            tagged=_TAGGED * new_tagged,
            waiting=jnp.where(done, 0.0, _WAITING),
        )
        counts = {"sensed": new_sensed, "tagged": new_tagged}
        return TaskStep(replace(task, sensed=sensed, tagged=tagged), terms, done, counts)

    def nominal_world(self, task: DiscoveryTask, scene: Scene) -> jax.Array:
        """See `Scenario.nominal_world`: half of the searching robots sweep each side; the others go to what is found.

        Robots that search drive along the long side of the arena, in a lane of their own, and turn at its ends; those
        that tag go to the nearest landmark that is sensed and not tagged.
        """
        place = scene.robots.position_world
        team, worlds = place.shape[1:]
        # to the nearest open landmark
        open_ = task.sensed * (1 - task.tagged)
        apart = distances(place, task.landmark_world) + 1e3 * (1 - open_[None])
        nearest = jnp.argmin(apart, axis=1)[:, None] == jnp.arange(LANDMARKS)[None, :, None]
        found = jnp.sum(jnp.where(nearest[None], task.landmark_world[:, None], 0.0), axis=2)
        target = jnp.where(jnp.any(open_ > 0, axis=0), found, place)
        # searching: the robot's lane is its share of the width; it turns at the ends by the heading it has
        searching = (team + 1) // 2
        half = np.array(self.arena.high_world) * 0.7
        lane = half[1] * (2 * (np.arange(team) % searching + 0.5) / searching - 1)
        east = jnp.cos(scene.robots.yaw) > 0
        end = jnp.where(jnp.where(jnp.abs(place[0]) > half[0], place[0] < 0, east), 1.2 * half[0], -1.2 * half[0])
        sweep = jnp.stack([end, jnp.broadcast_to(lane[:, None], (team, worlds))])
        searches = task.traits["reach"][0] > 0
        return straight_to(jnp.where(searches, sweep, target), place, self.step_m, self.spec.control_point_speed_m_s)
