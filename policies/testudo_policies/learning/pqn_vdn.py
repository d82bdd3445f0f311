"""PQN-VDN: Q-learning from fresh rollouts for teams, without replay and without a target network.

Parallelised Q-network (Gallici et al., ICLR 2025) with the value decomposition of Sunehag et al. (AAMAS 2018): the
value of a world is the mean over its robots of the value of what each chose, so that each robot alone chooses best.

The targets are lambda-returns (Daley and Amato, 2019), G_t = r_t + gamma ((1 - lambda) max Q_t+1 + lambda G_t+1),
computed once for a rollout with the networks before its gradient steps. Of the state that a time-out cuts off nothing
is known: that step teaches nothing, and the one before it relies on its value alone.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import optax

from testudo_policies.distributed import split
from testudo_policies.learning.losses import Batch, value_statistics
from testudo_policies.learning.rollout import RolloutState, begin, flat
from testudo_policies.learning.run_learner import RunLearner
from testudo_policies.learning.team_values import (
    TeamSteps,
    action_values,
    by_world,
    epsilon_greedy,
    exploration,
    lambda_returns,
    mean_square,
    observe_unit,
    taken,
    team_mean,
    worlds_of,
)
from testudo_policies.learning.train_state import Metrics, TrainState, first_features, gradient_step, report, typed
from testudo_policies.networks.agent import AgentParameters


@dataclass(frozen=True)
class PQNVDN(RunLearner):
    """The learner of one run; its networks' scores are values of the choices in units of their deviation."""

    def init(self, key: jax.Array) -> TrainState:
        """Return the state before the first update."""
        world_key, network_key, key = jax.random.split(key, 3)
        rollout = begin(self.agent, self.environment, world_key, self.config.worlds)
        features, central = first_features(self.agent, self.environment, rollout)
        parameters = replace(self.agent.init(network_key, features, central), critic={})
        optimiser = self._optimiser.init(parameters.actor)
        return jax.tree.map(typed, TrainState(parameters, optimiser, rollout, key, jnp.zeros((), jnp.int32)))

    def update(self, state: TrainState) -> tuple[TrainState, Metrics]:
        """Run one rollout and learn from it."""
        rollout_key, learn_key, key = jax.random.split(state.key, 3)
        epsilon, memory = exploration(self.config, state.updates), state.rollout.hidden
        rollout, batch, figures = self.collect(state, rollout_key, explore=epsilon_greedy(epsilon))
        parameters = self.agent.observe(state.parameters, batch.features, batch.counted)
        parameters = observe_unit(self.agent, parameters, TeamSteps.of(batch, self._team), self.config.discount)
        target = self._targets(parameters, batch, memory, rollout)
        parameters, optimiser, losses = self._learn(parameters, state.optimiser, batch, memory, target, learn_key)
        losses |= {"train/exploration": epsilon}
        return (
            TrainState(parameters, optimiser, rollout, key, state.updates + 1),
            report(batch, figures, self.environment, rollout, losses),
        )

    def _targets(
        self, parameters: AgentParameters, batch: Batch, memory: jax.Array, rollout: RolloutState
    ) -> jax.Array:
        """Return the lambda-returns (T, E) of a rollout that ended in a state."""
        steps, config = TeamSteps.of(batch, self._team), self.config
        best = self._best(parameters, batch.features, memory, batch.fresh, steps.counted)
        # the robots that count after the rollout are not known yet: those of its last step
        now = jax.tree.map(lambda x: x[None], flat(self.agent.encode(self.environment.signals(rollout.worlds))))
        fresh = jnp.repeat(rollout.fresh, self._team)[None]
        after = self._best(parameters, now, rollout.hidden, fresh, steps.counted[-1:])
        return lambda_returns(steps, jnp.concatenate([best, after]), config.discount, config.trace)

    def _best(
        self, parameters: AgentParameters, features: Any, memory: jax.Array, fresh: jax.Array, counted: jax.Array
    ) -> jax.Array:
        """Return the value (T, E) of the best choices."""
        values = action_values(self.agent, parameters, features, memory, fresh)
        return team_mean(by_world(jnp.max(values, axis=-1), self._team), counted)

    def _learn(
        self,
        parameters: AgentParameters,
        optimiser: Any,
        batch: Batch,
        memory: jax.Array,
        target: jax.Array,
        key: jax.Array,
    ) -> tuple[AgentParameters, Any, Metrics]:
        """Take the gradient steps of all epochs; a minibatch has the whole sequences of some worlds."""
        team, worlds = self._team, target.shape[1]

        def step(carry: Any, chosen: jax.Array) -> Any:
            current, moments = carry
            part = split(worlds_of(batch, chosen, team), self.mesh, axis=1)
            before, aims = worlds_of(memory[None], chosen, team)[0], target[:, chosen]
            steps = TeamSteps.of(part, team)

            def loss(actor: Any) -> tuple[jax.Array, Metrics]:
                trial = replace(current, actor=actor)
                values = action_values(self.agent, trial, part.features, before, part.fresh)
                value = team_mean(by_world(taken(values, part.action), team), steps.counted)
                scale = self.agent.value_scale(current)
                total = mean_square((value - aims) / scale, steps.teaches)
                return total, {"loss/value": total, **value_statistics(value, aims, steps.teaches, scale)}

            actor, moments, losses = gradient_step(loss, self._optimiser, current.actor, moments)
            return (replace(current, actor=actor), moments), losses

        def epoch(carry: Any, epoch_key: jax.Array) -> Any:
            order = jax.random.permutation(epoch_key, worlds).reshape(self.config.minibatches, -1)
            return jax.lax.scan(step, carry, order)

        keys = jax.random.split(key, self.config.epochs)
        (parameters, optimiser), losses = jax.lax.scan(epoch, (parameters, optimiser), keys)
        return parameters, optimiser, jax.tree.map(jnp.mean, losses)

    @property
    def _team(self) -> int:
        return self.environment.team.size

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        return optax.chain(optax.clip_by_global_norm(self.config.max_gradient), optax.radam(self.falling_rate()))
