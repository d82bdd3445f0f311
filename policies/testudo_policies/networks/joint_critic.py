"""A critic of the actions of a whole team: it knows the true state and what every robot does.

As the actor, it fits a team of any size: the same layers read each robot with its action, and the team is their mean.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

from testudo_policies.networks.actor_critic import TeamEncoder
from testudo_policies.networks.agent import Agent
from testudo_policies.networks.observation_encoding import Features


class JointCritic(nn.Module):
    """Maps the state of a world and the actions of its robots to a value for each robot."""

    width: int
    attention: bool = False

    @nn.compact
    def __call__(self, central: Features, action: jax.Array, counted: jax.Array) -> jax.Array:
        """Return values (T, E, N), in units of the deviation of returns.

        Args:
            central: true features (T, E * N, ...).
            action: (T, E, N, A) in -1 to 1, in the frame of each robot's features.
            counted: (T, E, N) bool: the robots that take part.
        """
        state = TeamEncoder(self.width, self.attention)(central).reshape(*counted.shape, self.width)
        own = nn.relu(nn.Dense(self.width, name="act")(jnp.concatenate([state, action], axis=-1)))
        present = jnp.where(counted[..., None], own, 0.0)
        team = jnp.sum(present, axis=-2) / jnp.maximum(jnp.sum(counted, axis=-1), 1)[..., None]
        team = jnp.broadcast_to(team[..., None, :], own.shape)
        x = nn.relu(nn.Dense(self.width, name="joined")(jnp.concatenate([own, team], axis=-1)))
        return nn.Dense(1, name="value")(x)[..., 0]


def joint_critic(agent: Agent) -> JointCritic:
    """Return the critic with the sizes and the encoder of an agent."""
    return JointCritic(agent.config.width, agent.config.attention)
