"""A choice of a way-point beside a learned message: a categorical distribution and a Gaussian before the tanh."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from testudo_policies.networks.brax_imports import NormalTanhDistribution, gaussian_divergence
from testudo_policies.networks.waypoint_choice import WaypointChoice


@dataclass(frozen=True)
class SpokenChoice:
    """The distribution of a way-point and, independent of it, of a message of M numbers in -1 to 1.

    Its parameters (..., K + 2 M) are the scores of the choices, then mean and raw scale of the message. An action
    (..., 1 + M) is the index of the choice and the message before the tanh, until `postprocess` or `mode` turn it into
    the weights of the choices and the message (..., K + M). The methods are those of brax's distributions.
    """

    choice: WaypointChoice
    message_size: int

    @property
    def _message(self) -> NormalTanhDistribution:
        return NormalTanhDistribution(self.message_size)

    def _parts(self, parameters: jax.Array) -> tuple[jax.Array, jax.Array]:
        return parameters[..., : self.choice.count], parameters[..., self.choice.count :]

    def sample_no_postprocessing(self, parameters: jax.Array, key: jax.Array) -> jax.Array:
        """Return random actions (..., 1 + M)."""
        scores, rest = self._parts(parameters)
        choice_key, message_key = jax.random.split(key)
        chosen = self.choice.sample_no_postprocessing(scores, choice_key).astype(jnp.float32)
        return jnp.concatenate([chosen[..., None], self._message.sample_no_postprocessing(rest, message_key)], axis=-1)

    def postprocess(self, action: jax.Array) -> jax.Array:
        """Return weights and message (..., K + M) of actions (..., 1 + M)."""
        return jnp.concatenate([self.choice.postprocess(action[..., 0]), jnp.tanh(action[..., 1:])], axis=-1)

    def mode(self, parameters: jax.Array) -> jax.Array:
        """Return the weights of the choice with the highest score, and the mean message (..., K + M)."""
        scores, rest = self._parts(parameters)
        return jnp.concatenate([self.choice.mode(scores), self._message.mode(rest)], axis=-1)

    def log_prob(self, parameters: jax.Array, action: jax.Array) -> jax.Array:
        """Return the logarithm of the probability density (...) of actions (..., 1 + M)."""
        scores, rest = self._parts(parameters)
        return self.choice.log_prob(scores, action[..., 0]) + self._message.log_prob(rest, action[..., 1:])

    def entropy(self, parameters: jax.Array, key: jax.Array) -> jax.Array:
        """Return the entropy (...): exact for the choice, sampled with ``key`` for the message."""
        scores, rest = self._parts(parameters)
        return self.choice.entropy(scores, key) + self._message.entropy(rest, key)

    def divergence(self, parameters: jax.Array, teacher: jax.Array) -> jax.Array:
        """Return KL(teacher || policy) (...) of choice and message."""
        (scores, rest), (theirs, said) = self._parts(parameters), self._parts(teacher)
        return self.choice.divergence(scores, theirs) + gaussian_divergence(self._message, rest, said)
