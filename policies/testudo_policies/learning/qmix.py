"""QMIX: as VDN, but a network that knows the state of the world puts the robots' values together.

Rashid et al., ICML 2018: the value of the world never falls with that of a robot, since the weights of the mixing
network are absolute values, so that each robot alone still chooses best. Its weights come from the state: those of a
robot's value from what is true about that robot, so that a team of any size can be mixed.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from testudo_policies.learning.losses import Batch
from testudo_policies.learning.team_values import by_world, team_mean
from testudo_policies.learning.vdn import VDN
from testudo_policies.networks.actor_critic import TeamEncoder
from testudo_policies.networks.agent import AgentParameters
from testudo_policies.networks.observation_encoding import Features

_EMBEDDED = 32  # units of the mixing network, as in the paper's code


class Mixer(nn.Module):
    """Mixes the values of a team, monotonically in each."""

    width: int
    attention: bool = False

    @nn.compact
    def __call__(self, values: jax.Array, central: Features, counted: jax.Array) -> jax.Array:
        """Return values (T, E) of worlds.

        Args:
            values: (T, E, N) of the robots.
            central: true features (T, E * N, ...).
            counted: (T, E, N) bool: the robots that take part.
        """
        each = by_world(TeamEncoder(self.width, self.attention)(central), values.shape[-1])
        state = jax.vmap(team_mean, in_axes=(-1, None), out_axes=-1)(each, counted)
        weights = jnp.abs(nn.Dense(_EMBEDDED, name="weight_1")(each))
        parts = jax.vmap(team_mean, in_axes=(-1, None), out_axes=-1)(weights * values[..., None], counted)
        hidden = nn.elu(parts + nn.Dense(_EMBEDDED, name="bias_1")(state))
        weight = jnp.abs(nn.Dense(_EMBEDDED, name="weight_2")(state))
        offset = nn.Dense(1, name="bias_2")(nn.relu(nn.Dense(self.width, name="offset")(state)))[..., 0]
        return jnp.sum(hidden * weight, axis=-1) + offset


@dataclass(frozen=True)
class QMIX(VDN):
    """The learner of one run; its critic is the mixing network."""

    def critic(self, key: jax.Array, central: Features) -> Any:
        """Return fresh parameters of the mixing network."""
        team = self.environment.team.size
        worlds = central.own.shape[0] // team
        now = jax.tree.map(lambda x: x[None], central)
        return self._mixer.init(key, jnp.zeros((1, worlds, team)), now, jnp.ones((1, worlds, team), bool))

    def mixed(self, parameters: AgentParameters, values: jax.Array, batch: Batch, counted: jax.Array) -> jax.Array:
        """See `VDN.mixed`."""
        scale = self.agent.value_scale(parameters)
        found: Any = self._mixer.apply(parameters.critic, values / scale, batch.central, counted)
        return scale * found

    @property
    def _mixer(self) -> Mixer:
        return Mixer(self.agent.config.width, self.agent.config.attention)
