"""What drones do when their radio brings no set-points: hold the last, brake or level out and coast, fall.

Arrays are (component, robot, world): (D, N, E). Times are control ticks. The robot's process does not learn that a
set-point was lost: it goes on believing that all that it sent has arrived.
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
    """What a drone knows of set-points."""

    reached: jax.Array
    """(H, D, N, E): effective commands that act on it, newest first."""
    burst: jax.Array
    """(N, E) int: for so many ticks none will come in yet."""
    silent: jax.Array
    """(N, E) int: ticks since one came in."""


def listening(sent: jax.Array) -> LostLinkVehicle:
    """Return vehicles that all commands (H, D, N, E) have reached."""
    none = jnp.zeros(sent.shape[2:], jnp.int32)
    return LostLinkVehicle(sent, none, none)


def receive(
    vehicle: LostLinkVehicle, loss: RadioLoss, sent: jax.Array, number: jax.Array, key: jax.Array
) -> LostLinkVehicle:
    """Return what acts after a tick with number () in which commands (D, N, E) were sent."""
    begins = jax.random.uniform(key, vehicle.burst.shape) < loss.burst_chance
    burst = jnp.where(begins & (vehicle.burst == 0), loss.burst_ticks, jnp.maximum(vehicle.burst - 1, 0))
    lost = (burst > 0) | ((number >= loss.lost_from) & (number < loss.lost_until))
    silent = jnp.where(lost, vehicle.silent + 1, 0)
    last = vehicle.reached[0]
    # a vehicle that levels keeps its vertical set-point; along the floor `coasted` replaces what this does
    alone = jnp.where(loss.brakes, 0.0, last)
    kept = jnp.where(silent < loss.hold_ticks, last, alone)
    now = jnp.where(lost, kept, sent)
    return LostLinkVehicle(jnp.concatenate([now[None], vehicle.reached[:-1]]), burst, silent)


def coasted(
    team: SimulatedTeam, before: MotionState, after: MotionState, vehicle: LostLinkVehicle, loss: RadioLoss
) -> MotionState:
    """Return the motion after a tick, with that of levelled and of falling drones in place of that under commands.

    Args:
        team: tells the floor.
        before: true motion (D, N, E) before the tick.
        after: the same after it, had the commands acted.
        vehicle: after the tick.
        loss: what the vehicles do by themselves.
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
