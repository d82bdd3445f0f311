"""Actor and critic: permutation-invariant over neighbours, feed-forward or with a GRU.

The same small network encodes every neighbour, and the results are pooled by their maximum, so that a
policy trained with four robots runs with any number (Deep Sets, Zaheer et al., 2017). With ``attention`` the robot
attends to its neighbours and the entities of the task together, as nodes with a type (Nayak et al., InforMARL, 2023).
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from testudo_policies.networks.observation_encoding import Features
from testudo_policies.networks.waypoint_choice import WaypointChoice

_INITIAL_SCALE = -1.0  # initial raw scale of the actions: small enough that the shield rarely changes them

_ABSENT = -1e3  # score of an entity that is not there
_NO_ENTITY = 1e-6  # added to the sum of the weights, which is zero where no entity is present
_HEADS, _ROUNDS = 4, 2  # of the attention


@dataclass(frozen=True)
class NetworkConfig:
    """Sizes of the networks."""

    width: int = 64  # units of every hidden layer
    memory: int = 0  # units of the GRU; 0 is feed-forward
    central_critic: bool = True
    """MAPPO: the critic reads the true state of the team; else IPPO: it reads what the actor reads."""
    attention: bool = False  # neighbours and entities are attended to; else neighbours are pooled
    critic_memory: int = 0  # units of the central critic's GRU; it then also knows what was drawn for the world
    drop_out: float = 0.0  # share of neighbours and entities that the actor does not see in training
    most_neighbours: int = 0  # that the actor sees at once, see `without_surplus`; 0: all


class TeamEncoder(nn.Module):
    """Encodes own features and pooled neighbours as one vector (..., width)."""

    width: int
    attention: bool = False

    @nn.compact
    def __call__(self, features: Features) -> jax.Array:
        """Return the encoding (..., width)."""
        if self.attention:
            return self._attended(features)
        each = nn.tanh(nn.Dense(self.width, name="neighbour_1")(features.neighbours))
        each = nn.sigmoid(nn.Dense(self.width, name="neighbour_2")(each))
        # an absent neighbour has the same effect as a distant one, so that team size does not matter
        pooled = jnp.max(each * features.nearness[..., None], axis=-2)
        groups = [self._entities(features, group) for group in sorted(features.entities)]
        joined = jnp.concatenate([features.own, pooled, *groups], axis=-1)
        return nn.tanh(nn.Dense(self.width, name="joined")(joined))

    def _attended(self, features: Features) -> jax.Array:
        """Return own features with what is seen (..., width): in each round the robot looks at all of it anew."""
        own = nn.tanh(nn.Dense(self.width, name="own")(features.own))
        groups = [("neighbour", features.neighbours, features.nearness)]
        groups += [(name, features.entities[name], features.presence[name]) for name in sorted(features.entities)]
        # a layer of its own for each group is the embedding of its type
        seen = [(nn.tanh(nn.Dense(self.width, name=f"{name}_seen")(each)), weight) for name, each, weight in groups]
        for number in range(_ROUNDS):
            found = self._looked_up(own, seen, f"_{number}")
            own = nn.tanh(nn.Dense(self.width, name=f"mixed_{number}")(jnp.concatenate([own, found], axis=-1)))
        return nn.tanh(nn.Dense(self.width, name="joined")(jnp.concatenate([features.own, own], axis=-1)))

    def _looked_up(self, own: jax.Array, seen: list[tuple[jax.Array, jax.Array]], number: str) -> jax.Array:
        """Return the attended values (..., width) of nodes (..., K, width) with weights (..., K).

        Nothing has the score 0 and the value 0, so that one far neighbour counts as little as its weight says. Heads
        are blocks of the width, which a constant matrix sums, as the exported graph cannot reshape free axes.
        """
        heads = _HEADS if self.width % _HEADS == 0 else 1
        blocks = np.kron(np.eye(heads, dtype=np.float32), np.ones((self.width // heads, 1), np.float32))
        query = nn.Dense(self.width, name=f"query{number}")(own)[..., None, :]
        key, value = (nn.Dense(self.width, name=f"{name}{number}") for name in ("key", "value"))
        scale = float(np.sqrt(heads / self.width))
        scores = [
            jnp.where(weight[..., None] > 0, scale * ((query * key(each)) @ blocks), _ABSENT) for each, weight in seen
        ]
        highest = jnp.zeros_like(scores[0][..., 0, :])
        for score in scores:
            highest = jnp.maximum(highest, jnp.max(score, axis=-2))
        total, found = jnp.exp(-highest), jnp.zeros_like(own)
        for (each, weight), score in zip(seen, scores, strict=True):
            shares = weight[..., None] * jnp.exp(score - highest[..., None, :])
            total = total + jnp.sum(shares, axis=-2)
            found = found + jnp.sum((shares @ blocks.T) * value(each), axis=-2)
        return found / (total @ blocks.T)

    def _entities(self, features: Features, group: str) -> jax.Array:
        """Return the entities of a group as one vector (..., width), weighted by attention; zero without any.

        The own features take part in the weights, since which entity matters depends on the robot.
        """
        each, present = features.entities[group], features.presence[group]
        own = jnp.broadcast_to(features.own[..., None, :], (*each.shape[:-1], features.own.shape[-1]))
        seen = nn.tanh(nn.Dense(self.width, name=f"{group}_1")(jnp.concatenate([each, own], axis=-1)))
        score = jnp.where(present > 0, nn.Dense(1, name=f"{group}_score")(seen)[..., 0], _ABSENT)
        weight = jnp.exp(score - jnp.max(score, axis=-1, keepdims=True)) * present
        weight = weight / (jnp.sum(weight, axis=-1, keepdims=True) + _NO_ENTITY)
        return jnp.sum(weight[..., None] * nn.Dense(self.width, name=f"{group}_2")(seen), axis=-2)


class Actor(nn.Module):
    """Maps features and memory to the parameters of the action distribution."""

    config: NetworkConfig
    action_size: int
    waypoints: WaypointChoice | None = None  # the choices of an actor that scores way-points

    def setup(self) -> None:
        """Create the layers."""
        self.encoder = TeamEncoder(self.config.width, self.config.attention)
        if self.config.memory:
            self.memory = nn.GRUCell(self.config.memory)
        self.head = nn.Dense(self.config.width)
        self.mean = nn.Dense(self.action_size, kernel_init=nn.initializers.orthogonal(0.01))
        choices = 0 if self.waypoints is None else self.waypoints.count
        if choices < self.action_size:  # the rest, such as a message beside the choice of a way-point, is continuous
            initial = nn.initializers.constant(_INITIAL_SCALE)
            self.scale = self.param("scale", initial, (self.action_size - choices,))

    def __call__(self, features: Features, hidden: jax.Array, fresh: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Apply the network over time.

        Args:
            features: arrays (T, B, ...).
            hidden: (B, M) memory before the first step.
            fresh: (T, B) bool: an episode begins at this step, so memory is cleared before it.

        Returns:
            Mean and raw scale (T, B, 2 * action_size), or the scores of way-points and then mean and raw scale of any
            message, and the memory after the last step.
        """
        x = self.encoder(features)
        if self.config.memory:
            scan = nn.scan(_gru_step, variable_broadcast="params", split_rngs={"params": False})
            hidden, x = scan(self, hidden, (x, fresh))
        return self._distribution(features, x), hidden

    def step(self, features: Features, hidden: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Apply the network to one step with features (B, ...); see `__call__`."""
        x = self.encoder(features)
        if self.config.memory:
            hidden, x = self.memory(hidden, x)
        return self._distribution(features, x), hidden

    def _distribution(self, features: Features, x: jax.Array) -> jax.Array:
        # the initial policy follows the declared pull
        if self.waypoints is not None:
            found, count = self.mean(nn.tanh(self.head(x))), self.waypoints.count
            if count == self.action_size:
                return found + self.waypoints.scores_of(features.pull)
            said = found[..., count:]
            scores = found[..., :count] + self.waypoints.scores_of(features.pull)
            return jnp.concatenate([scores, said, jnp.broadcast_to(self.scale, said.shape)], axis=-1)
        mean = self.mean(nn.tanh(self.head(x))) + self._pull(features)
        return jnp.concatenate([mean, jnp.broadcast_to(self.scale, mean.shape)], axis=-1)

    def _pull(self, features: Features) -> jax.Array:
        """Return the initial action, padded with zeros for a yaw rate and a message."""
        missing = self.action_size - features.pull.shape[-1]
        if not missing:
            return features.pull
        return jnp.concatenate([features.pull, *[0 * features.pull[..., :1]] * missing], axis=-1)


class Critic(nn.Module):
    """Maps features to the value of each robot's state."""

    config: NetworkConfig

    @nn.compact
    def __call__(self, features: Features) -> jax.Array:
        """Return values (...)."""
        x = TeamEncoder(self.config.width, self.config.attention)(features)
        x = nn.tanh(nn.Dense(self.config.width, name="head")(x))
        return nn.Dense(1, kernel_init=nn.initializers.orthogonal(1.0), name="value")(x)[..., 0]


class RecurrentCritic(nn.Module):
    """Maps features over time to the value of each robot's state, with a memory as the actor's."""

    config: NetworkConfig

    def setup(self) -> None:
        """Create the layers."""
        self.encoder = TeamEncoder(self.config.width, self.config.attention)
        self.memory = nn.GRUCell(self.config.critic_memory)
        self.head = nn.Dense(self.config.width)
        self.worth = nn.Dense(1, kernel_init=nn.initializers.orthogonal(1.0))

    def __call__(self, features: Features, hidden: jax.Array, fresh: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return values (T, B) and the memory after the last step; the arguments are as those of `Actor`."""
        scan = nn.scan(_gru_step, variable_broadcast="params", split_rngs={"params": False})
        hidden, x = scan(self, hidden, (self.encoder(features), fresh))
        return self.worth(nn.tanh(self.head(x)))[..., 0], hidden


def _gru_step(
    actor: Actor | RecurrentCritic, hidden: jax.Array, step: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    """Apply the GRU to one time step, with memory cleared where an episode begins."""
    x, fresh = step
    after: tuple[jax.Array, jax.Array] = actor.memory(jnp.where(fresh[:, None], 0.0, hidden), x)
    return after
