"""VDN: Q-learning from replay for teams, with the value of a world decomposed into those of its robots.

Sunehag et al., AAMAS 2018: Q(s, a_1 .. a_N) = mean of Q_i(o_i, a_i), learned from the reward of the team alone, with a
double-Q target (van Hasselt et al., 2016): r + gamma Q'(s', argmax Q(s', .)) with slowly following networks Q'. The
step that a time-out ends has no next state in the replay, and teaches nothing. `QMIX` puts a network in place of the
mean.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from testudo_policies.learning.losses import Batch, value_statistics
from testudo_policies.learning.off_policy import Explore, OffPolicy
from testudo_policies.learning.team_values import (
    TeamSteps,
    action_values,
    by_world,
    epsilon_greedy,
    exploration,
    mean_square,
    taken,
    team_mean,
)
from testudo_policies.learning.train_state import Metrics, gradient_step
from testudo_policies.networks.agent import AgentParameters
from testudo_policies.networks.observation_encoding import Features


@dataclass(frozen=True)
class VDN(OffPolicy):
    """The learner of one run; its networks' scores are values of the choices in units of their deviation."""

    followed: ClassVar[float] = 0.04

    def critic(self, key: jax.Array, central: Features) -> Any:
        """Return no parameters: the values of the robots need none to be put together."""
        return {}

    def mixed(self, parameters: AgentParameters, values: jax.Array, batch: Batch, counted: jax.Array) -> jax.Array:
        """Return the value (T, E) of a world from those of its robots (T, E, N)."""
        return team_mean(values, counted)

    def moments(self, parameters: AgentParameters) -> Any:
        """See `OffPolicy`."""
        return self.adam().init((parameters.actor, parameters.critic))

    def explore(self, updates: jax.Array) -> tuple[Explore, Metrics]:
        """Return epsilon-greedy choices."""
        epsilon = exploration(self.config, updates)
        return epsilon_greedy(epsilon), {"train/exploration": epsilon}

    def step(
        self, parameters: AgentParameters, moments: Any, slow: AgentParameters, batch: Batch, key: jax.Array
    ) -> tuple[AgentParameters, Any, Metrics]:
        """See `OffPolicy`."""
        team, memory = self.environment.team.size, self.memory_before(batch)
        steps = TeamSteps.of(batch, team)
        slow_values = by_world(action_values(self.agent, slow, batch.features, memory, batch.fresh), team)

        def loss(learned: Any) -> tuple[jax.Array, Metrics]:
            trial = replace(parameters, actor=learned[0], critic=learned[1])
            values = by_world(action_values(self.agent, trial, batch.features, memory, batch.fresh), team)
            value = self.mixed(trial, taken(values, by_world(batch.action, team)), batch, steps.counted)
            best = taken(slow_values, jnp.argmax(values, axis=-1))
            after = self.mixed(slow, best, batch, steps.counted)[1:]
            future = jnp.where(steps.terminated[:-1], 0.0, after)
            target = jax.lax.stop_gradient(steps.reward[:-1] + self.config.discount * future)
            scale, teaches = self.agent.value_scale(parameters), steps.teaches[:-1]
            total = mean_square((value[:-1] - target) / scale, teaches)
            return total, {"loss/value": total, **value_statistics(value[:-1], target, teaches, scale)}

        learned = (parameters.actor, parameters.critic)
        (actor, critic), moments, losses = gradient_step(loss, self.adam(), learned, moments)
        return replace(parameters, actor=actor, critic=critic), moments, losses
