"""Study of learning from simulation, real data or both, on a plant that differs from its description.

Each seed has an old policy trained in the described world, a recorded run of it on the plant with exploration noise,
and one fine-tuned policy for each arm. Seeds are vectorised.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.spec import Quantity, RobotSpec, load_robot
from testudo_policies.improve.fine_tuning import FineTuner, RecordedTransitions
from testudo_policies.learning.builder import TrainingComponents, build, make_environment
from testudo_policies.learning.ppo import PPO, TrainState
from testudo_policies.learning.rollout import RolloutState, begin, collect_rollout
from testudo_policies.networks.agent import Agent, AgentParameters
from testudo_policies.train_config import TrainConfig
from testudo_sim.environment import Environment, WorldState

OLD, SIMULATION, REAL, BOTH, H2O, TRUTH = (
    "old policy",
    "simulation",
    "real run",
    "both, trusted alike",
    "both, H2O",
    "simulation of the truth",
)
ARMS: Mapping[str, Mapping[str, Any]] = {
    SIMULATION: {},
    REAL: {"simulate": False},
    BOTH: {"weighted": False},
    H2O: {},
    TRUTH: {},
}
_PIECE = 10  # Updates between two progress reports


@dataclass(frozen=True)
class Plant:
    """Difference between plant and robot file: factors, and additional command delay [s]."""

    speed_scale: float = 0.6
    turn_scale: float = 0.4
    velocity_lag: float = 6.0
    command_delay_s: float = 0.15

    def of(self, spec: RobotSpec) -> RobotSpec:
        """Return the robot with the plant's dynamics for simulation; the parameters of its shield are unchanged."""
        values = {
            "dynamics.speed_scale": self.speed_scale,
            "dynamics.turn_scale": self.turn_scale,
            "dynamics.velocity_lag": self.velocity_lag * spec.velocity_lag_s,
            "dynamics.command_delay": self.command_delay_s + spec.command_delay_s,
        }
        drawn = {
            key: Quantity(value, spec.quantities[key].unit, "the plant of the study", value, value)
            for key, value in values.items()
            if key in spec.quantities
        }
        return replace(spec, quantities={**spec.quantities, **drawn})


@dataclass(frozen=True)
class Budget:
    """Amount of training, recording and evaluation."""

    config: TrainConfig
    seeds: int = 3
    old_updates: int = 60
    updates: int = 40  # Updates of fine-tuning
    recorded_worlds: int = 7
    recorded_pieces: int = 4  # Consecutive rollouts; together longer than the scenario's time limit
    episodes: int = 128

    @property
    def recorded_minutes(self) -> float:
        """Return the total recorded time [min], with 0.33 s for a decision."""
        return self.recorded_worlds * self.recorded_pieces * self.config.rollout * 0.33 / 60


def budget_of(robot: str, *, quick: bool) -> Budget:
    """Return the normal budget, or a small one that only tests that all works."""
    config = TrainConfig(
        robot=robot, team_size=3, memory=0, width=32, worlds=64, rollout=32, minibatches=4, decisions=64 * 32 * 80
    )
    return Budget(config, seeds=2, old_updates=10, updates=10, episodes=32) if quick else Budget(config)


@dataclass(frozen=True)
class MismatchOutcome:
    """Held-out episodes of S seeds on the plant; arrays (S,)."""

    episode_return: jax.Array  # Sum of rewards, mean over robots and episodes
    success: jax.Array
    time_s: jax.Array  # Mean time to success [s]; a failed episode counts as the time limit
    contact_episodes: jax.Array  # Share of episodes with a contact


jax.tree_util.register_dataclass(MismatchOutcome)


class Study:
    """The environments and steps of the study; each step is compiled once for all seeds."""

    def __init__(self, budget: Budget, plant: Plant) -> None:
        self.budget = budget
        self.components: TrainingComponents = build(budget.config)
        spec = load_robot(budget.config.robot)
        self.plant_spec = plant.of(spec)
        self.plant = make_environment(
            "navigation", self.plant_spec, projection_parameters(spec), budget.config.team_size
        )
        price = budget.config.change_price
        self.true_world = replace(self.plant, scenario=self.plant.scenario.for_training(), change_price=price)
        self.recording = replace(self.plant, change_price=price)
        self._keys = jax.vmap(jax.random.key)(jnp.arange(budget.seeds))
        self._started: dict[bool, Callable[[jax.Array], TrainState]] = {}

    def old_policies(self, tell: Callable[[float], None]) -> AgentParameters:
        """Return policies (S, ...) trained in the described world."""
        keys, updates = self._folded(0), self.budget.old_updates
        return self._learn(
            lambda _: PPO(self._config(updates), self.components.agent, self.components.environment),
            self._starts(keys, true_world=False),
            (),
            updates,
            tell,
        )

    def recorded(self, policies: AgentParameters) -> RecordedTransitions:
        """Return recorded transitions of policies (S, ...) on the plant, with exploration noise."""
        return jax.jit(jax.vmap(self._record))(policies, self._folded(1))

    def tuned(
        self, arm: str, policies: AgentParameters, recorded: RecordedTransitions, tell: Callable[[float], None]
    ) -> AgentParameters:
        """Return the policies (S, ...) fine-tuned by an arm."""
        config = self._config(self.budget.updates)
        config = replace(config, learning_rate=0.3 * config.learning_rate)
        world = self.true_world if arm == TRUTH else self.components.environment
        uses_run = arm in {REAL, BOTH, H2O}

        def learner(given: tuple[AgentParameters, RecordedTransitions]) -> FineTuner:
            return FineTuner(
                config,
                self.components.agent,
                world,
                begin=given[0],
                recorded=given[1] if uses_run else None,
                **ARMS[arm],
            )

        keys, given = self._folded(2), (policies, recorded)
        starts = self._starts(keys, true_world=arm == TRUTH)
        starts = jax.jit(jax.vmap(lambda state, key, one: learner(one).with_initial_parameters(state, key)))(
            starts, keys, given
        )
        return self._learn(learner, starts, given, self.budget.updates, tell)

    def outcome(self, policies: AgentParameters) -> MismatchOutcome:
        """Return the outcome of policies (S, ...) on the plant, on the same episodes, without noise."""
        if not hasattr(self, "_outcome"):
            self._outcome = jax.jit(
                jax.vmap(lambda one: _outcome(self.plant, self.components.agent, one, self.budget.episodes))
            )
        return self._outcome(policies)

    def _config(self, updates: int) -> TrainConfig:
        config = self.budget.config
        return replace(config, decisions=updates * config.worlds * config.rollout)

    def _folded(self, number: int) -> jax.Array:
        return jax.vmap(lambda key: jax.random.fold_in(key, number))(self._keys)

    def _starts(self, keys: jax.Array, *, true_world: bool) -> TrainState:
        """Return initial training states (S, ...); equal for all arms of a world, compiled once."""
        if true_world not in self._started:
            world = self.true_world if true_world else self.components.environment
            first = PPO(self._config(self.budget.updates), self.components.agent, world)
            self._started[true_world] = jax.jit(jax.vmap(first.init))
        return self._started[true_world](keys)

    def _learn(
        self, learner: Callable[[Any], PPO], state: TrainState, given: Any, updates: int, tell: Callable[[float], None]
    ) -> AgentParameters:
        def run(state: Any, one: Any) -> Any:
            return jax.lax.scan(lambda current, _: (learner(one).update(current)[0], None), state, length=_PIECE)[0]

        piece = jax.jit(jax.vmap(run))
        for done in range(0, updates, _PIECE):
            tell(done / updates)
            state = jax.block_until_ready(piece(state, given))
        return state.parameters

    def _record(self, policy: AgentParameters, key: jax.Array) -> RecordedTransitions:
        budget, agent = self.budget, self.components.agent

        def piece(state: RolloutState, number: jax.Array) -> tuple[RolloutState, RecordedTransitions]:
            after, batch, _ = collect_rollout(
                agent, self.recording, policy, state, jax.random.fold_in(key, number), budget.config.rollout + 1
            )
            return after, RecordedTransitions.of_rollout(batch, state.hidden)

        # a scan, because a Python loop would compile each rollout
        _, rollouts = jax.lax.scan(
            piece, begin(agent, self.recording, key, budget.recorded_worlds), jnp.arange(budget.recorded_pieces)
        )
        batch, last, weight = jax.tree.map(_concatenate_rollouts, (rollouts.batch, rollouts.last, rollouts.weight))
        return RecordedTransitions(batch, jax.lax.collapse(rollouts.hidden, 0, 2), last, weight)


def _concatenate_rollouts(pieces: jax.Array) -> jax.Array:
    """Return rollouts (P, T, B, ...) as one batch (T, P B, ...)."""
    return jax.lax.collapse(jnp.moveaxis(pieces, 0, 1), 1, 3)


def _outcome(environment: Environment, agent: Agent, parameters: AgentParameters, episodes: int) -> MismatchOutcome:
    size = environment.team.size
    act = agent.policy(parameters)
    worlds = environment.reset(jax.vmap(jax.random.key)(1_000_000 + jnp.arange(episodes)))
    zero = jnp.zeros(episodes)

    def step(carry: Any, key: jax.Array) -> tuple[Any, None]:
        state, hidden, open_, total, time_s, good, touched = carry
        velocity, hidden = act(jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), environment.signals(state)), hidden)
        state, result = environment.step(state, velocity.reshape(episodes, size, -1), key)
        total += open_ * jnp.mean(result.reward, axis=0)
        time_s += open_ * environment.scoring.decision_s
        good += open_ * result.terminated
        touched = jnp.maximum(touched, open_ * (result.metrics.contacts > 0))
        open_ = open_ * ~(result.terminated | result.truncated)
        return (state, hidden, open_, total, time_s, good, touched), None

    start: tuple[WorldState, Any] = (worlds, agent.blank_memory(episodes * size))
    keys = jax.random.split(jax.random.key(7), environment.horizon)
    (_, _, _, total, time_s, good, touched), _ = jax.lax.scan(step, (*start, zero + 1, zero, zero, zero, zero), keys)
    return MismatchOutcome(*(jnp.mean(x) for x in (total, good, time_s, touched)))
