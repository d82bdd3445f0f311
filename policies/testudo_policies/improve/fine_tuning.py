"""PPO that goes on from a policy: on simulation, on recorded transitions, or on both as H2O mixes them.

What differs from H2O (Niu et al., 2022), which is an actor-critic with a replay buffer: here the rollouts are on-policy
and the critic is of states, so the ratio of dynamics weighs the temporal-difference errors inside the advantages
(critic targets and policy gradient alike) instead of the Bellman errors of a Q-function; recorded transitions enter the
same clipped loss, as drawn from the policy that drove them; and there is no regulariser that pushes Q down where the
dynamics differ, because there is no Q: a transition that is not trusted pushes nothing at all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from testudo_policies.improve.discriminators import DiscriminatorConfig, DiscriminatorParameters, Discriminators
from testudo_policies.improve.motion_features import flat_motion, motions
from testudo_policies.learning.losses import Batch, advantages
from testudo_policies.learning.ppo import PPO, Metrics, TrainState
from testudo_policies.learning.rollout import collect_rollout
from testudo_policies.networks.agent import AgentParameters
from testudo_policies.networks.observation_encoding import Features


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RecordedTransitions:
    """Transitions of a real run in the form of a rollout."""

    batch: Batch
    """(T, B): T as long as a rollout of the simulation."""
    hidden: jax.Array
    """(B, M): memory before the first step."""
    last: Any
    """Critic's features (T, B, ...) of the states that the steps led to."""
    weight: jax.Array
    """(T, B): 1, or 0 for steps that say nothing: filled up, or without a decision of the policy."""

    @classmethod
    def of_rollout(cls, batch: Batch, hidden: jax.Array) -> RecordedTransitions:
        """Return all steps of a rollout but the last, whose outcome is not in it."""
        done = (batch.terminated | batch.truncated)[:-1]

        def after(values: jax.Array) -> jax.Array:
            # an ended episode goes on in another; its time-outs take the value of the step itself
            return jnp.where(done.reshape(*done.shape, *[1] * (values.ndim - 2)), values[:-1], values[1:])

        kept = jax.tree.map(lambda x: x[:-1], batch)
        return cls(kept, hidden, jax.tree.map(after, batch.central), jnp.ones_like(kept.reward))


@dataclass(frozen=True)
class FineTuner(PPO):
    """PPO from given parameters on; the optimiser's state is (PPO's, discriminators')."""

    begin: AgentParameters | None = None
    """Where learning begins; None is anew."""
    warm_up: int = 0
    """First updates, in which the critic alone learns: it may know nothing yet."""
    recorded: RecordedTransitions | None = None
    """Real transitions; None is simulation alone."""
    simulate: bool = True
    """False learns from the real transitions alone."""
    weighted: bool = True
    """Weigh simulated transitions by the ratio of dynamics; needs ``recorded``."""
    judging: DiscriminatorConfig = DiscriminatorConfig()  # noqa: RUF009 -- frozen

    @property
    def discriminators(self) -> Discriminators | None:
        """Return the discriminators; None where nothing is weighed."""
        if self.recorded is None or not (self.weighted and self.simulate):
            return None
        motion, known = motions(self.agent, self.recorded.batch)
        return Discriminators(self.judging, *flat_motion(motion, known & (self.recorded.weight > 0)))

    def init(self, key: jax.Array) -> TrainState:
        """See `PPO.init`; the parameters are those to begin with."""
        return self.begun(super().init(key), key)

    def begun(self, state: TrainState, key: jax.Array) -> TrainState:
        """Return a state that `PPO.init` made of a key, with the parameters to begin with and discriminators."""
        parameters = state.parameters
        if self.begin is not None:
            parameters = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), self.begin, parameters)
        judges = self.discriminators.init(jax.random.fold_in(key, 1)) if self.discriminators else ()
        return replace(state, parameters=parameters, optimiser=(state.optimiser, judges))

    def update(self, state: TrainState) -> tuple[TrainState, Metrics]:
        """See `PPO.update`."""
        optimiser, judges = state.optimiser
        actor = state.parameters.actor
        plain = replace(state, optimiser=optimiser)
        if self.recorded is None:
            after, metrics = super().update(plain)
        else:
            after, judges, metrics = self._mixed(plain, judges)
        held = jax.tree.map(
            lambda new, old: jnp.where(state.updates < self.warm_up, old, new), after.parameters.actor, actor
        )
        return replace(
            after, parameters=replace(after.parameters, actor=held), optimiser=(after.optimiser, judges)
        ), metrics

    def _mixed(
        self, state: TrainState, judges: DiscriminatorParameters | tuple[()]
    ) -> tuple[TrainState, DiscriminatorParameters | tuple[()], Metrics]:
        """Learn from recorded transitions, and with ``simulate`` from a rollout as well."""
        rollout_key, learn_key, judge_key, key = jax.random.split(state.key, 4)
        config, parameters, rollout = self.config, state.parameters, state.rollout
        batch, hidden = self._refreshed(parameters), self.recorded.hidden
        trust = self.recorded.weight
        summary: Metrics = {"h2o/trust": jnp.ones(()), "h2o/loss": jnp.zeros(())}
        if self.simulate:
            hidden = jnp.concatenate([rollout.hidden, hidden])
            rollout, simulated, _ = collect_rollout(
                self.agent, self.environment, parameters, rollout, rollout_key, config.rollout
            )
            weight = jnp.ones_like(simulated.reward)
            if self.discriminators:
                motion, known = motions(self.agent, simulated)
                judges, loss = self.discriminators.learn(judges, motion, known, judge_key)
                weight = self.discriminators.trust(judges, motion, known)
                summary = {"h2o/trust": jnp.mean(weight), "h2o/loss": loss}
            trust = jnp.concatenate([weight, trust], axis=1)
            slots = max(part.features.nearness.shape[-1] for part in (simulated, batch))
            batch = jax.tree.map(
                lambda a, b: jnp.concatenate([a, b], axis=1), with_slots(simulated, slots), with_slots(batch, slots)
            )
            parameters = self.agent.observe(parameters, simulated.features)
        advantage = advantages(
            batch.reward,
            batch.value,
            batch.next_value,
            batch.terminated,
            batch.truncated,
            config.discount,
            config.trace,
            trust,
        )
        batch = replace(batch, trust=trust)
        parameters, optimiser, losses = self._learn(parameters, state.optimiser, batch, hidden, advantage, learn_key)
        done = batch.terminated | batch.truncated
        summary |= {
            "train/reward": jnp.mean(batch.reward),
            "train/return": jnp.sum(batch.reward) / jnp.maximum(jnp.sum(done), config.worlds),
            "train/success": jnp.sum(batch.terminated) / jnp.maximum(jnp.sum(done), 1),
            "train/contacts": jnp.zeros(()),
            "shield/intervention_rate": jnp.zeros(()),
            **losses,
        }
        return TrainState(parameters, optimiser, rollout, key, state.updates + 1), judges, summary

    def _refreshed(self, parameters: AgentParameters) -> Batch:
        """Return the recorded transitions with the values that the critic gives them now."""
        batch = self.recorded.batch
        return replace(
            batch,
            value=self.agent.value(parameters, batch.central),
            next_value=self.agent.value(parameters, self.recorded.last),
        )


def with_slots(batch: Batch, slots: int) -> Batch:
    """Return a batch with so many neighbour slots: those that are new are empty, which networks do not see."""

    def widened(features: Features) -> Features:
        empty = [(0, 0)] * (features.nearness.ndim - 1) + [(0, slots - features.nearness.shape[-1])]
        return replace(
            features,
            nearness=jnp.pad(features.nearness, empty),
            neighbours=jnp.pad(features.neighbours, [*empty, (0, 0)]),
        )

    return replace(batch, features=widened(batch.features), central=widened(batch.central))
