"""Places for robots that are far enough apart by construction: the cells of a grid, each moved a little."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class Grid:
    """A grid in a box of the world: places inside it, of which no two are nearer than its spacing, heights squeezed."""

    points_world: np.ndarray
    """(cells, D) float32 [m]."""
    jitter_m: np.ndarray
    """(D,) float32: how far a place may be from its cell along each axis."""

    @classmethod
    def create(
        cls, low_world: tuple[float, ...], high_world: tuple[float, ...], spacing_m: float, height_ratio: float = 1.0
    ) -> Grid:
        """Return the grid with as many cells as fit at the spacing, of which heights need ``height_ratio`` as much."""
        axes, jitter = [], []
        for axis, (low, high) in enumerate(zip(low_world, high_world, strict=True)):
            apart = spacing_m * (height_ratio if axis == 2 else 1.0)
            count = int((high - low) / apart) + 1
            # neighbours that move towards each other are still apart, and the outermost ones stay inside
            step = (high - low + apart) / count
            jitter.append((step - apart) / 2)
            axes.append(low + jitter[-1] + step * np.arange(count))
        points = np.array(list(itertools.product(*axes)), dtype=np.float32)
        return cls(points, np.array(jitter, dtype=np.float32))

    def draw(self, key: jax.Array, weights: jax.Array, shifts: jax.Array) -> jax.Array:
        """Draw places (D, N) [m] without repetition.

        Args:
            key: of the choice.
            weights: how late each cell is chosen (cells,): the lower, the likelier.
            shifts: (D, N) in -1 to 1: share of the jitter.
        """
        order = jnp.argsort(weights + jax.random.gumbel(key, weights.shape))
        return jnp.asarray(self.points_world)[order[: shifts.shape[1]]].T + shifts * self.jitter_m[:, None]
