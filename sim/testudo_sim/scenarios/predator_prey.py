"""`predator_prey`: robots tag a prey that moves faster than they do and flees from the nearest of them.

The task of that name of the Robotarium suite. The prey is no robot: at every decision it takes the step of up to 0.3 m,
of eight directions and four lengths, after which the nearest predator is farthest from it. A predator within 0.2 m tags
it, for a reward of 10, as often as that happens.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from testudo_deploy.contract.contract import Signal
from testudo_sim.physics.scene import Scene
from testudo_sim.scenarios.goal_scenario import straight_to
from testudo_sim.scenarios.robotarium_task import RobotariumTask, distances, equal_terms, for_all
from testudo_sim.scenarios.scenario import Observation, StartState, TaskStep

# an untrained policy chases the prey: tags are too rare for one that does not
_OBSERVATION = Observation("prey_position_world", "prey_position_world")
_TAG_M, _TAG_REWARD = 0.2, 10.0
_STEPS_M = np.linspace(0.05, 0.3, 4)
_DIRECTIONS = 8
_WALL_M = 0.1  # the prey's least distance from a wall


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PreyTask:
    """Where the prey is."""

    prey_world: jax.Array  # (2, E) [m]


@dataclass(frozen=True, kw_only=True)
class PredatorPrey(RobotariumTask):
    """Implements `Scenario`."""

    observation: Observation = _OBSERVATION
    name: str = "predator_prey"

    @property
    def task_signals(self) -> tuple[Signal, ...]:
        """See `Scenario.task_signals`."""
        return (Signal("prey_position_world", (2,), "m", "world", self.decision_ticks * self.spec.control_period_s),)

    def start(self, key: jax.Array, team_size: int) -> StartState:
        """See `Scenario.start`."""
        where, turn = jax.random.split(key)
        places = self.places(where, team_size + 1)
        return StartState(places[:, :team_size], self.yaws(turn, team_size), PreyTask(places[:, team_size]))

    def signals(self, task: PreyTask, scene: Scene) -> Mapping[str, jax.Array]:
        """See `Scenario.signals`."""
        return {"prey_position_world": for_all(task.prey_world, scene.robots.yaw.shape[0])}

    def advance(self, task: PreyTask, before: Scene, after: Scene, keys: jax.Array) -> TaskStep:
        """See `Scenario.advance`; the episode lasts to its time limit."""
        prey = self._fled(task.prey_world, before.robots.position_world)
        nearest = jnp.min(distances(after.robots.position_world, prey[:, None])[:, 0], axis=0)
        tagged = jnp.where(nearest < _TAG_M * self.scale, 1.0, 0.0)
        terms = equal_terms(after.robots.yaw.shape[0], tag=_TAG_REWARD * tagged)
        return TaskStep(PreyTask(prey), terms, None, {"tags": tagged})

    def nominal_world(self, task: PreyTask, scene: Scene) -> jax.Array:
        """See `Scenario.nominal_world`: straight at the prey."""
        place = scene.robots.position_world
        return straight_to(task.prey_world[:, None], place, self.step_m, self.spec.control_point_speed_m_s)

    def _fled(self, prey_world: jax.Array, predators_world: jax.Array) -> jax.Array:
        """Return the prey's next place (2, E) [m]."""
        angle = 2 * math.pi * np.arange(_DIRECTIONS) / _DIRECTIONS
        steps = np.stack([np.outer(np.cos(angle), _STEPS_M).ravel(), np.outer(np.sin(angle), _STEPS_M).ravel()])
        low, high = (np.array(side)[:, None, None] for side in (self.arena.low_world, self.arena.high_world))
        wall_m = _WALL_M * self.scale
        tried = jnp.clip(prey_world[:, None] + self.scale * steps[:, :, None], low + wall_m, high - wall_m)
        least = jnp.min(distances(predators_world, tried), axis=0)
        best = jnp.argmax(least, axis=0)[None] == jnp.arange(least.shape[0])[:, None]
        return jnp.sum(jnp.where(best, tried, 0.0), axis=1)
