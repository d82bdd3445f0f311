"""A small policy network with every part of a real one, without training: for tests of export."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from testudo_deploy.contract.rules import graph_inputs


class TinyNetwork(nn.Module):
    """Neighbours in the goal's frame, per-neighbour layers, maximum, GRU, bounded command."""

    dimension: int
    limit: float
    width: int = 16
    memory: bool = True

    @nn.compact
    def __call__(self, signals, hidden):
        point = signals["control_point_world"]
        to_goal = signals["goal_world"] - point
        distance = jnp.sqrt(jnp.sum(to_goal[:, :2] ** 2, -1, keepdims=True) + 1e-6)
        cosine, sine = to_goal[:, 0:1] / distance, to_goal[:, 1:2] / distance
        offset = signals["neighbour_position_world"] - point[:, None, :]
        across = (cosine[:, :, None], sine[:, :, None])
        valid = signals["neighbour_valid"][..., None]
        features = jnp.concatenate(
            [
                _rotate(offset, across[0], -across[1]),
                _rotate(signals["neighbour_velocity_world"], across[0], -across[1]),
                jnp.linalg.norm(offset, axis=-1, keepdims=True),
                signals["neighbour_age"][..., None],
                valid,
            ],
            axis=-1,
        )
        encoded = nn.relu(nn.Dense(self.width)(nn.relu(nn.Dense(self.width)(features))))
        pooled = jnp.max(encoded * valid, axis=1)
        yaw = signals["yaw"]
        own = [distance, jnp.cos(yaw), jnp.sin(yaw), signals["velocity"], pooled]
        mixed = nn.tanh(nn.Dense(self.width)(jnp.concatenate(own, axis=-1)))
        if self.memory:
            hidden, mixed = nn.GRUCell(hidden.shape[-1])(hidden, mixed)
        mean = nn.Dense(self.dimension)(nn.tanh(nn.Dense(self.width)(mixed)))
        # a tanh of the length would keep the direction; per axis is enough here
        return self.limit * _rotate(jnp.tanh(mean), cosine, sine), hidden


def _rotate(vector, cosine, sine):
    x, y = vector[..., 0:1], vector[..., 1:2]
    turned = [cosine * x - sine * y, sine * x + cosine * y]
    return jnp.concatenate([*turned, vector[..., 2:]], axis=-1)


def tiny_step(contract, inputs, width=16):
    """Return a step function with fresh parameters; ``inputs`` (B, ...) by name give the shapes."""
    network = TinyNetwork(contract.dimension, contract.command.limit / 2, width, contract.hidden_size > 0)
    signals = {name: inputs[name] for name in graph_inputs(contract) if name != "hidden"}
    hidden = jnp.zeros((len(inputs["yaw"]), contract.hidden_size))
    parameters = jax.device_get(jax.jit(network.init)(jax.random.key(0), signals, hidden))
    return lambda signals, hidden: network.apply(parameters, signals, hidden)
