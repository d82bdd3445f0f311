"""The kinematic tier: true motion with actuator lag, delay and scale.

Arrays are (component, robot, world): (D, N, E). One physics step is one control tick.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from testudo_deploy.shield.velocity_projection import Arena
from testudo_hardware.motion import MotionModel, MotionState
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_plant.worlds.actuator_forces import weaker_braking
from testudo_sim.physics.scene import BodyState, ContactCounts, Scene
from testudo_sim.physics.world_parameters import WorldParameters, interpolation, weighted


@dataclass(frozen=True)
class KinematicPhysics:
    """Physics tier `kinematic`; implements `Physics` without bodies beside the robots."""

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
            turning = self.model.spec.kind == DIFFERENTIAL_DRIVE
            change = weaker_braking(change, state.velocity, parameters.brake_share, turns=turning)
            after = self.model.step(state, state.velocity + change / parameters.response.gain, parameters.response)
        if turns is None:
            return after
        rate = weighted(parameters.delay_weights, turns)
        return replace(after, yaw=after.yaw + rate * self.model.spec.control_period_s)

    def scene(self, state: MotionState) -> Scene:
        """See `Physics.scene`."""
        return Scene(state)

    def watch(self, state: MotionState) -> ContactCounts:
        """See `Physics.watch`."""
        return ContactCounts.of(state.position_world, self.model.spec, self.arena)


def arrived_set_point(sent: jax.Array, model: MotionModel, drawn: Mapping[str, jax.Array]) -> jax.Array:
    """Return the velocities (3, N, E) [m/s] that drones have received, of effective commands (H, 3, N, E)."""
    arrived = arrived_at_drones(sent, model, drawn)
    return arrived / jnp.asarray(model.scale, arrived.dtype)[:, None, None]


def arrived_at_drones(sent: jax.Array, model: MotionModel, drawn: Mapping[str, jax.Array]) -> jax.Array:
    """Return what the link to drones has delivered of (H, ..., E), newest first.

    ``drawn`` holds quantities (E,) by `table.key` that replace those of the robot file.
    """
    spec = model.spec
    delay = drawn.get("attitude.link_delay", spec.attitude["attitude.link_delay"].value)
    ticks = jnp.broadcast_to(jnp.asarray(delay / spec.control_period_s, jnp.float32), sent.shape[-1:])
    return weighted(interpolation(ticks, sent.shape[0]), sent)


def acting_command(sent: jax.Array, parameters: WorldParameters) -> jax.Array:
    """Return the velocity (D, N, E) that robots of each world tend to, of effective commands (H, D, N, E)."""
    acting = weighted(parameters.delay_weights, sent)
    scale = parameters.scale
    realised = acting * (scale[:, None, :] if scale.ndim < acting.ndim else scale)
    if parameters.turn_slip is None:
        return realised
    described, drawn = (1 + (slip * acting[1]) ** 2 for slip in parameters.turn_slip)
    return realised.at[0].multiply(described / drawn)
