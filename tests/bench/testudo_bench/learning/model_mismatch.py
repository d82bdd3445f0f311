"""Study of learning from simulation, real data or both, on the plant of a candidate of the screen.

Each seed has an old policy trained in the described world, a recorded run of it on the plant with exploration noise,
and one fine-tuned policy for each arm. Seeds are vectorised.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from testudo_bench.learning.candidates import Candidate
from testudo_bench.learning.screened_task import Worlds
from testudo_bench.learning.seed_training import HeldOutEpisodes, learn, seed_keys
from testudo_policies.improve.fine_tuning import FineTuner, RecordedTransitions
from testudo_policies.improve.h2o import H2O, pairs
from testudo_policies.learning.losses import Batch
from testudo_policies.learning.rollout import RolloutState, begin, collect_rollout
from testudo_policies.networks.agent import AgentParameters
from testudo_policies.train_config import ALGORITHMS

OLD, TRUTH = "old policy", "simulation of the truth"


@dataclass(frozen=True)
class Arm:
    """One way of learning: an algorithm, and what it learns from."""

    soft: bool  # soft actor-critic with replay (`H2O`); else PPO (`FineTuner`)
    recorded: bool = False  # it has the recorded run
    in_truth: bool = False  # it simulates the true dynamics
    options: Mapping[str, Any] | None = None  # of the learner


ARMS: Mapping[str, Arm] = {
    "simulation": Arm(soft=False),
    "real run": Arm(soft=False, recorded=True, options={"simulate": False}),
    "both, trusted alike": Arm(soft=False, recorded=True, options={"weighted": False}),
    "both, weighted by the ratio": Arm(soft=False, recorded=True),
    TRUTH: Arm(soft=False, in_truth=True),
    "soft: simulation": Arm(soft=True),
    "soft: real run": Arm(soft=True, recorded=True, options={"simulate": False}),
    "soft: real run, CQL": Arm(soft=True, recorded=True, options={"simulate": False, "conservative": 1.0}),
    "soft: both, trusted alike": Arm(soft=True, recorded=True, options={"weighted": False}),
    "soft: both, H2O": Arm(soft=True, recorded=True),
    f"soft: {TRUTH}": Arm(soft=True, in_truth=True),
}


@dataclass(frozen=True)
class Budget:
    """Amount of training, recording and evaluation."""

    seeds: int = 3
    worlds: int = 64
    old_updates: int = 60
    updates: int = 40  # of fine-tuning
    recorded_worlds: int = 7
    recorded_pieces: int = 4  # consecutive rollouts of each world
    episodes: int = 128


QUICK = Budget(seeds=2, worlds=8, old_updates=10, updates=10, episodes=16)  # only to test that all works
_SOFT: Mapping[str, Any] = {
    **{name: value for name, value in ALGORITHMS["masac"].items() if name != "memory"},
    "algorithm": "masac",
    "epochs": 16,  # 128 gradient steps in an update: a critic from nothing needs thousands
    "minibatches": 8,
    "learning_rate": 3e-4,  # of the paper
}
_WARM_UP = 0.2  # share of the soft learners' updates in which their new critics learn alone
_RATE = 0.3  # learning rate of PPO's fine-tuning over that of the old policy's training


@dataclass(frozen=True)
class RecordedRun:
    """The recorded transitions (S, ...) in the forms of both learners."""

    rollout: RecordedTransitions
    pairs: Batch


jax.tree_util.register_dataclass(RecordedRun)


class Study:
    """The environments and steps of the study; each step is compiled once for all seeds."""

    def __init__(self, budget: Budget, candidate: Candidate) -> None:
        self.budget, self.candidate = budget, candidate
        self.ppo = Worlds(candidate, budget.worlds, budget.updates)
        self.soft = Worlds(replace(candidate, options={**candidate.options, **_SOFT}), budget.worlds, budget.updates)
        self.recording = replace(self.ppo.plant, change_price=self.ppo.components.config.change_price)

    @property
    def recorded_minutes(self) -> float:
        """Return the total recorded time of a seed [min]."""
        decisions = self.budget.recorded_worlds * self.budget.recorded_pieces * self.ppo.components.config.rollout
        return decisions * self.recording.decision_s / 60

    def old_policies(self, tell: Callable[[float], None]) -> AgentParameters:
        """Return policies (S, ...) trained in the described world."""
        worlds = Worlds(self.candidate, self.budget.worlds, self.budget.old_updates)
        return worlds.learnt(worlds.components.environment, self.budget.seeds, tell)

    def recorded(self, policies: AgentParameters) -> RecordedRun:
        """Return recorded transitions of policies (S, ...) on the plant, with exploration noise."""
        run: RecordedRun = jax.jit(jax.vmap(self._record))(policies, seed_keys(self.budget.seeds, 1))
        return run

    def tuned(
        self, arm: Arm, policies: AgentParameters, recorded: RecordedRun, tell: Callable[[float], None]
    ) -> AgentParameters:
        """Return the policies (S, ...) fine-tuned by an arm, as policies of PPO."""
        learner = partial(learner_of, self, arm)
        keys, given = seed_keys(self.budget.seeds, 2), (policies, recorded)
        starts = jax.jit(jax.vmap(lambda key, one: learner(one).init(key)))(keys, given)
        tuned = learn(learner, starts, given, self.budget.updates, tell)
        # only the actor acts; the form of PPO's parameters keeps one program for all held-out episodes
        return replace(tuned, critic=policies.critic) if arm.soft else tuned

    def outcome(self, policies: AgentParameters) -> HeldOutEpisodes:
        """Return the held-out episodes (S, E) of policies (S, ...) on the plant."""
        return self.ppo.episodes_of(policies, self.budget.episodes)

    def _record(self, policy: AgentParameters, key: jax.Array) -> RecordedRun:
        budget, agent = self.budget, self.ppo.components.agent
        length = self.ppo.components.config.rollout + 1

        def piece(state: RolloutState, number: jax.Array) -> tuple[RolloutState, tuple[RecordedTransitions, Batch]]:
            after, batch, _ = collect_rollout(
                agent, self.recording, policy, state, jax.random.fold_in(key, number), length
            )
            return after, (RecordedTransitions.of_rollout(batch, state.hidden), pairs(batch))

        # a scan, because a Python loop would compile each rollout
        _, (rollouts, found) = jax.lax.scan(
            piece, begin(agent, self.recording, key, budget.recorded_worlds), jnp.arange(budget.recorded_pieces)
        )
        batch, last, weight, joined = jax.tree.map(
            _concatenate_rollouts, (rollouts.batch, rollouts.last, rollouts.weight, found)
        )
        hidden = jax.lax.collapse(rollouts.hidden, 0, 2)
        return RecordedRun(RecordedTransitions(batch, hidden, last, weight), joined)


def learner_of(study: Study, arm: Arm, given: tuple[AgentParameters, RecordedRun]) -> FineTuner | H2O:
    """Return the learner of an arm for one seed, from its old policy and recorded run."""
    policy, run = given
    worlds = study.soft if arm.soft else study.ppo
    world = worlds.true_world if arm.in_truth else worlds.components.environment
    config, agent, options = worlds.components.config, worlds.components.agent, dict(arm.options or {})
    if not arm.soft:
        config = replace(config, learning_rate=_RATE * config.learning_rate)
        return FineTuner(config, agent, world, begin=policy, recorded=run.rollout if arm.recorded else None, **options)
    warm_up = round(_WARM_UP * config.updates)
    return H2O(
        config, agent, world, begin=policy, recorded=run.pairs if arm.recorded else None, warm_up=warm_up, **options
    )


def _concatenate_rollouts(pieces: jax.Array) -> jax.Array:
    """Return rollouts (P, T, B, ...) as one batch (T, P B, ...)."""
    return jax.lax.collapse(jnp.moveaxis(pieces, 0, 1), 1, 3)
