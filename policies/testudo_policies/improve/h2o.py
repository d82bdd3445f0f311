"""H2O: a soft actor-critic that learns from simulation and a real run, and trusts the simulation where both agree.

Niu et al., "When to Trust Your Simulator", NeurIPS 2022 (arXiv 2206.13464); numbers of equations are those of this
file. B holds transitions of the simulation M^, D those of the real run; M are the real dynamics. Constants are those of
the paper's code.

(1) Two discriminators tell real from simulated motion, with and without its result; with balanced classes the
    difference of their logits is log p_M(s'|s,a) / p_M^(s'|s,a).
(2) Dynamics gap u(s,a) = E[log p_M^ / p_M], over ten next states about the simulated one, clipped to at most 10;
    weights omega = u / sum of u over the simulated half of a batch.
(3) Penalty beta (log sum_B omega exp Q - E_D[Q]), beta = 0.01: Q falls where the simulation is wrong, and rises on
    real data.
(4) Bellman errors E_D[(Q - y)^2] + E_B[clip(p_M / p_M^, 1e-5, 1) (Q - y)^2].
(5) The policy climbs the lower of the twins' values, with its entropy, on both halves; the temperature adapts itself.

What is of the team here: the critic knows the state and all actions (`MASAC`, whose policy step, temperature, twins and
replay these are), so that the log ratio of a transition is the sum over its robots, whose motions are independent of
each other given what they do. The discriminators see each robot's own motion in its body (`discriminators`).

Without weights the same class is the mixture that trusts both alike; without simulation it learns from the run alone,
with the penalty of CQL if asked for: Kumar et al., NeurIPS 2020, CQL(H), log of the sum of exp Q over actions.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from testudo_policies.improve.discriminators import (
    NEXT,
    DiscriminatorConfig,
    Discriminators,
    flat_motion,
    motions,
)
from testudo_policies.learning.hasac import MASAC
from testudo_policies.learning.losses import Batch
from testudo_policies.learning.team_values import TeamSteps, by_world, mean_square, worlds_of
from testudo_policies.learning.train_state import Metrics, TrainState
from testudo_policies.networks.agent import AgentParameters

PENALTY = 0.01  # beta of (3)
GAP_SAMPLES = 10  # next states of (2)
LEAST_GAP, MOST_GAP = 1e-30, 10.0  # bounds of (2); the paper's least one, 1e-45, is 0 in float32
LEAST_RATIO = 1e-5  # of (4); the largest is 1
_CQL_ACTIONS = 8  # of each kind, in the penalty of CQL
_CLASSIFIERS = DiscriminatorConfig(steps=1, samples=256, learning_rate=3e-4)


def gap_weights(gap: jax.Array, simulated: jax.Array) -> jax.Array:
    """Return the weights omega (...) of (2): gaps (...) clipped, as shares of those of simulated transitions."""
    clipped = jnp.where(simulated, jnp.clip(gap, LEAST_GAP, MOST_GAP), 0.0)
    return clipped / jnp.maximum(jnp.sum(clipped), LEAST_GAP)


def clipped_ratio(log_ratio: jax.Array) -> jax.Array:
    """Return clip(p_M / p_M^, 1e-5, 1) (...) of (4) from its logarithm."""
    return jnp.exp(jnp.clip(log_ratio, jnp.log(LEAST_RATIO), 0.0))


def gap_penalty(value: jax.Array, weights: jax.Array, real: jax.Array) -> jax.Array:
    """Return log sum_B omega exp Q - E_D[Q] () of (3), from values, weights and which are real (...)."""
    simulated = jax.nn.logsumexp(value, b=weights, where=~real & (weights > 0))
    return simulated - jnp.sum(jnp.where(real, value, 0.0)) / jnp.maximum(jnp.sum(real), 1)


def penalty_of_cql(value: jax.Array, others: jax.Array, chosen: jax.Array) -> jax.Array:
    """Return the mean () of log E[exp Q / density] - Q over transitions ``chosen`` (...).

    ``value`` (...) is Q of the action of the data, ``others`` (K, ...) are Q less the log-density of other actions.
    """
    above = jax.nn.logsumexp(others, axis=0) - jnp.log(others.shape[0])
    return jnp.sum(jnp.where(chosen, above - value, 0.0)) / jnp.maximum(jnp.sum(chosen), 1)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Lesson:
    """What the critics need of a batch beside its steps; arrays (T - 1, E)."""

    real: jax.Array  # bool: a transition of D
    ratio: jax.Array  # of (4); 1 of real ones
    weights: jax.Array  # omega of (2); 0 of real ones
    others: tuple[jax.Array, jax.Array] | None = None
    """Other actions (K, T, E, N, A) in -1 to 1 for CQL, and their log-densities (K, T, E); None without it."""


@dataclass(frozen=True)
class H2O(MASAC):
    """The learner of one run; the state of its optimiser is (that of `MASAC`, the discriminators)."""

    begin: AgentParameters | None = None  # policy with which it begins; None for a random one
    recorded: Batch | None = None  # real transitions as pairs of steps (2, P * N, ...), see `pairs`; None for none
    simulate: bool = True  # false to learn from the run alone
    weighted: bool = True  # ratio and penalty of the gap; else both halves count alike
    conservative: float = 0.0  # weight of the penalty of CQL on real transitions
    warm_up: int = 0  # updates at the beginning in which only the critics learn
    lesson: Lesson | None = None  # of the gradient step under way

    def init(self, key: jax.Array) -> TrainState:
        """See `OffPolicy.init`."""
        return self.with_beginning(super().init(key), key)

    def with_beginning(self, state: TrainState, key: jax.Array) -> TrainState:
        """Return a state of `MASAC.init` with the first policy and the discriminators."""
        parameters, (slow, buffer) = state.parameters, state.replay
        if self.begin is not None:
            given = self.begin
            parameters = replace(
                parameters,
                actor=given.actor,
                own_statistics=given.own_statistics,
                neighbour_statistics=given.neighbour_statistics,
                entity_statistics=given.entity_statistics,
            )
            parameters = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), parameters, state.parameters)
            slow = (parameters.actor, slow[1])
        judges = self.discriminators
        classifiers = () if judges is None else judges.init(jax.random.fold_in(key, 1))
        return replace(state, parameters=parameters, optimiser=(state.optimiser, classifiers), replay=(slow, buffer))

    @property
    def discriminators(self) -> Discriminators | None:
        """Return the discriminators of (1); None without weights."""
        if self.recorded is None or not (self.weighted and self.simulate):
            return None
        return Discriminators(_CLASSIFIERS, *flat_motion(*motions(self.agent, self.recorded)))

    def update(self, state: TrainState) -> tuple[TrainState, Metrics]:
        """See `OffPolicy.update`; during the warm-up the policy stays as it is."""
        before = state.parameters.actor
        after, metrics = super().update(state)
        actor = jax.tree.map(
            lambda new, old: jnp.where(state.updates < self.warm_up, old, new), after.parameters.actor, before
        )
        return replace(after, parameters=replace(after.parameters, actor=actor)), metrics

    def step(
        self, parameters: AgentParameters, moments: Any, slow: AgentParameters, batch: Batch, key: jax.Array
    ) -> tuple[AgentParameters, Any, Metrics]:
        """Take a step of the discriminators, and those of `MASAC` on simulated and as many real transitions."""
        soft, classifiers = moments
        if self.recorded is None:
            parameters, soft, metrics = super().step(parameters, soft, slow, batch, key)
            return parameters, (soft, classifiers), metrics
        draw_key, judge_key, action_key, key = jax.random.split(key, 4)
        team = self.environment.team.size
        real = drawn(self.recorded, team, batch.reward.shape[1] // team, draw_key)
        both = jax.tree.map(lambda *x: jnp.concatenate(x, axis=1), batch, real) if self.simulate else real
        is_real = jnp.arange(both.reward.shape[1] // team) >= (batch.reward.shape[1] // team if self.simulate else 0)
        is_real = jnp.broadcast_to(is_real, (both.reward.shape[0] - 1, len(is_real)))
        lesson = Lesson(is_real, jnp.ones(is_real.shape), jnp.zeros(is_real.shape))
        shown: Metrics = {}
        judges = self.discriminators
        if judges is not None:
            classifiers, lesson, shown = self._judged(judges, classifiers, batch, lesson, judge_key)
        if self.conservative:
            lesson = self._with_actions(lesson, parameters, both, action_key)
        # the class of HASAC's own step: `critic_loss` below reads the lesson
        parameters, soft, metrics = MASAC.step(replace(self, lesson=lesson), parameters, soft, slow, both, key)
        return parameters, (soft, classifiers), metrics | shown

    def critic_loss(self, twin: Any, batch: Batch, steps: TeamSteps, value: jax.Array, target: jax.Array) -> jax.Array:
        """Return the loss () of one critic: (4), with the penalty (3), and that of CQL where it is asked for."""
        lesson, teaches = self.lesson, steps.teaches[:-1]
        if lesson is None:
            return super().critic_loss(twin, batch, steps, value, target)
        error = jnp.sqrt(lesson.ratio) * (value - target)
        total = mean_square(error, teaches & lesson.real)
        if self.simulate:
            total += mean_square(error, teaches & ~lesson.real)
        if self.discriminators is not None:
            total += PENALTY * gap_penalty(value, jnp.where(teaches, lesson.weights, 0.0), lesson.real & teaches)
        if lesson.others is not None:
            actions, density = lesson.others
            values = jax.vmap(lambda action: self._one_value(twin, batch, action, steps.counted))(actions)
            chosen = teaches & lesson.real
            total += self.conservative * penalty_of_cql(value, (values - density)[:, :-1], chosen)
        return total

    def _judged(
        self, judges: Discriminators, classifiers: Any, batch: Batch, lesson: Lesson, key: jax.Array
    ) -> tuple[Any, Lesson, Metrics]:
        """Return the discriminators after a step, and the lesson with ratios and weights of the simulated half."""
        learn_key, noise_key = jax.random.split(key)
        motion, known = motions(self.agent, batch)
        classifiers, loss = judges.learn(classifiers, motion, known, learn_key)
        noise = jax.random.normal(noise_key, (GAP_SAMPLES, *motion[NEXT].shape))
        ratio = clipped_ratio(self._of_team(judges.log_ratio(classifiers, motion, known)))
        gap = self._of_team(judges.gap(classifiers, motion, known, noise))
        simulated = ratio.shape[1]
        lesson = replace(
            lesson,
            ratio=lesson.ratio.at[:, :simulated].set(ratio),
            weights=lesson.weights.at[:, :simulated].set(gap_weights(gap, jnp.ones(gap.shape, bool))),
        )
        return classifiers, lesson, {"h2o/ratio": jnp.mean(ratio), "h2o/gap": jnp.mean(gap), "h2o/loss": loss}

    def _of_team(self, values: jax.Array) -> jax.Array:
        """Return the sum (T - 1, E) over the robots of values (T, E * N) of transitions."""
        return jnp.sum(by_world(values, self.environment.team.size), axis=-1)[:-1]

    def _with_actions(self, lesson: Lesson, parameters: AgentParameters, batch: Batch, key: jax.Array) -> Lesson:
        """Return the lesson with actions of the team, from the policy and uniform, and their log-densities."""
        policy_key, any_key = jax.random.split(key)
        own, log_own = jax.vmap(lambda one: self._drawn(parameters, batch, one))(
            jax.random.split(policy_key, _CQL_ACTIONS)
        )
        uniform = jax.random.uniform(any_key, own.shape, minval=-1.0, maxval=1.0)
        log_own = jnp.sum(log_own, axis=-1)
        log_uniform = jnp.full(log_own.shape, -jnp.log(2.0) * own.shape[-1] * own.shape[-2])
        actions, density = jnp.concatenate([own, uniform]), jnp.concatenate([log_own, log_uniform])
        return replace(lesson, others=jax.lax.stop_gradient((actions, density)))


def pairs(batch: Batch) -> Batch:
    """Return the steps of a rollout (T, B, ...) as pairs of a step and the next one (2, (T - 1) * B, ...)."""

    def paired(values: jax.Array) -> jax.Array:
        both = jnp.stack([values[:-1], values[1:]])
        return both.reshape(2, -1, *values.shape[2:])

    result: Batch = jax.tree.map(paired, batch)
    return result


def drawn(recorded: Batch, team: int, count: int, key: jax.Array) -> Batch:
    """Return ``count`` random transitions of whole teams (2, count * N, ...) of recorded ones (2, P * N, ...)."""
    chosen = jax.random.randint(key, (count,), 0, recorded.reward.shape[1] // team)
    found: Batch = worlds_of(recorded, chosen, team)
    return found
