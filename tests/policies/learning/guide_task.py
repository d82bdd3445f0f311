"""A task that needs a message: only the guide knows to which of two places the walker must go; both are rewarded.

The robots are farther apart than a policy sees a neighbour, so that the guide's motion says nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from testudo_deploy.contract.contract import Signal
from testudo_policies.evaluation.evaluation import evaluate_policy
from testudo_policies.learning.builder import TrainingComponents, build
from testudo_policies.train_config import TrainConfig
from testudo_sim.physics.scene import Scene
from testudo_sim.scenarios.robot_number import numbered
from testudo_sim.scenarios.robotarium_task import RobotariumTask
from testudo_sim.scenarios.scenario import StartState, TaskStep

_GUIDE, _WALKER = (-1.2, 0.0), (0.7, 0.0)  # starts [m]
_AWAY_M = 0.45  # of a place from the walker's start, to its left or right
_REACH_M = 0.15
_OPTIONS = TrainConfig(
    scenario="discovery",  # of the same base; replaced by the task
    team_size=2,
    memory=0,
    decisions=400_000,
    worlds=128,
    rollout=24,
    epochs=4,
    minibatches=4,
    learning_rate=2e-3,
    discount=0.95,
)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class GuideState:
    """Where the walker must go."""

    place_world: jax.Array  # (2, E) [m]


@dataclass(frozen=True, kw_only=True)
class GuideTask(RobotariumTask):
    """Implements `Scenario` for two robots."""

    name: str = "guide"

    @property
    def task_signals(self) -> tuple[Signal, ...]:
        """On which side the place is, 1 or -1; 0 for the walker, who does not know."""
        return (Signal("clue", (1,), "", "", 3.0),)

    def start(self, key: jax.Array, team_size: int) -> StartState:
        """The walker is in the middle of the places."""
        side = jax.random.bernoulli(key) * 2.0 - 1.0
        starts = jnp.array([_GUIDE, _WALKER]).T
        place = jnp.array(_WALKER) + _AWAY_M * side * jnp.array([0.0, 1.0])
        return StartState(starts, jnp.zeros(team_size), GuideState(place))

    def signals(self, task: GuideState, scene: Scene) -> Mapping[str, jax.Array]:
        """See `task_signals`."""
        side = (task.place_world[1] - _WALKER[1]) / _AWAY_M
        return {"clue": jnp.stack([side, 0 * side])[None]}

    def advance(self, task: GuideState, before: Scene, after: Scene, keys: jax.Array) -> TaskStep:
        """Both are rewarded for the way of the walker towards the place."""
        was, now = (self._distance(task, scene) for scene in (before, after))
        there = now < _REACH_M
        return TaskStep(task, {"nearer": jnp.stack([was - now] * 2)}, there, {})

    def nominal_world(self, task: GuideState, scene: Scene) -> jax.Array:
        """Nobody moves."""
        return jnp.zeros_like(scene.robots.position_world)

    @staticmethod
    def _distance(task: GuideState, scene: Scene) -> jax.Array:
        return jnp.sqrt(jnp.sum((scene.robots.position_world[:, 1] - task.place_world) ** 2, axis=0))


def guide_components(message: int, **options: object) -> TrainingComponents:
    """Return the parts of a training of two robots in this task."""
    return in_task(build(replace(_OPTIONS, message=message, **options)), GuideTask)


def in_task(components: TrainingComponents, kind: type[RobotariumTask]) -> TrainingComponents:
    """Return the parts of a training in a task of a test, with 20 decisions of 8 ticks."""
    task, period_s = kind.create(components.spec, components.shield), components.spec.control_period_s
    task = replace(task, decision_ticks=8, horizon_s=20 * 8 * period_s + 1e-6)
    task = numbered(task, components.config.team_size) if components.agent.groups else task
    return replace(components, environment=replace(components.environment, scenario=task))


def success(components: TrainingComponents, episodes: int = 200) -> float:
    """Train, and return the share of held-out episodes in which the walker arrives."""
    ppo = components.learner
    state, update = ppo.start(jax.random.key(components.config.seed)), jax.jit(ppo.update)
    for _ in range(components.config.updates):
        state, _ = update(state)
    policy = jax.jit(components.agent.policy(state.parameters))
    return evaluate_policy(components.environment, policy, components.config.memory, episodes=episodes).success
