"""The kinematic tier: true motion with actuator lag, delay and scale, for robots by worlds.

All arrays are (component, robot, world): (D, N, E). One physics step is one control tick.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from testudo_deploy.shield.velocity_projection import Arena
from testudo_hardware.motion import MotionModel, MotionState
from testudo_hardware.motion.motion_state import TINY, length
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_sim.physics.scene import BodyState, ContactCounts, Scene, count_contacts, least_separation
from testudo_sim.physics.world_parameters import WorldParameters, interpolation


@dataclass(frozen=True)
class KinematicPhysics:
    """Physics tier ``kinematic``; implements `Physics`. It has no bodies beside the robots."""

    model: MotionModel
    arena: Arena | None
    name: str = "kinematic"

    def reset(
        self, position_world: jax.Array, yaw: jax.Array, bodies: BodyState | None, velocity: jax.Array | None = None
    ) -> MotionState:
        """See `Physics.reset`."""
        return MotionState(position_world, yaw, jnp.zeros_like(position_world) if velocity is None else velocity)

    def advance(
        self, state: MotionState, sent: jax.Array, parameters: WorldParameters, turns: jax.Array | None = None
    ) -> MotionState:
        """See `Physics.advance`; a heading follows its rate after the delay of commands, without a lag."""
        effective = acting_command(sent, parameters)
        after = self.model.step(state, effective, parameters.response)
        if parameters.brake_share is not None:
            change = after.velocity - state.velocity
            change = _weaker_braking(self.model, state.velocity, change, parameters.brake_share)
            after = self.model.step(state, state.velocity + change / parameters.response.gain, parameters.response)
        if turns is None:
            return after
        rate = sum(parameters.delay_weights[h] * turns[h] for h in range(turns.shape[0]))
        return replace(after, yaw=after.yaw + rate * self.model.spec.control_period_s)

    def scene(self, state: MotionState) -> Scene:
        """See `Physics.scene`."""
        return Scene(state)

    def watch(self, state: MotionState) -> ContactCounts:
        """See `Physics.watch`."""
        place = state.position_world
        spec = self.model.spec
        return ContactCounts(
            count_contacts(place, spec.body_radius_m, self.arena), least_separation(place, spec.height_ratio)
        )


def _weaker_braking(model: MotionModel, velocity: jax.Array, change: jax.Array, share: jax.Array) -> jax.Array:
    """Return the change (D, N, E) of the velocity in a tick with what slows the body down times ``share`` (E,)."""
    if model.spec.kind == DIFFERENTIAL_DRIVE:
        slows = change[0] * velocity[0] < 0
        return jnp.stack([jnp.where(slows, share, 1.0) * change[0], *change[1:]])
    direction = velocity / (length(velocity) + TINY)
    along = jnp.sum(change * direction, axis=0)
    return change + (share - 1) * jnp.minimum(along, 0.0) * direction


def arrived_set_point(sent: jax.Array, model: MotionModel, drawn: Mapping[str, jax.Array]) -> jax.Array:
    """Return the velocities (3, N, E) [m/s] that drones with an attitude have heard by now.

    Args:
        sent: (H, 3, N, E) nominal effective commands of past ticks, the newest first.
        model: of the drones, whose link delays what it carries.
        drawn: quantities (E,) by `table.key` in place of those of the robot file.
    """
    arrived = _arrived(sent, model, drawn)
    return arrived / jnp.asarray(model.scale, arrived.dtype)[:, None, None]


def arrived_yaw_rate(turns: jax.Array | None, model: MotionModel, drawn: Mapping[str, jax.Array]) -> jax.Array | None:
    """Return the yaw rates (N, E) [rad/s] that drones have heard by now of those sent (H, N, E); None for none."""
    return None if turns is None else _arrived(turns, model, drawn)


def _arrived(sent: jax.Array, model: MotionModel, drawn: Mapping[str, jax.Array]) -> jax.Array:
    """Return what the link has delivered of (H, ..., E), newest first."""
    spec = model.spec
    delay = drawn.get("attitude.link_delay", spec.attitude["attitude.link_delay"].value)
    ticks = jnp.broadcast_to(jnp.asarray(delay / spec.control_period_s, jnp.float32), sent.shape[-1:])
    weights = interpolation(ticks, sent.shape[0])
    return sum(weights[h] * sent[h] for h in range(sent.shape[0]))


def acting_command(sent: jax.Array, parameters: WorldParameters) -> jax.Array:
    """Return what the velocity tends to in a tick (D, N, E): effective commands, as robots of the world follow them."""
    acting = sum(parameters.delay_weights[h] * sent[h] for h in range(sent.shape[0]))
    realised = acting * parameters.scale[:, None, :]
    if parameters.turn_slip is None:
        return realised
    described, drawn = (1 + (slip * acting[1]) ** 2 for slip in parameters.turn_slip)
    return realised.at[0].multiply(described / drawn)
