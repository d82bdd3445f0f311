"""PPO that starts from a policy: on simulation, on recorded transitions, or on both as in H2O.

Differences from H2O (Niu et al., 2022), an actor-critic with a replay buffer: rollouts are on-policy and the critic
estimates state values, so the dynamics ratio weights the temporal-difference errors inside the advantages (for critic
targets and policy gradient) instead of the Bellman errors of a Q-function; recorded transitions enter the same clipped
loss, with the recorded policy as behaviour policy; and there is no regulariser that lowers Q where the dynamics differ:
a transition with weight 0 has no effect.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp

from testudo_policies.improve.discriminators import (
    DiscriminatorConfig,
    Discriminators,
    flat_motion,
    motions,
)
from testudo_policies.improve.initial_policy import InitialPolicy
from testudo_policies.learning.builder import TrainingComponents
from testudo_policies.learning.losses import Batch
from testudo_policies.learning.ppo import PPO
from testudo_policies.learning.rollout import collect_rollout
from testudo_policies.learning.train_state import Metrics, TrainState, episode_counts
from testudo_policies.networks.agent import AgentParameters
from testudo_policies.networks.observation_encoding import Features


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RecordedTransitions:
    """Transitions of a real run in the format of a rollout."""

    batch: Batch  # (T, B): T equals the length of a simulated rollout
    hidden: jax.Array  # (B, M): memory before the first step
    last: Any  # critic's features (T, B, ...) of the states after the steps
    weight: jax.Array  # (T, B): 1, or 0 for padding and steps without a decision of the policy

    @classmethod
    def of_rollout(cls, batch: Batch, hidden: jax.Array) -> RecordedTransitions:
        """Return all steps of a rollout except the last, whose outcome is unknown."""
        done = (batch.terminated | batch.truncated)[:-1]

        def after(values: jax.Array) -> jax.Array:
            # after a finished episode the next row belongs to another one; a time-out uses its own step's value
            return jnp.where(done.reshape(*done.shape, *[1] * (values.ndim - 2)), values[:-1], values[1:])

        steps = jax.tree.map(lambda x: x[:-1], batch)
        weight = jnp.ones_like(steps.reward) if steps.weight is None else steps.weight
        return cls(steps, hidden, jax.tree.map(after, batch.central), weight)


@dataclass(frozen=True)
class FineTuner(PPO):
    """PPO from given parameters; its optimiser state is (PPO's, discriminators')."""

    begin: AgentParameters | None = None  # initial parameters; None for random ones
    warm_up: int = 0  # number of first updates in which only the critic learns
    recorded: RecordedTransitions | None = None  # real transitions; None for simulation only
    simulate: bool = True  # false to learn from real transitions only
    weighted: bool = True  # weight simulated transitions by the dynamics ratio; needs ``recorded``
    discriminator_config: DiscriminatorConfig = DiscriminatorConfig()  # noqa: RUF009 -- frozen

    @property
    def discriminators(self) -> Discriminators | None:
        """Return the discriminators; None without weighting."""
        if self.recorded is None or not (self.weighted and self.simulate):
            return None
        motion, known = motions(self.agent, self.recorded.batch)
        return Discriminators(self.discriminator_config, *flat_motion(motion, known & (self.recorded.weight > 0)))

    def init(self, key: jax.Array) -> TrainState:
        """See `PPO.init`; with the initial parameters."""
        return self.with_initial_parameters(super().init(key), key)

    def with_initial_parameters(self, state: TrainState, key: jax.Array) -> TrainState:
        """Return a state of `PPO.init` with the initial parameters and discriminators."""
        parameters = state.parameters
        if self.begin is not None:
            parameters = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), self.begin, parameters)
        classifiers = self.discriminators.init(jax.random.fold_in(key, 1)) if self.discriminators else ()
        return replace(state, parameters=parameters, optimiser=(state.optimiser, classifiers))

    def update(self, state: TrainState) -> tuple[TrainState, Metrics]:
        """See `PPO.update`."""
        optimiser, classifiers = state.optimiser
        actor = state.parameters.actor
        plain = replace(state, optimiser=optimiser)
        if self.recorded is None:
            after, metrics = super().update(plain)
        else:
            after, classifiers, metrics = self._mixed(plain, classifiers, self.recorded)
        actor_after = jax.tree.map(
            lambda new, old: jnp.where(state.updates < self.warm_up, old, new), after.parameters.actor, actor
        )
        return replace(
            after, parameters=replace(after.parameters, actor=actor_after), optimiser=(after.optimiser, classifiers)
        ), metrics

    def _mixed(
        self, state: TrainState, classifiers: Any, recorded: RecordedTransitions
    ) -> tuple[TrainState, Any, Metrics]:
        """Learn from recorded transitions and, with ``simulate``, from a rollout; () stands for no classifiers."""
        rollout_key, learn_key, classifier_key, key = jax.random.split(state.key, 4)
        config, parameters, rollout = self.config, state.parameters, state.rollout
        batch, hidden = self._refreshed(parameters, recorded), recorded.hidden
        trust = recorded.weight
        summary: Metrics = {"h2o/trust": jnp.ones(()), "h2o/loss": jnp.zeros(())}
        if self.simulate:
            hidden = jnp.concatenate([rollout.hidden, hidden])
            rollout, simulated, _ = collect_rollout(
                self.agent, self.environment, parameters, rollout, rollout_key, config.rollout
            )
            weight = jnp.ones_like(simulated.reward)
            if self.discriminators:
                motion, known = motions(self.agent, simulated)
                classifiers, loss = self.discriminators.learn(classifiers, motion, known, classifier_key)
                weight = self.discriminators.trust(classifiers, motion, known)
                summary = {"h2o/trust": jnp.mean(weight), "h2o/loss": loss}
            trust = jnp.concatenate([weight, trust], axis=1)
            slots = max(part.features.nearness.shape[-1] for part in (simulated, batch))
            batch = jax.tree.map(
                lambda a, b: jnp.concatenate([a, b], axis=1), with_slots(simulated, slots), with_slots(batch, slots)
            )
            parameters = self.agent.observe(parameters, simulated.features, simulated.counted)
        batch = replace(batch, trust=trust)
        memory = (hidden, self.agent.blank_critic_memory(hidden.shape[0]))
        lesson = self.lesson(parameters, batch, memory)
        parameters, optimiser, losses = self._learn(lesson, state.optimiser, learn_key)
        summary |= episode_counts(batch, self.environment.team.size) | {
            "train/contacts": jnp.zeros(()),
            "shield/intervention_rate": jnp.zeros(()),
            **losses,
        }
        return TrainState(parameters, optimiser, rollout, key, state.updates + 1), classifiers, summary

    def _refreshed(self, parameters: AgentParameters, recorded: RecordedTransitions) -> Batch:
        """Return the recorded transitions with the critic's current values."""
        batch = recorded.batch
        return replace(
            batch,
            value=self.agent.value(parameters, batch.central),
            next_value=self.agent.value(parameters, recorded.last),
        )


def with_slots(batch: Batch, slots: int) -> Batch:
    """Return a batch padded to ``slots`` neighbour slots; networks ignore the empty ones."""

    def widened(features: Features) -> Features:
        empty = [(0, 0)] * (features.nearness.ndim - 1) + [(0, slots - features.nearness.shape[-1])]
        return replace(
            features,
            nearness=jnp.pad(features.nearness, empty),
            neighbours=jnp.pad(features.neighbours, [*empty, (0, 0)]),
        )

    return replace(batch, features=widened(batch.features), central=widened(batch.central))


@dataclass(frozen=True)
class FineTuningComponents(TrainingComponents):
    """`TrainingComponents` with a learner that starts from a policy."""

    beginning: InitialPolicy = field(kw_only=True)
    recorded: RecordedTransitions | None = field(default=None, repr=False, kw_only=True)

    @classmethod
    def of(
        cls, components: TrainingComponents, beginning: InitialPolicy, recorded: RecordedTransitions | None = None
    ) -> FineTuningComponents:
        """Return components that start from ``beginning``, with recorded transitions if given."""
        return cls(
            components.config,
            components.spec,
            components.shield,
            components.environment,
            components.agent,
            beginning=beginning,
            recorded=recorded,
        )

    @property
    def learner(self) -> FineTuner:
        """Return the learner."""
        return FineTuner(
            self.config,
            self.agent,
            self.environment,
            begin=self.beginning.parameters,
            warm_up=min(self.beginning.warm_up, self.config.updates // 3),
            recorded=self.recorded,
        )
