"""Arena of the Robotarium (arXiv 2505.06771), and start grids with a least spacing."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from testudo_deploy.shield.arena import Arena

ROBOTARIUM = Arena((-1.6, -1.0), (1.6, 1.0))
SPAWN_EDGE_M = (0.35, 0.25)
"""Starts and goals lie inside 2.5 m x 1.5 m of it."""


@dataclass(frozen=True)
class Grid:
    """Grid points in a box of the world, at least one spacing apart in scaled heights."""

    points_world: np.ndarray
    """(cells, D) float32 [m]."""
    jitter_m: np.ndarray
    """(D,) float32 [m]: largest offset from the grid point along each axis."""

    @classmethod
    def create(
        cls, low_world: tuple[float, ...], high_world: tuple[float, ...], spacing_m: float, height_ratio: float = 1.0
    ) -> Grid:
        """Return the grid with the most points at the spacing, with ``height_ratio`` times the spacing in height."""
        axes, jitter = [], []
        for axis, (low, high) in enumerate(zip(low_world, high_world, strict=True)):
            apart = spacing_m * (height_ratio if axis == 2 else 1.0)
            count = int((high - low) / apart) + 1
            # neighbours moved towards each other keep the spacing, and the outermost ones stay inside
            step = (high - low + apart) / count
            jitter.append((step - apart) / 2)
            axes.append(low + jitter[-1] + step * np.arange(count))
        points = np.array(list(itertools.product(*axes)), dtype=np.float32)
        return cls(points, np.array(jitter, dtype=np.float32))

    def draw(self, key: jax.Array, weights: jax.Array, shifts: jax.Array) -> jax.Array:
        """Draw places (D, N) [m] without repetition.

        Args:
            key: of the choice.
            weights: (cells,) score of each cell; lower is more likely.
            shifts: (D, N) in -1 to 1: share of the jitter.
        """
        order = jnp.argsort(weights + jax.random.gumbel(key, weights.shape))
        return jnp.asarray(self.points_world)[order[: shifts.shape[1]]].T + shifts * self.jitter_m[:, None]
