"""The choice of a way-point: stay, or a step along an axis of the features' frame, as a categorical distribution.

In the tasks of the Robotarium suite (arXiv 2505.06771) that frame is the world, and the five choices are to stay, and
north, south, east and west; a drone can also choose up and down.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from testudo_deploy.shield.arena import Arena

STEP_S = 1.0  # a step is the way at full speed in this time, or in a decision that takes longer
_EDGE_M = 0.1  # way-points are at least this far inside the arena
_PULL_WEIGHT = 2.0  # score of a direction over the pull of the features along it


@dataclass(frozen=True)
class WaypointChoice:
    """The way-points of a robot; a score (...) per choice makes the distribution.

    An action is the index of a choice, until `postprocess` or `mode` turn it into a weight (..., K) of 1 for the choice
    and 0 for the others. The methods are those of brax's distributions.
    """

    dimension: int
    step_m: float
    bounds_world: tuple[tuple[float, ...], tuple[float, ...]] | None  # low and high [m]; None without an arena

    @classmethod
    def create(cls, speed_limit_m_s: float, decision_s: float, arena: Arena | None, dimension: int) -> "WaypointChoice":
        """Return the way-points of a robot at decisions of ``decision_s``."""
        step_m = speed_limit_m_s * max(STEP_S, decision_s)
        if arena is None:
            return cls(dimension, step_m, None)
        low = tuple(min(a + _EDGE_M, (a + b) / 2) for a, b in zip(arena.low_world, arena.high_world, strict=True))
        high = tuple(max(b - _EDGE_M, (a + b) / 2) for a, b in zip(arena.low_world, arena.high_world, strict=True))
        return cls(dimension, step_m, (low, high))

    @property
    def count(self) -> int:
        """Return the number K of choices."""
        return 2 * self.dimension + 1

    def offset(self, weights: jax.Array) -> jax.Array:
        """Return the step (..., D) [m] of weights (..., K), in the features' frame."""
        east, west, north, south = (weights[..., k : k + 1] for k in (3, 4, 1, 2))
        up_down = (weights[..., 5:6] - weights[..., 6:7],) if self.dimension > 2 else ()
        return self.step_m * jnp.concatenate([east - west, north - south, *up_down], axis=-1)

    def nearest(self, offset: jax.Array) -> jax.Array:
        """Return the choices (...) whose steps are nearest to offsets (..., D) [m], in the features' frame."""
        steps = self.offset(jnp.eye(self.count))
        return jnp.argmin(jnp.sum((offset[..., None, :] - steps) ** 2, axis=-1), axis=-1)

    def scores_of(self, pull: jax.Array) -> jax.Array:
        """Return the scores (..., K) that a pull (..., D) of the features adds."""
        x, y = pull[..., 0:1], pull[..., 1:2]
        up_down = (pull[..., 2:3], -pull[..., 2:3]) if self.dimension > 2 else ()
        return _PULL_WEIGHT * jnp.concatenate([0 * x, y, -y, x, -x, *up_down], axis=-1)

    def inside(self, waypoint_world: jax.Array) -> jax.Array:
        """Return way-points (..., D) [m] within the bounds."""
        if self.bounds_world is None:
            return waypoint_world
        low, high = (jnp.asarray(bound, jnp.float32) for bound in self.bounds_world)
        return jnp.minimum(jnp.maximum(waypoint_world, low), high)

    def sample_no_postprocessing(self, scores: jax.Array, key: jax.Array) -> jax.Array:
        """Return random choices (...) for scores (..., K)."""
        return jax.random.categorical(key, scores)

    def postprocess(self, choice: jax.Array) -> jax.Array:
        """Return the weights (..., K) of choices (...)."""
        return (choice[..., None] == jnp.arange(self.count)).astype(jnp.float32)

    def mode(self, scores: jax.Array) -> jax.Array:
        """Return the weights (..., K) of the choice with the highest score."""
        return self.postprocess(jnp.argmax(scores, axis=-1))

    def log_prob(self, scores: jax.Array, choice: jax.Array) -> jax.Array:
        """Return the logarithm of the probability (...) of choices (...)."""
        return jnp.sum(jax.nn.log_softmax(scores) * self.postprocess(choice), axis=-1)

    def entropy(self, scores: jax.Array, key: jax.Array) -> jax.Array:
        """Return the entropy (...), which is exact and needs no randomness ``key``."""
        logarithm = jax.nn.log_softmax(scores)
        return -jnp.sum(jnp.exp(logarithm) * logarithm, axis=-1)

    def divergence(self, scores: jax.Array, teacher: jax.Array) -> jax.Array:
        """Return KL(teacher || policy) (...) of the choices with these scores (..., K)."""
        wanted = jax.nn.log_softmax(teacher)
        return jnp.sum(jnp.exp(wanted) * (wanted - jax.nn.log_softmax(scores)), axis=-1)
