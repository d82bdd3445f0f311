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
from testudo_policies.learning.rollout import begin
from testudo_policies.learning.run_learner import RunLearner
from testudo_policies.learning.sharing import for_each_group, whole_worlds
from testudo_policies.learning.train_state import Metrics, TrainState, first_features, gradient_step, report, typed
from testudo_policies.networks.agent import AgentParameters
from testudo_sim.scenarios.symmetry import WorldMap


@dataclass(frozen=True)
class PPO(RunLearner):
    """The learner of one run."""

    def init(self, key: jax.Array) -> TrainState:
        """Return the state before the first update."""
        world_key, network_key, key = jax.random.split(key, 3)
        rollout = begin(self.agent, self.environment, world_key, self.config.worlds)
        features, central = first_features(self.agent, self.environment, rollout)
        parameters = self.agent.init(network_key, features, central)
        learned = (parameters.actor, parameters.critic)
        optimiser = self._optimiser.init(learned)
        state = TrainState(parameters, optimiser, rollout, key, jnp.zeros((), jnp.int32))
        return jax.tree.map(typed, state)

    def update(self, state: TrainState) -> tuple[TrainState, Metrics]:
        """Run one rollout and learn from it."""
        rollout_key, learn_key, key = jax.random.split(state.key, 3)
        hidden = (state.rollout.hidden, state.rollout.critic_hidden)
        mapping = self._mapping(jax.random.fold_in(rollout_key, 1))
        keep_after = self.config.shared_experience or self.config.symmetry
        rollout, batch, figures = self.collect(state, rollout_key, keep_after=keep_after, mapping=mapping)
        parameters = self.agent.observe(state.parameters, batch.features, batch.counted)
        lived = batch
        if mapping is not None:
            batch = with_mapped(self.agent, state.parameters, batch, mapping)
        if self.config.shared_experience:
            batch = shared_experience(self.agent, state.parameters, batch, self.config.team_size)
        if batch is not lived:  # of policies without memory
            robots = batch.reward.shape[1]
            hidden = (self.agent.blank_memory(robots), self.agent.blank_critic_memory(robots))
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
        parameters, optimiser, losses = self._learn(parameters, state.optimiser, batch, hidden, advantage, learn_key)
        summary = report(lived, figures, self.environment, rollout, losses)
        return TrainState(parameters, optimiser, rollout, key, state.updates + 1), summary

    def _mapping(self, key: jax.Array) -> WorldMap | None:
        """Return by which of the scenario's symmetries each world is seen as well; None without augmentation."""
        if not self.config.symmetry:
            return None
        return WorldMap.drawn(cast(Any, self.environment.scenario).symmetries, key, self.config.worlds)

    def _learn(
        self,
        parameters: AgentParameters,
        optimiser: Any,
        batch: Batch,
        hidden: tuple[jax.Array, jax.Array],
        advantage: jax.Array,
        key: jax.Array,
    ) -> tuple[AgentParameters, Any, Metrics]:
        """Take the gradient steps of all epochs, with the memory of actor and critic before the rollout.

        A minibatch has the whole sequences of some robots, or of worlds.
        """
        parts, span = self.config.minibatches, self.config.team_size if whole_worlds(self.config) else 1
        columns = batch.reward.shape[1] // span
        parameters = self.agent.observe_returns(parameters, batch.value + advantage, batch.counted)

        def step(carry: Any, index: tuple[jax.Array, jax.Array]) -> Any:
            current, optimiser = carry
            columns, step_key = index
            chosen = (columns[:, None] * span + jnp.arange(span)).reshape(-1)
            # the shuffle is over all worlds, as on one device; its result is sharded again
            part, after = split(jax.tree.map(lambda x: x[:, chosen], (batch, advantage)), self.mesh, axis=1)
            memory, critic_memory = split(jax.tree.map(lambda x: x[chosen], hidden), self.mesh, axis=0)

            def loss(learned: tuple[Any, Any]) -> Any:
                trial = replace(current, actor=learned[0], critic=learned[1])
                return ppo_loss(trial, self.agent, self.config, part, memory, after, step_key, critic_memory)

            learned = (current.actor, current.critic)
            (actor, critic), optimiser, losses = gradient_step(loss, self._optimiser, learned, optimiser)
            return (replace(current, actor=actor, critic=critic), optimiser), losses

        def epoch(carry: Any, epoch_key: jax.Array) -> Any:
            shuffle_key, step_key = jax.random.split(epoch_key)
            order = jax.random.permutation(shuffle_key, columns).reshape(parts, -1)
            return jax.lax.scan(step, carry, (order, jax.random.split(step_key, parts)))

        (parameters, optimiser), losses = jax.lax.scan(
            epoch, (parameters, optimiser), jax.random.split(key, self.config.epochs)
        )
        return parameters, optimiser, jax.tree.map(jnp.mean, losses)

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        optimiser = optax.chain(_clip_apart(self.config.max_gradient), optax.adam(self.falling_rate(), eps=1e-5))
        return for_each_group(optimiser) if self.agent.groups else optimiser


def _clip_apart(largest: float) -> optax.GradientTransformation:
    """Return a transformation that clips the gradients of actor and critic each by its own norm."""
    clip = optax.clip_by_global_norm(largest)

    def apart(pair: Any, _: Any) -> Any:
        return tuple(clip.update(part, optax.EmptyState())[0] for part in pair)

    return optax.stateless(apart)
