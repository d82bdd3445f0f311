"""The boxes of a scenario within a model: where their state stands."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from testudo_plant.worlds.free_body import Box
from testudo_sim.physics.scene import BodyState


class BoxGroup:
    """The boxes of a scenario in a model."""

    def __init__(self, model: mujoco.MjModel, boxes: Sequence[Box]) -> None:
        joints = [[model.joint(f"{box.name}/{axis}").id for box in boxes] for axis in ("x", "y", "yaw")]
        self.start_ids: np.ndarray = model.jnt_qposadr[np.array(joints)]
        """(3, B): indices into qpos."""

    def start(self, bodies: BodyState) -> jax.Array:
        """Return qpos (3, B, E) of boxes that stand on the floor."""
        return jnp.concatenate([bodies.position_world, bodies.yaw[None]])

    def read(self, qpos: jax.Array) -> BodyState:
        """Return the poses of the boxes in a state (nq, E)."""
        x, y, yaw = (qpos[row] for row in self.start_ids)
        return BodyState(jnp.stack([x, y]), yaw)
