"""Simulates drones without set-points: they hold the last one, then brake, or level out, coast and fall.

Arrays are (component, robot, world): (D, N, E). Times are control ticks. The process of the robot does not detect the
loss of a set-point and assumes that all its commands arrived.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from testudo_hardware.motion import MotionState
from testudo_hardware.motion.rotor_drone import GRAVITY_M_S2
from testudo_sim.team.fault_schedule import RadioLoss
from testudo_sim.team.team_tick import SimulatedTeam

_ON_FLOOR_M = 1e-4


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LostLinkVehicle:
    """Received set-points of the drones."""

    reached: jax.Array
    """(H, D, N, E): received effective commands, newest first."""
    burst: jax.Array
    """(N, E) int: remaining ticks of a burst of loss."""
    silent: jax.Array
    """(N, E) int: ticks since the last set-point."""


def listening(sent: jax.Array) -> LostLinkVehicle:
    """Return vehicles that received all commands (H, D, N, E)."""
    none = jnp.zeros(sent.shape[2:], jnp.int32)
    return LostLinkVehicle(sent, none, none)


def receive(
    vehicle: LostLinkVehicle, loss: RadioLoss, sent: jax.Array, number: jax.Array, key: jax.Array
) -> LostLinkVehicle:
    """Return the vehicles after tick ``number`` () with sent commands (D, N, E)."""
    begins = jax.random.uniform(key, vehicle.burst.shape) < loss.burst_chance
    burst = jnp.where(begins & (vehicle.burst == 0), loss.burst_ticks, jnp.maximum(vehicle.burst - 1, 0))
    lost = (burst > 0) | ((number >= loss.lost_from) & (number < loss.lost_until))
    silent = jnp.where(lost, vehicle.silent + 1, 0)
    last = vehicle.reached[0]
    # a levelled vehicle keeps its vertical set-point; `coasted` replaces its horizontal motion
    alone = jnp.where(loss.brakes, 0.0, last)
    kept = jnp.where(silent < loss.hold_ticks, last, alone)
    now = jnp.where(lost, kept, sent)
    return LostLinkVehicle(jnp.concatenate([now[None], vehicle.reached[:-1]]), burst, silent)


def coasted(
    team: SimulatedTeam, before: MotionState, after: MotionState, vehicle: LostLinkVehicle, loss: RadioLoss
) -> MotionState:
    """Return the motion after a tick, with coasting and falling of levelled drones.

    Args:
        team: with the height of the floor.
        before: true motion (D, N, E) before the tick.
        after: motion after the tick under the commands.
        vehicle: after the tick.
        loss: reactions of the vehicles.
    """
    period, floor_m = team.model.spec.control_period_s, team.arena.low_world[2] + team.model.spec.body_radius_m
    levelled = (vehicle.silent >= loss.hold_ticks) & ~loss.brakes
    falls = (vehicle.silent >= loss.cut_ticks) & ~loss.brakes
    old = before.velocity
    flat = old[:2] * (1 - period * loss.drag_per_s) + period * jnp.where(falls, 0.0, loss.drift_m_s2)
    high = jnp.where(falls, old[2] - period * GRAVITY_M_S2, after.velocity[2])
    velocity = jnp.concatenate([flat, high[None]])
    place = before.position_world + period / 2 * (old + velocity)
    place = place.at[2].set(jnp.where(falls, place[2], after.position_world[2]))
    down = place[2] <= floor_m
    place = place.at[2].set(jnp.where(down, floor_m + _ON_FLOOR_M, place[2]))
    velocity = jnp.where(down & falls, 0.0, velocity)
    return MotionState(
        jnp.where(levelled, place, after.position_world), after.yaw, jnp.where(levelled, velocity, after.velocity)
    )
