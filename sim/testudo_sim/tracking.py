"""The watch over a robot's brakes, for robots by worlds with one age of poses for each world."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from testudo_deploy.tracking import BrakingWatch, watch_braking
from testudo_hardware.motion import MotionState
from testudo_hardware.spec import RobotSpec
from testudo_sim.parameters import Slots, WorldParameters


def earlier_slots(spec: RobotSpec, slots: Slots) -> int:
    """Return how many commands beyond ``slots.commands`` may have acted on a pose."""
    return max(slots.states - 1 + math.ceil(_delay_ticks(spec)[1]) + 1 - slots.commands, 1)


def watch_brakes(spec: RobotSpec, watch: BrakingWatch, measured: MotionState, located: jax.Array, sent: jax.Array,
                 parameters: WorldParameters) -> tuple[BrakingWatch, jax.Array]:
    """Return the watch after a tick, and which robots (N, E) got further than their brakes should let them.

    Args:
        spec: the robot.
        watch: after the tick before.
        measured: the pose of this tick, from odometry where it is not believed.
        located: (N, E) bool: it is believed.
        sent: effective commands (H, D, N, E), newest first.
        parameters: tell the age of the poses.
    """
    weights = parameters.age_weights
    age = sum(m * weights[m] for m in range(weights.shape[0]))
    shortest, longest = _delay_ticks(spec)
    # poses and commands between two ticks are mixtures of both
    first, last = jnp.floor(age) + math.floor(shortest), jnp.ceil(age) + math.ceil(longest)
    acting = [(sent[h], (h >= first) & (h <= last)) for h in range(sent.shape[0])]
    after, excess = watch_braking(spec, watch, measured, located, acting, jnp.float32(spec.control_period_s))
    return after, excess > 0


def _delay_ticks(spec: RobotSpec) -> tuple[float, float]:
    delay = spec.quantities["dynamics.command_delay"]
    return delay.low / spec.control_period_s, delay.high / spec.control_period_s
