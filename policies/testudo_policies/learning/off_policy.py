"""What the learners from replay share: a rollout, the replay, and gradient steps with slowly following networks.

A learner says what its critic is, how it explores, and what one gradient step is.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import jax
import jax.numpy as jnp
import optax

from testudo_policies.distributed import split
from testudo_policies.learning.losses import Batch
from testudo_policies.learning.replay import Replay
from testudo_policies.learning.rollout import begin, collect_rollout
from testudo_policies.learning.run_learner import RunLearner
from testudo_policies.learning.team_values import TeamSteps, observe_unit
from testudo_policies.learning.train_state import Metrics, TrainState, first_features, report, typed
from testudo_policies.networks.agent import AgentParameters
from testudo_policies.networks.observation_encoding import Features

Explore = Callable[[jax.Array, jax.Array], jax.Array]
"""Actions of an actor's output and a key."""


@dataclass(frozen=True)
class OffPolicy(RunLearner):
    """A learner of one run, without `critic`, `explore` and `step`."""

    followed: ClassVar[float]
    """Share of the networks that the slow ones take over at each gradient step."""

    @abstractmethod
    def critic(self, key: jax.Array, central: Features) -> Any:
        """Return the first parameters of the critic, for features (B, ...)."""

    @abstractmethod
    def moments(self, parameters: AgentParameters) -> Any:
        """Return the first state of the optimisers."""

    @abstractmethod
    def explore(self, updates: jax.Array) -> tuple[Explore, Metrics]:
        """Return how actions are drawn after a number of updates, and what is reported of it."""

    @abstractmethod
    def step(
        self, parameters: AgentParameters, moments: Any, slow: AgentParameters, batch: Batch, key: jax.Array
    ) -> tuple[AgentParameters, Any, Metrics]:
        """Return parameters, optimiser states and losses after one step from sequences (L, E * N).

        ``slow`` has the networks that follow.
        """

    def init(self, key: jax.Array) -> TrainState:
        """Return the state before the first update, with an empty replay."""
        world_key, network_key, key = jax.random.split(key, 3)
        rollout = begin(self.agent, self.environment, world_key, self.config.worlds)
        features, central = first_features(self.agent, self.environment, rollout)
        parameters = self.agent.init(network_key, features, central)
        parameters = replace(parameters, critic=self.critic(jax.random.fold_in(network_key, 1), central))
        explore, _ = self.explore(jnp.zeros(()))
        _, batch, _ = jax.eval_shape(lambda: self._collect(parameters, rollout, key, explore))
        replay = ((parameters.actor, parameters.critic), self.replay.empty(batch))
        state = TrainState(parameters, self.moments(parameters), rollout, key, jnp.zeros((), jnp.int32), replay)
        return jax.tree.map(typed, state)

    def update(self, state: TrainState) -> tuple[TrainState, Metrics]:
        """Run one rollout, and take as many gradient steps from replay as PPO takes from the rollout."""
        rollout_key, learn_key, key = jax.random.split(state.key, 3)
        explore, shown = self.explore(state.updates)
        rollout, batch, figures = self._collect(state.parameters, state.rollout, rollout_key, explore)
        parameters = self.agent.observe(state.parameters, batch.features, batch.counted)
        steps = TeamSteps.of(batch, self.environment.team.size)
        parameters = observe_unit(self.agent, parameters, steps, self.config.discount)
        slow, buffer = state.replay
        buffer = self.replay.add(buffer, batch)

        def one(carry: Any, step_key: jax.Array) -> Any:
            current, moments, followers = carry
            draw_key, own_key = jax.random.split(step_key)
            drawn = split(self.replay.draw(buffer, draw_key), self.mesh, axis=1)
            behind = replace(current, actor=followers[0], critic=followers[1])
            current, moments, losses = self.step(current, moments, behind, drawn, own_key)
            followers = optax.incremental_update((current.actor, current.critic), followers, self.followed)
            return (current, moments, followers), losses

        keys = jax.random.split(learn_key, self.config.epochs * self.config.minibatches)
        (parameters, moments, slow), losses = jax.lax.scan(one, (parameters, state.optimiser, slow), keys)
        losses = jax.tree.map(jnp.mean, losses) | shown
        return (
            TrainState(parameters, moments, rollout, key, state.updates + 1, (slow, buffer)),
            report(batch, figures, self.environment, rollout, losses),
        )

    def _collect(self, parameters: AgentParameters, rollout: Any, key: jax.Array, explore: Explore) -> Any:
        """Return a rollout, see `collect_rollout`, without what the replay need not keep."""
        rollout, batch, figures = collect_rollout(
            self.agent, self.environment, parameters, rollout, key, self.config.rollout, explore
        )
        if not self.agent.config.central_critic:  # half of the replay
            batch = replace(batch, central=cast(Any, None))
        if not self.config.memory:
            batch = replace(batch, memory=None)
        return rollout, batch, figures

    def memory_before(self, batch: Batch) -> jax.Array:
        """Return the memory (B, M) before the first step of sequences."""
        return self.agent.blank_memory(batch.reward.shape[1]) if batch.memory is None else batch.memory[0]

    def adam(self, steps_per_step: int = 1) -> optax.GradientTransformation:
        """Return Adam with the run's falling rate, for a number of uses in each gradient step."""
        clip = optax.clip_by_global_norm(self.config.max_gradient)
        return optax.chain(clip, optax.adam(self.falling_rate(steps_per_step)))

    @property
    def replay(self) -> Replay:
        """Return the replay of this run."""
        return Replay(self.config)
