"""The brake monitors of simulated robots, fed with the poses and commands that each would have had."""

import math

import jax
import jax.numpy as jnp

from testudo_deploy.monitoring.brake_monitor import BrakeMonitorState, update_brake_monitor
from testudo_hardware.motion import MotionState
from testudo_hardware.spec import RobotSpec
from testudo_sim.physics.world_parameters import Slots, WorldParameters


def earlier_slots(spec: RobotSpec, slots: Slots) -> int:
    """Return the number of commands beyond ``slots.commands`` that can have acted on a pose."""
    return max(slots.states - 1 + math.ceil(_delays(spec)[-1]) + 1 - slots.commands, 1)


def update_brake_monitors(
    spec: RobotSpec,
    watch: BrakeMonitorState,
    measured: MotionState,
    located: jax.Array,
    sent: jax.Array,
    parameters: WorldParameters,
) -> tuple[BrakeMonitorState, jax.Array]:
    """Return the monitor after a tick, and the robots (N, E) that exceeded the predicted braking distance.

    ``measured`` is the pose of this tick, from odometry where it was not accepted (``located`` (N, E)); ``sent`` are
    effective commands (H, D, N, E), newest first.
    """
    acting = [
        (share, [_sent_ago(sent, m + delay) for delay in _delays(spec)])
        for m, share in enumerate(parameters.age_weights)
    ]
    after, excess = update_brake_monitor(spec, watch, measured, located, acting, jnp.float32(spec.control_period_s))
    return after, excess > 0


def _delays(spec: RobotSpec) -> list[float]:
    """Return delays in ticks that include the one with the weakest braking; commands between ticks are mixtures."""
    delay = spec.quantities["dynamics.command_delay"]
    low, high = delay.low / spec.control_period_s, delay.high / spec.control_period_s
    return sorted({low, high, *range(math.ceil(low), math.floor(high) + 1)})


def _sent_ago(sent: jax.Array, ticks: float) -> jax.Array:
    """Return the command sent ``ticks`` ago, interpolated."""
    whole = math.floor(ticks)
    part = ticks - whole
    return sent[whole] if part == 0 else (1 - part) * sent[whole] + part * sent[whole + 1]
