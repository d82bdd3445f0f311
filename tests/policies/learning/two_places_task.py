"""A task for two robots with one reward for the team: each must go to its own place, to its left or right.

A robot's part in the reward is hidden by that of the other, so that a learner that does not take the value of the team
apart learns slowly, or leaves one robot idle (Sunehag et al., 2018).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from tests.policies.learning.guide_task import in_task

from testudo_deploy.contract.contract import Signal
from testudo_policies.learning.builder import TrainingComponents, build
from testudo_policies.train_config import TrainConfig
from testudo_sim.physics.scene import Scene
from testudo_sim.scenarios.robotarium_task import RobotariumTask
from testudo_sim.scenarios.scenario import StartState, TaskStep
from testudo_sim.scenarios.symmetry import MIRROR_X, Symmetry

_STARTS = ((-0.8, 0.0), (0.8, 0.0))  # [m]
_AWAY_M = 0.45  # of a place from the robot's start
_REACH_M = 0.15
OPTIONS = TrainConfig(
    scenario="discovery",  # of the same base; replaced by the task
    team_size=2,
    memory=0,
    width=32,
    decisions=64 * 16 * 60,
    worlds=64,
    rollout=16,
    epochs=2,
    minibatches=4,
    learning_rate=2e-3,
    max_gradient=10.0,
    discount=0.9,
    replay=30_000,
    task_messages=False,
)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Places:
    """Where the robots must go."""

    world: jax.Array  # (2, N, E) [m]


@dataclass(frozen=True, kw_only=True)
class TwoPlacesTask(RobotariumTask):
    """Implements `Scenario` for two robots."""

    name: str = "two_places"
    symmetries: tuple[Symmetry, ...] = (MIRROR_X,)  # not that in which left becomes right, as a clue stays as it is

    @property
    def task_signals(self) -> tuple[Signal, ...]:
        """On which side the robot's place is, 1 or -1."""
        return (Signal("clue", (1,), "", "", 3.0),)

    def start(self, key: jax.Array, team_size: int) -> StartState:
        """Each robot has a place of its own."""
        side = jax.random.bernoulli(key, shape=(2,)) * 2.0 - 1.0
        starts = jnp.array(_STARTS).T
        places = starts + _AWAY_M * jnp.stack([jnp.zeros(2), side])
        return StartState(starts, jnp.zeros(team_size), Places(places))

    def signals(self, task: Places, scene: Scene) -> Mapping[str, jax.Array]:
        """See `task_signals`."""
        return {"clue": task.world[None, 1] / _AWAY_M}

    def advance(self, task: Places, before: Scene, after: Scene, keys: jax.Array) -> TaskStep:
        """Both are rewarded for the way of the team, and a success."""
        was, now = (jnp.linalg.norm(scene.robots.position_world - task.world, axis=0) for scene in (before, after))
        there = jnp.all(now < _REACH_M, axis=0)
        way = jnp.sum(was - now, axis=0)
        return TaskStep(task, {"nearer": jnp.stack([way] * 2), "there": jnp.stack([1.0 * there] * 2)}, there, {})

    def nominal_world(self, task: Places, scene: Scene) -> jax.Array:
        """Nobody moves."""
        return jnp.zeros_like(scene.robots.position_world)


def components_of(algorithm: str, **options: object) -> TrainingComponents:
    """Return the parts of a training in this task."""
    return in_task(build(replace(OPTIONS, algorithm=algorithm, **options)), TwoPlacesTask)
