"""The kinematic tier: true motion with actuator lag, delay and scale, for robots by worlds.

All arrays are (component, robot, world): (D, N, E).
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from testudo_hardware.motion import MotionModel, MotionState
from testudo_sim.parameters import WorldParameters


@dataclass(frozen=True)
class KinematicPhysics:
    """Physics tier ``kinematic``; implements `Physics`."""

    model: MotionModel
    name: str = "kinematic"

    def reset(self, position_world: jax.Array, yaw: jax.Array) -> MotionState:
        """See `Physics.reset`."""
        return MotionState(position_world, yaw, jnp.zeros_like(position_world))

    def advance(self, state: MotionState, sent: jax.Array, parameters: WorldParameters) -> MotionState:
        """See `Physics.advance`: the commands that act in this tick, scaled, through the motion model."""
        acting = sum(parameters.delay_weights[h] * sent[h] for h in range(sent.shape[0]))
        return self.model.step(state, acting * parameters.scale[:, None, :], parameters.response)

    def motion(self, state: MotionState) -> MotionState:
        """See `Physics.motion`."""
        return state
