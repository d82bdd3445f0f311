"""The kinematic tier: true motion with actuator lag, delay and scale, for robots by worlds.

All arrays are (component, robot, world): (D, N, E). One physics step is one control tick.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from testudo_deploy.shield.layer1 import Arena
from testudo_hardware.motion import MotionModel, MotionState
from testudo_sim.contacts import count_contacts, least_separation
from testudo_sim.parameters import WorldParameters
from testudo_sim.scene import BodyState, Scene, Watch


@dataclass(frozen=True)
class KinematicPhysics:
    """Physics tier ``kinematic``; implements `Physics`. It has no bodies beside the robots."""

    model: MotionModel
    arena: Arena | None
    name: str = "kinematic"

    def reset(self, position_world: jax.Array, yaw: jax.Array, bodies: BodyState | None) -> MotionState:
        """See `Physics.reset`."""
        return MotionState(position_world, yaw, jnp.zeros_like(position_world))

    def advance(self, state: MotionState, sent: jax.Array, parameters: WorldParameters) -> MotionState:
        """See `Physics.advance`."""
        return self.model.step(state, acting_command(sent, parameters), parameters.response)

    def scene(self, state: MotionState) -> Scene:
        """See `Physics.scene`."""
        return Scene(state)

    def watch(self, state: MotionState) -> Watch:
        """See `Physics.watch`."""
        place = state.position_world
        return Watch(count_contacts(place, self.model.spec.body_radius_m, self.arena), least_separation(place))


def acting_command(sent: jax.Array, parameters: WorldParameters) -> jax.Array:
    """Return the effective command (D, N, E) of a tick: the sent ones that act in it, scaled."""
    acting = sum(parameters.delay_weights[h] * sent[h] for h in range(sent.shape[0]))
    return acting * parameters.scale[:, None, :]
