"""`chase`: predators catch a prey that is a robot as they are, learns as they do, and has the opposite reward.

Predator against prey after simple tag of MADDPG (Lowe et al., NeurIPS 2017), with the shield of all robots on. Nobody
can touch anybody: the prey is caught once a predator is within `Chase.catch_m`, which is more than the distance that
the shield keeps. The last robot of the team is the prey; predators are slower. Signs are such that a side has won an
episode if its return is positive.
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
from testudo_sim.scenarios.robotarium_task import RobotariumTask, distances
from testudo_sim.scenarios.roles import Role, Roles, trait_values
from testudo_sim.scenarios.scenario import Observation, StartState, TaskStep

PREDATOR, PREY = "predator", "prey"
_RIVAL = "rival_position_world"
_OBSERVATION = Observation(_RIVAL, speed="speed_share")
_PREDATOR_SPEED = 0.5  # share of full speed
_REACH_M = 0.1  # over the least distance of starts
_CAUGHT, _NEARER = 2.0, 0.2  # rewards: of the catch, and of a metre nearer
_DIRECTIONS = 16  # hand-written prey
_WALL_M = 0.2  # hand-written prey: distance from walls


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ChaseTask:
    """Who is the prey."""

    traits: dict[str, jax.Array]  # of the robots: is_prey, 0 or 1, and speed_share (N, E)


@dataclass(frozen=True, kw_only=True)
class Chase(RobotariumTask):
    """Implements `Scenario`."""

    observation: Observation = _OBSERVATION
    name: str = "chase"
    steps: int = 60
    step_s: float = 0.66

    @property
    def catch_m(self) -> float:
        """Return the distance [m] of two robots at which the prey is caught."""
        return self.spacing_m + self.scale * _REACH_M

    @property
    def roles(self) -> Roles:
        """Return who chases, and who flees: the last robot."""
        slow, fast = {"is_prey": 0.0, "speed_share": _PREDATOR_SPEED}, {"is_prey": 1.0, "speed_share": 1.0}
        return Roles((Role(PREDATOR, slow), Role(PREY, fast, 1)))

    @property
    def task_signals(self) -> tuple[Signal, ...]:
        """See `Scenario.task_signals`."""
        age_s = self.decision_ticks * self.spec.control_period_s
        return (*self.roles.signals, Signal(_RIVAL, (2,), "m", "world", age_s))

    def start(self, key: jax.Array, team_size: int) -> StartState:
        """See `Scenario.start`: of the places that are drawn the prey has the one that is farthest from all others."""
        where, turn = jax.random.split(key)
        traits = self.roles.traits(team_size, self.name)
        places = self.places(where, team_size)
        apart = distances(places[..., None], places[..., None])[..., 0] + 1e3 * jnp.eye(team_size)
        lonely = jnp.argmax(jnp.min(apart, axis=1))
        order = jnp.arange(team_size).at[lonely].set(team_size - 1).at[-1].set(lonely)
        return StartState(places[:, order], self.yaws(turn, team_size), ChaseTask(traits))

    def signals(self, task: ChaseTask, scene: Scene) -> Mapping[str, jax.Array]:
        """See `Scenario.signals`: a predator knows where the prey is, and that where its nearest predator is."""
        place = scene.robots.position_world
        nearest = jnp.argmin(self._apart(scene), axis=0)  # (E,)
        hunter = jnp.take_along_axis(place, nearest[None, None], axis=1)
        rival = jnp.where(task.traits["is_prey"] > 0, hunter, place[:, -1:])
        return {**trait_values(task.traits), _RIVAL: rival}

    def advance(self, task: ChaseTask, before: Scene, after: Scene, keys: jax.Array) -> TaskStep:
        """See `Scenario.advance`; success: the prey is caught.

        Predators have the team's catch and time, and each its own way; the prey has the opposite of their mean.
        """
        was, is_now = self._apart(before), self._apart(after)  # (N - 1, E)
        caught = jnp.min(is_now, axis=0) < self.catch_m

        def opposed(predators: jax.Array) -> jax.Array:
            return jnp.concatenate([predators, -jnp.mean(predators, axis=0, keepdims=True)])

        alike = jnp.ones_like(is_now)
        terms = {
            "caught": opposed(jnp.where(caught, _CAUGHT, 0.0) * alike),
            "time": opposed(jnp.where(caught, 0.0, -1.0 / self.steps) * alike),
            "nearer": opposed(_NEARER / self.scale * (was - is_now)),
        }
        return TaskStep(task, terms, caught)

    def nominal_world(self, task: ChaseTask, scene: Scene) -> jax.Array:
        """See `Scenario.nominal_world`: predators drive straight at the prey.

        The prey takes the step, of 16 directions, after which the nearest predator is farthest, and stays off walls.
        """
        place = scene.robots.position_world
        angle = 2 * math.pi * np.arange(_DIRECTIONS) / _DIRECTIONS
        steps = 2 * self.step_m * np.stack([np.cos(angle), np.sin(angle)])[:, :, None]
        low, high = (np.array(side)[:, None, None] for side in (self.arena.low_world, self.arena.high_world))
        room_m = _WALL_M * self.scale
        tried = jnp.clip(place[:, -1:] + steps, low + room_m, high - room_m)
        best = jnp.argmax(jnp.min(distances(place[:, :-1], tried), axis=0), axis=0)  # (E,)
        flight = jnp.take_along_axis(tried, best[None, None], axis=1)
        target = jnp.concatenate([jnp.broadcast_to(place[:, -1:], place[:, :-1].shape), flight], axis=1)
        speed = task.traits["speed_share"] * self.spec.control_point_speed_m_s
        return straight_to(target, place, self.step_m, speed)

    @staticmethod
    def _apart(scene: Scene) -> jax.Array:
        """Return the distances (N - 1, E) [m] of the predators from the prey."""
        place = scene.robots.position_world
        return distances(place[:, :-1], place[:, -1:])[:, 0]
