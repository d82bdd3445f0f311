"""Teams that begin in the middle of a drive: what sensors, drivers and peers have of the moments before.

Where no history is known, a robot is taken to have held its velocity: the commands that are on their way are those
that keep it, and the poses that sensors still have lie behind it on its arc. Arrays are (component, robot, world).
"""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp

from testudo_deploy.shield.reserved_space import ReservedSpace
from testudo_hardware.arrays import stacked
from testudo_hardware.motion import LagResponse, MotionModel, MotionState, StoppingPoint
from testudo_hardware.motion.motion_model import control_velocity
from testudo_sim.jax_support import pytrees  # noqa: F401  (registers MotionState)
from testudo_sim.physics.world_parameters import WorldParameters

_ASKING_TICKS = 3


def motion_history(model: MotionModel, motion: MotionState, count: int) -> MotionState:
    """Return the states (M, D, N, E) now and at the ticks before, newest first, at constant velocity."""
    spec = model.spec
    tick = LagResponse.create(jnp.full(motion.yaw.shape, spec.control_period_s), jnp.float32(spec.velocity_lag_s))
    states, back = [motion], replace(motion, velocity=-motion.velocity)  # an arc driven backwards is the same arc
    for _ in range(1, count):
        back = model.step(back, back.velocity, tick)
        states.append(replace(back, velocity=motion.velocity))
    return jax.tree.map(lambda *parts: jnp.stack(parts), *states)


def delayed_measurements(past: MotionState, parameters: WorldParameters) -> MotionState:
    """Return the pose (D, N, E) as old as the sensors of each world deliver it, without noise; past (M, D, N, E)."""
    weights = parameters.age_weights
    return jax.tree.map(lambda x: sum(weights[m] * x[m] for m in range(x.shape[0])), past)


def stationary_history(motion: MotionState, count: int) -> MotionState:
    """Return the states (M, D, N, E) of robots that have stood where they are."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), motion)


def held_velocity(model: MotionModel, stop: StoppingPoint, motion: MotionState) -> jax.Array:
    """Return the velocity of the control point (D, N, E) [m/s] while a robot holds its velocity."""
    scale = jnp.asarray(model.scale, motion.velocity.dtype).reshape(-1, 1, 1)
    return control_velocity(model, stop, motion.velocity / scale)


def stopping_segment(model: MotionModel, seen: MotionState, motion: MotionState) -> ReservedSpace:
    """Return the space that robots on the move own: from where they were seen to where they rest if they brake soon.

    That is after the time for which a command can act and the ticks that asking for more space takes: a shorter
    lane would make them brake at once.
    """
    here, spec = seen.position_world, model.spec
    number = 0 * here[0, ...]
    soon_s = spec.hold_s + _ASKING_TICKS * spec.control_period_s
    ahead = model.step(
        motion,
        motion.velocity,
        LagResponse.create(jnp.full(motion.yaw.shape, soon_s), jnp.float32(spec.velocity_lag_s)),
    )
    lane = stacked(here, model.rest_position(ahead))
    return ReservedSpace(lane, lane, number > 0, number)
