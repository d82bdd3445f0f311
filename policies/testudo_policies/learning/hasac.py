"""HASAC: soft actor-critic for teams, whose robots change their policy one after the other.

Liu et al., ICLR 2024. A twin critic knows the state and all actions, and learns the reward of the team with the
entropies of all robots: y = r + gamma (min Q'(s', a') - alpha log pi(a')), with the means over the robots. At a
gradient step the robots take their turns in a random order: each climbs Q(s, a_before, a_m, a_after) - alpha log
pi(a_m), where those before it act by the policy that they have already changed (`soft_turns`). In `MASAC` all change
at once. The temperature alpha follows a target entropy of minus the size of an action.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import optax

from testudo_policies.learning.losses import Batch, value_statistics
from testudo_policies.learning.maddpg import init_joint_critic
from testudo_policies.learning.off_policy import Explore, OffPolicy
from testudo_policies.learning.sharing import for_each_group
from testudo_policies.learning.soft_turns import SoftTeam, turns_of
from testudo_policies.learning.team_values import TeamSteps, by_world, mean_square, team_mean
from testudo_policies.learning.train_state import Metrics, gradient_step
from testudo_policies.networks.agent import AgentParameters
from testudo_policies.networks.joint_critic import joint_critic
from testudo_policies.networks.observation_encoding import Features

_TWINS = ("first", "second")
_FIRST_TEMPERATURE = 0.1


@dataclass(frozen=True)
class HASAC(OffPolicy):
    """The learner of one run; its critic is a pair of joint critics and the logarithm of the temperature."""

    followed: ClassVar[float] = 0.02
    in_turns: ClassVar[bool] = True  # false: all robots change their policy at once

    def critic(self, key: jax.Array, central: Features) -> Any:
        """Return the parameters of both critics and of the temperature."""
        keys = jax.random.split(key)
        twins = {name: init_joint_critic(self, key, central) for name, key in zip(_TWINS, keys, strict=True)}
        return {**twins, "log_temperature": jnp.log(jnp.asarray(_FIRST_TEMPERATURE))}

    def moments(self, parameters: AgentParameters) -> Any:
        """Return the states of the optimisers of actor, critics and temperature."""
        critic = parameters.critic
        return (
            self._actor_optimiser.init(parameters.actor),
            self.adam().init({name: critic[name] for name in _TWINS}),
            self.adam().init(critic["log_temperature"]),
        )

    def explore(self, updates: jax.Array) -> tuple[Explore, Metrics]:
        """Return draws from the policy."""
        return self.agent.distribution.sample_no_postprocessing, {}

    def step(
        self, parameters: AgentParameters, moments: Any, slow: AgentParameters, batch: Batch, key: jax.Array
    ) -> tuple[AgentParameters, Any, Metrics]:
        """Take a step of the critics, one of each robot's policy, and one of the temperature."""
        critic_key, order_key, actor_key = jax.random.split(key, 3)
        actor_moments, critic_moments, temperature_moments = moments
        parameters, critic_moments, losses = self._critic_step(parameters, critic_moments, slow, batch, critic_key)
        parameters, actor_moments, log_probability, more = self._actor_steps(
            parameters, actor_moments, batch, order_key, actor_key
        )
        surplus = jax.lax.stop_gradient(log_probability) - self.agent.action_size

        def temperature_loss(log_temperature: jax.Array) -> tuple[jax.Array, Metrics]:
            return -log_temperature * surplus, {"train/temperature": jnp.exp(log_temperature)}

        log_temperature, temperature_moments, shown = gradient_step(
            temperature_loss, self.adam(), parameters.critic["log_temperature"], temperature_moments, "temperature"
        )
        critic = {**parameters.critic, "log_temperature": log_temperature}
        moments = (actor_moments, critic_moments, temperature_moments)
        return replace(parameters, critic=critic), moments, losses | more | shown

    def _critic_step(
        self, parameters: AgentParameters, moments: Any, slow: AgentParameters, batch: Batch, key: jax.Array
    ) -> tuple[AgentParameters, Any, Metrics]:
        team, scale = self.environment.team.size, self.agent.value_scale(parameters)
        steps, did = TeamSteps.of(batch, team), by_world(jnp.tanh(batch.action), team)
        action, log_probability = self._drawn(parameters, batch, key)
        soft = self._value(slow.critic, batch, action, steps.counted)
        soft -= self._temperature(parameters) * team_mean(log_probability, steps.counted)
        future = jnp.where(steps.terminated[:-1], 0.0, soft[1:])
        target = jax.lax.stop_gradient(steps.reward[:-1] / scale + self.config.discount * future)

        def loss(twins: Any) -> tuple[jax.Array, Metrics]:
            values = [self._one_value(twins[name], batch, did, steps.counted)[:-1] for name in _TWINS]
            total = jnp.zeros(())
            for name, value in zip(_TWINS, values, strict=True):
                total += self.critic_loss(twins[name], batch, steps, value, target)
            told = value_statistics(scale * values[0], scale * target, steps.teaches[:-1], scale)
            return total, {"loss/value": total, **told}

        learned = {name: parameters.critic[name] for name in _TWINS}
        twins, moments, losses = gradient_step(loss, self.adam(), learned, moments, "critic")
        return replace(parameters, critic={**parameters.critic, **twins}), moments, losses

    def critic_loss(self, twin: Any, batch: Batch, steps: TeamSteps, value: jax.Array, target: jax.Array) -> jax.Array:
        """Return the loss () of one critic, from its values and their targets (T - 1, E)."""
        return mean_square(value - target, steps.teaches[:-1])

    def _actor_steps(
        self, parameters: AgentParameters, moments: Any, batch: Batch, order_key: jax.Array, key: jax.Array
    ) -> tuple[AgentParameters, Any, jax.Array, Metrics]:
        """Return parameters, the optimiser's state, the mean log-probability of an action, and losses."""
        size = self.environment.team.size
        counted = TeamSteps.of(batch, size).counted
        team = SoftTeam(
            lambda actor: self._drawn(replace(parameters, actor=actor), batch, key),
            lambda action: self._value(parameters.critic, batch, action, counted),
            self._temperature(parameters),
            counted,
            self._actor_optimiser,
            self.agent.groups,
        )
        turns = turns_of(order_key, size, in_turns=self.in_turns)
        actor, moments, losses = team.changed(parameters.actor, moments, turns)
        return replace(parameters, actor=actor), moments, losses["train/log_probability"], losses

    def _drawn(self, parameters: AgentParameters, batch: Batch, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return actions (T, E, N, A) of the policy and the logarithm of their probability density (T, E, N)."""
        output, _ = self.agent.act(parameters, batch.features, self.memory_before(batch), batch.fresh)
        distribution, team = self.agent.distribution, self.environment.team.size
        raw = distribution.sample_no_postprocessing(output, key)
        return by_world(distribution.postprocess(raw), team), by_world(distribution.log_prob(output, raw), team)

    def _value(self, critic: Any, batch: Batch, action: jax.Array, counted: jax.Array) -> jax.Array:
        """Return the lower of the twins' values (T, E)."""
        return jnp.minimum(*(self._one_value(critic[name], batch, action, counted) for name in _TWINS))

    def _one_value(self, twin: Any, batch: Batch, action: jax.Array, counted: jax.Array) -> jax.Array:
        found: Any = joint_critic(self.agent).apply(twin, batch.central, action, counted)
        return team_mean(found, counted)

    def _temperature(self, parameters: AgentParameters) -> jax.Array:
        return jax.lax.stop_gradient(jnp.exp(parameters.critic["log_temperature"]))

    @property
    def _actor_optimiser(self) -> optax.GradientTransformation:
        """Return the optimiser of the policy, which is used in each turn of a robot that has the parameters."""
        groups, turns = self.agent.groups, self.environment.team.size if self.in_turns else 1
        if not groups:
            return self.adam(turns)
        return for_each_group(self.adam(max(1, turns // (max(groups) + 1))))


@dataclass(frozen=True)
class MASAC(HASAC):
    """HASAC without turns: all robots change their policy at once (multi-agent SAC)."""

    in_turns: ClassVar[bool] = False
