"""Kalman filters of moving targets that a team shares: one for each target, of its place and velocity in the plane.

Lengths are in the unit of the task, in which the noise is stated. Targets are double integrators under white
acceleration; a robot that sees one measures its range and bearing, with noise of constant standard deviation in both
(Hsu et al., "Scalable Reinforcement Learning Policies for Multi-Agent Control", IROS 2021).
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

RANGE_SD, BEARING_SD_RAD = 0.2, 0.01
START_VARIANCE = 30.0
_DENSITY = 0.001
"""Spectral density of the acceleration that the filter assumes."""
_LEAST_RANGE = 0.5
"""Below this the error of a bearing across the line of sight no longer shrinks."""
_PLACE = np.eye(2, 4, dtype=np.float32)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TargetBeliefs:
    """Estimates of M targets in E worlds."""

    mean: jax.Array  # (M, E, 4): place, then velocity
    covariance: jax.Array  # (M, E, 4, 4)

    @property
    def log_det(self) -> jax.Array:
        """Return the logarithm of the determinant of each covariance (M, E)."""
        root = jnp.linalg.cholesky(self.covariance)
        return 2 * jnp.sum(jnp.log(jnp.diagonal(root, axis1=-2, axis2=-1)), axis=-1)

    def predicted(self, time_s: float) -> "TargetBeliefs":
        """Return the beliefs a time later, with nothing seen."""
        move, noise = jnp.asarray(transition(time_s)), _DENSITY * acceleration_noise(time_s)
        return TargetBeliefs(self.mean @ move.T, move @ self.covariance @ move.T + noise)

    def updated(self, measured: jax.Array, covariance: jax.Array, seen: jax.Array) -> "TargetBeliefs":
        """Return the beliefs after the measurements of all robots.

        Args:
            measured: places (N, M, E, 2).
            covariance: of their errors (N, M, E, 2, 2).
            seen: bool (N, M, E); other measurements do not count.
        """
        weight = jnp.where(seen[..., None, None], jnp.linalg.inv(covariance), 0.0)
        offset = jnp.sum((weight @ (measured - self.mean[..., :2])[..., None])[..., 0], axis=0)
        after = jnp.linalg.inv(jnp.linalg.inv(self.covariance) + _PLACE.T @ jnp.sum(weight, axis=0) @ _PLACE)
        after = (after + jnp.swapaxes(after, -1, -2)) / 2
        return TargetBeliefs(self.mean + (after @ (offset @ _PLACE)[..., None])[..., 0], after)


def transition(time_s: float) -> np.ndarray:
    """Return the matrix (4, 4) of free motion."""
    matrix = np.eye(4, dtype=np.float32)
    matrix[0, 2] = matrix[1, 3] = time_s
    return matrix


def acceleration_noise(time_s: float) -> np.ndarray:
    """Return the covariance (4, 4) that white acceleration of density 1 adds."""
    block = np.array([[time_s**3 / 3, time_s**2 / 2], [time_s**2 / 2, time_s]], np.float32)
    return np.kron(block, np.eye(2, dtype=np.float32))


def measured(place: jax.Array, robot: jax.Array, noise: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the measured places (N, M, E, 2) and the covariances of their errors (N, M, E, 2, 2).

    Args:
        place: of the targets (M, E, 2).
        robot: places of the robots (N, E, 2).
        noise: standard normal numbers (N, M, E, 2), for range and bearing.
    """
    line = place[None] - robot[:, None]
    distance = jnp.sqrt(jnp.sum(line**2, axis=-1) + 1e-12)
    along = line / distance[..., None]
    axes = jnp.stack([along, jnp.stack([-along[..., 1], along[..., 0]], axis=-1)], axis=-1)  # columns: along, across
    deviation = jnp.stack(
        [jnp.full_like(distance, RANGE_SD), BEARING_SD_RAD * jnp.maximum(distance, _LEAST_RANGE)], axis=-1
    )
    error = (axes @ (deviation * noise)[..., None])[..., 0]
    scaled = axes * deviation[..., None, :]
    return place[None] + error, scaled @ jnp.swapaxes(scaled, -1, -2)
