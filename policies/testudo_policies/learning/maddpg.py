"""MADDPG: deterministic policies of velocities, and a critic that knows the state and all actions.

Lowe et al., NeurIPS 2017. Each robot has its own value, since rewards may differ: y_i = r_i + gamma Q_i'(x',
mu'(o'_1) .. mu'(o'_N)), and the policy climbs Q_i(x, a_1 .. mu(o_i) .. a_N) with the others' actions from replay. All
robots share one policy and one critic, which reads them in no order.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from testudo_policies.learning.losses import Batch, value_statistics
from testudo_policies.learning.off_policy import Explore, OffPolicy
from testudo_policies.learning.team_values import TeamSteps, by_world, mean_square
from testudo_policies.learning.train_state import Metrics, gradient_step
from testudo_policies.networks.agent import AgentParameters
from testudo_policies.networks.joint_critic import joint_critic
from testudo_policies.networks.observation_encoding import Features

_FIRST, _LAST = 0.4, 0.1  # deviation of the noise on actions in -1 to 1, at the start and at the end of a run
_INSIDE = 0.999  # largest action, as one of 1 has no finite value before the tanh


@dataclass(frozen=True)
class MADDPG(OffPolicy):
    """The learner of one run."""

    followed: ClassVar[float] = 0.02

    def critic(self, key: jax.Array, central: Features) -> Any:
        """Return the parameters of one joint critic."""
        return init_joint_critic(self, key, central)

    def moments(self, parameters: AgentParameters) -> Any:
        """Return the states of the optimisers of actor and critic."""
        return self.adam().init(parameters.actor), self.adam().init(parameters.critic)

    def explore(self, updates: jax.Array) -> tuple[Explore, Metrics]:
        """Return the policy's actions with normal noise, which falls during the run."""
        noise = _FIRST + (_LAST - _FIRST) * updates / self.config.updates

        def act(output: jax.Array, key: jax.Array) -> jax.Array:
            action = self._mean(output)
            action = action + noise * jax.random.normal(key, action.shape)
            return jnp.arctanh(jnp.clip(action, -_INSIDE, _INSIDE))

        return act, {"train/exploration": jnp.asarray(noise, jnp.float32)}

    def step(
        self, parameters: AgentParameters, moments: Any, slow: AgentParameters, batch: Batch, key: jax.Array
    ) -> tuple[AgentParameters, Any, Metrics]:
        """Take a step of the critic, then one of the policy."""
        team, critic = self.environment.team.size, joint_critic(self.agent)
        steps, scale = TeamSteps.of(batch, team), self.agent.value_scale(parameters)
        done, did = steps.terminated[:-1, :, None], by_world(jnp.tanh(batch.action), team)
        reward, counted = by_world(batch.reward, team), steps.counted
        known = (counted & ~steps.truncated[..., None])[:-1]
        after: Any = critic.apply(slow.critic, batch.central, self._policy(slow, batch), counted)
        target = reward[:-1] / scale + self.config.discount * jnp.where(done, 0.0, after[1:])

        def critic_loss(learned: Any) -> tuple[jax.Array, Metrics]:
            value: Any = critic.apply(learned, batch.central, did, counted)
            total = mean_square(value[:-1] - target, known)
            return total, {"loss/value": total, **value_statistics(scale * value[:-1], scale * target, known, scale)}

        learned, critic_moments, losses = gradient_step(
            critic_loss, self.adam(), parameters.critic, moments[1], "critic"
        )
        parameters = replace(parameters, critic=learned)

        def actor_loss(actor: Any) -> tuple[jax.Array, Metrics]:
            own = self._policy(replace(parameters, actor=actor), batch)

            def value_of(robot: jax.Array) -> jax.Array:
                chosen = jnp.arange(team) == robot
                found: Any = critic.apply(learned, batch.central, jnp.where(chosen[:, None], own, did), counted)
                return jnp.where(counted & chosen, found, 0.0)

            total = -jnp.sum(jax.vmap(value_of)(jnp.arange(team))) / jnp.maximum(jnp.sum(counted), 1)
            return total, {"loss/actor": total}

        actor, actor_moments, more = gradient_step(actor_loss, self.adam(), parameters.actor, moments[0], "actor")
        return replace(parameters, actor=actor), (actor_moments, critic_moments), losses | more

    def _policy(self, parameters: AgentParameters, batch: Batch) -> jax.Array:
        """Return the actions (T, E, N, A) of the policy."""
        output, _ = self.agent.act(parameters, batch.features, self.memory_before(batch), batch.fresh)
        return by_world(self._mean(output), self.environment.team.size)

    def _mean(self, output: jax.Array) -> jax.Array:
        return jnp.tanh(output[..., : self.agent.action_size])


def init_joint_critic(learner: OffPolicy, key: jax.Array, central: Features) -> Any:
    """Return fresh parameters of a joint critic for features (B, ...)."""
    team = learner.environment.team.size
    counted = jnp.ones((1, central.own.shape[0] // team, team), bool)
    action = jnp.zeros((*counted.shape, learner.agent.action_size))
    now = jax.tree.map(lambda x: x[None], central)
    return joint_critic(learner.agent).init(key, now, action, counted)
