"""Free boxes within a MuJoCo model: where their state stands."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from testudo_sim.scene import BodyState, Box


class BoxGroup:
    """The boxes of a scenario in a model."""

    def __init__(self, model: mujoco.MjModel, boxes: Sequence[Box]) -> None:
        first = np.array([model.jnt_qposadr[model.joint(f"{box.name}/free").id] for box in boxes], dtype=int)
        self.start_ids = first[None, :] + np.arange(7)[:, None]
        """(7, B): indices into qpos."""
        self._height_m = np.array([box.size_m[2] / 2 for box in boxes])

    def start(self, bodies: BodyState) -> jax.Array:
        """Return qpos (7, B, E) of boxes that stand on the floor."""
        x, y = bodies.position_world
        nothing = jnp.zeros_like(x)
        height = jnp.broadcast_to(jnp.asarray(self._height_m, x.dtype)[:, None], x.shape)
        half = bodies.yaw / 2
        return jnp.stack([x, y, height, jnp.cos(half), nothing, nothing, jnp.sin(half)])

    def read(self, qpos: jax.Array) -> BodyState:
        """Return the poses of the boxes in a state (nq, E)."""
        x, y, _, w, i, j, k = (qpos[row] for row in self.start_ids)
        return BodyState(jnp.stack([x, y]), jnp.atan2(2 * (w * k + i * j), 1 - 2 * (j * j + k * k)))
