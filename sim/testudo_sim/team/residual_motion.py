"""Residual motion of simulated robots: what the motion model does not explain, by `[motion_noise]` of the robot file.

Only the kinematic tier has it: the other tiers move bodies by forces, which have errors of their own. A process is
(channel, robot, world): (C, N, E), see `testudo_hardware.motion.motion_noise`.
"""

from typing import Any

import jax
import jax.numpy as jnp

from testudo_hardware.motion.motion_noise import MotionNoise, advance, displace, velocity_error
from testudo_hardware.spec import RobotSpec
from testudo_sim.physics.kinematic_tier import KinematicPhysics
from testudo_sim.physics.scene import Physics

_STREAM = 31  # separate random stream, so that other draws of a seed do not change


def residual_noise(spec: RobotSpec, physics: Physics) -> MotionNoise | None:
    """Return the residual motion of a robot file; None where the file or the tier has none."""
    return MotionNoise.from_spec(spec) if isinstance(physics, KinematicPhysics) else None


def begin_residual(noise: MotionNoise | None, keys: jax.Array, size: int) -> jax.Array | None:
    """Return the process of ``size`` robots in one world for each key (E,), as after a long time."""
    if noise is None:
        return None
    shape = (len(noise.channels), size)
    return jax.vmap(lambda key: jax.random.normal(jax.random.fold_in(key, _STREAM), shape), out_axes=-1)(keys)


def displaced(
    noise: MotionNoise | None,
    process: jax.Array | None,
    before: Any,
    after: Any,
    share: jax.Array | None,
    key: jax.Array,
    period_s: float,
) -> tuple[Any, jax.Array | None]:
    """Return the state of the kinematic tier moved by the residual motion of one period, and the process after it.

    ``before`` and ``after`` are the states of the tier around a step of the model; ``share`` (E,) is the share of the
    residual motion that a world has, None for all of it. Without ``noise`` or ``process`` nothing moves.
    """
    if noise is None or process is None:
        return after, process
    normal = jax.random.normal(jax.random.fold_in(key, _STREAM), process.shape)
    process = jnp.asarray(advance(noise, process, normal, period_s))
    mean, change = (before.velocity + after.velocity) / 2, (after.velocity - before.velocity) / period_s
    error = jnp.asarray(velocity_error(noise, process, mean, change))
    return displace(noise, after, error if share is None else share * error, period_s), process
