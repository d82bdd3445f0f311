"""PPO for teams with a shared policy: MAPPO and IPPO, feed-forward and recurrent.

`PPO.update` is a pure function of a pytree, for jit, or vmap over seeds.
"""

from dataclasses import dataclass, replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import optax

from testudo_policies.distributed import split
from testudo_policies.learning.losses import Batch, advantages, ppo_loss
from testudo_policies.learning.other_views import shared_experience, with_mapped
from testudo_policies.learning.rollout import Kept, RolloutState, begin
from testudo_policies.learning.run_learner import RunLearner
from testudo_policies.learning.sharing import for_each_group, whole_worlds
from testudo_policies.learning.train_state import Metrics, TrainState, first_features, gradient_step, report, typed
from testudo_policies.networks.agent import AgentParameters
from testudo_sim.scenarios.symmetry import WorldMap


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Lesson:
    """What an update learns from: a rollout with its advantages."""

    parameters: AgentParameters  # before the gradient steps, with statistics that count the rollout
    batch: Batch
    advantage: jax.Array  # (T, B), weighted by trust, not normalised
    hidden: tuple[jax.Array, jax.Array]  # (B, M) and (B, C): memory of actor and critic before the rollout
    weights: tuple[jax.Array, jax.Array] | None = None  # of reward and divergence for a student; None without a teacher


@dataclass(frozen=True)
class PPO(RunLearner):
    """The learner of one run."""

    label = None  # what a teacher says of each step of a rollout, see `teacher.Student`

    def init(self, key: jax.Array) -> TrainState:
        """Return the state before the first update."""
        world_key, network_key, key = jax.random.split(key, 3)
        rollout = begin(self.agent, self.environment, world_key, self.config.worlds)
        features, central = first_features(self.agent, self.environment, rollout)
        parameters = self.agent.init(network_key, features, central)
        learned = (parameters.actor, parameters.critic)
        optimiser = self.optimiser.init(learned)
        state = TrainState(parameters, optimiser, rollout, key, jnp.zeros((), jnp.int32))
        return jax.tree.map(typed, state)

    def update(self, state: TrainState) -> tuple[TrainState, Metrics]:
        """Run one rollout and learn from it."""
        rollout_key, learn_key, key = jax.random.split(state.key, 3)
        lesson, rollout, figures = self.live(state, rollout_key)
        parameters, optimiser, losses = self._learn(lesson, state.optimiser, learn_key)
        return TrainState(parameters, optimiser, rollout, key, state.updates + 1), figures | losses

    def live(self, state: TrainState, rollout_key: jax.Array) -> tuple[Lesson, RolloutState, Metrics]:
        """Run one rollout; return what is to be learned from it, the worlds after it, and its figures."""
        hidden = (state.rollout.hidden, state.rollout.critic_hidden)
        mapping = self._mapping(jax.random.fold_in(rollout_key, 1))
        kept = Kept(self.config.shared_experience or self.config.symmetry, mapping, self.label)
        rollout, batch, figures = self.collect(state, rollout_key, kept=kept)
        parameters = self.agent.observe(state.parameters, batch.features, batch.counted)
        summary = report(batch, figures, self.environment, rollout, {})
        lived = batch
        if mapping is not None:
            batch = with_mapped(self.agent, state.parameters, batch, mapping)
        if self.config.shared_experience:
            batch = shared_experience(self.agent, state.parameters, batch, self.config.team_size)
        if batch is not lived:  # of policies without memory
            robots = batch.reward.shape[1]
            hidden = (self.agent.blank_memory(robots), self.agent.blank_critic_memory(robots))
        return self.lesson(parameters, batch, hidden), rollout, summary

    def lesson(self, parameters: AgentParameters, batch: Batch, hidden: tuple[jax.Array, jax.Array]) -> Lesson:
        """Return what is to be learned from a batch, with its advantages and the statistics of its returns."""
        advantage = advantages(
            batch.reward,
            batch.value,
            batch.next_value,
            batch.ended,
            batch.truncated,
            self.config.discount,
            self.config.trace,
            batch.weight,
        )
        parameters = self.agent.observe_returns(parameters, batch.value + advantage, batch.counted)
        return Lesson(parameters, batch, advantage, hidden)

    def shuffled(self, lesson: Lesson, key: jax.Array) -> jax.Array:
        """Return the minibatches (P, K) of an epoch: numbers of the robots, or worlds, whose sequences they hold."""
        columns = lesson.batch.reward.shape[1] // self._span
        return jax.random.permutation(key, columns).reshape(self.config.minibatches, -1)

    def loss(
        self, trial: AgentParameters, lesson: Lesson, columns: jax.Array, key: jax.Array
    ) -> tuple[jax.Array, Metrics]:
        """Return the loss of a minibatch, columns (K,) of `shuffled`, and its parts."""
        part, memory, after, critic_memory = self.minibatch(lesson, columns)
        return ppo_loss(trial, self.agent, self.config, part, memory, after, key, critic_memory)

    def minibatch(self, lesson: Lesson, columns: jax.Array) -> tuple[Batch, jax.Array, jax.Array, jax.Array]:
        """Return steps (T, K, ...), memory of the actor, advantages, and memory of the critic of columns (K,)."""
        chosen = (columns[:, None] * self._span + jnp.arange(self._span)).reshape(-1)
        # the shuffle is over all worlds, as on one device; its result is sharded again
        part, after = split(jax.tree.map(lambda x: x[:, chosen], (lesson.batch, lesson.advantage)), self.mesh, axis=1)
        memory, critic_memory = split(jax.tree.map(lambda x: x[chosen], lesson.hidden), self.mesh, axis=0)
        return part, memory, after, critic_memory

    @property
    def optimiser(self) -> optax.GradientTransformation:
        """The optimiser of a tuple of trees, of which each is clipped by its own norm."""
        optimiser = optax.chain(_clip_apart(self.config.max_gradient), optax.adam(self.falling_rate(), eps=1e-5))
        return for_each_group(optimiser) if self.agent.groups else optimiser

    def _mapping(self, key: jax.Array) -> WorldMap | None:
        """Return by which of the scenario's symmetries each world is seen as well; None without augmentation."""
        if not self.config.symmetry:
            return None
        return WorldMap.drawn(cast(Any, self.environment.scenario).symmetries, key, self.config.worlds)

    @property
    def _span(self) -> int:
        """Number of neighbouring robots that stay together in a minibatch."""
        return self.config.team_size if whole_worlds(self.config) else 1

    def _learn(self, lesson: Lesson, optimiser: Any, key: jax.Array) -> tuple[AgentParameters, Any, Metrics]:
        """Take the gradient steps of all epochs."""

        def step(carry: Any, index: tuple[jax.Array, jax.Array]) -> Any:
            current, optimiser = carry
            columns, step_key = index

            def loss(learned: tuple[Any, Any]) -> Any:
                trial = replace(current, actor=learned[0], critic=learned[1])
                return self.loss(trial, lesson, columns, step_key)

            learned = (current.actor, current.critic)
            (actor, critic), optimiser, losses = gradient_step(loss, self.optimiser, learned, optimiser)
            return (replace(current, actor=actor, critic=critic), optimiser), losses

        def epoch(carry: Any, epoch_key: jax.Array) -> Any:
            shuffle_key, step_key = jax.random.split(epoch_key)
            order = self.shuffled(lesson, shuffle_key)
            return jax.lax.scan(step, carry, (order, jax.random.split(step_key, len(order))))

        (parameters, optimiser), losses = jax.lax.scan(
            epoch, (lesson.parameters, optimiser), jax.random.split(key, self.config.epochs)
        )
        return parameters, optimiser, jax.tree.map(jnp.mean, losses)


def _clip_apart(largest: float) -> optax.GradientTransformation:
    """Return a transformation that clips the gradients of a tuple, such as actor and critic, each by its own norm."""
    clip = optax.clip_by_global_norm(largest)

    def apart(parts: Any, _: Any) -> Any:
        return tuple(clip.update(part, optax.EmptyState())[0] for part in parts)

    return optax.stateless(apart)
