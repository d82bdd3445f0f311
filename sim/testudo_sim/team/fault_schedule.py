"""Schedules faults in simulated worlds: ticks, messages, localisation, hostile neighbours, lost links of drones.

Arrays have the worlds E last. Times are control ticks since the start; `NEVER` is a tick that is not reached.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from testudo_hardware.motion import MotionState
from testudo_hardware.motion.rotor_drone import GRAVITY_M_S2
from testudo_hardware.spec import RobotSpec

NEVER = 1 << 20
_ON_FLOOR_M = 1e-4


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RadioLoss:
    """Loss of set-points to drones, and the reactions of the drones, see `receive` and `coasted`."""

    burst_chance: jax.Array  # (E,): probability that a burst of loss begins at a tick
    burst_ticks: jax.Array  # (E,) int: length of a burst
    lost_from: jax.Array  # (N, E) int: first tick without set-points
    lost_until: jax.Array  # (N, E) int: first tick with set-points again
    brakes: jax.Array  # (E,) bool: the vehicle brakes by itself; else it levels out and falls
    hold_ticks: jax.Array  # (E,) int: ticks from the last set-point to this reaction
    cut_ticks: jax.Array  # (E,) int: ticks from the last set-point to motor cut-off
    drag_per_s: jax.Array  # (E,) [1/s]: speed decay rate of a levelled vehicle
    drift_m_s2: jax.Array  # (2, N, E) [m/s^2]: acceleration by levelling errors


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Faults:
    """Faults of each world."""

    phase: jax.Array
    """(N, E) int: a robot ticks where (tick + phase) is a multiple of `DeployedTeam.stride`: asynchronous ticks."""
    late_chance: jax.Array  # (E,): probability that a tick is followed by a pause
    late_ticks: jax.Array  # (2, E) int: shortest and longest pause
    dead_from: jax.Array  # (N, E) int: first tick with a dead process: no command, no message
    dead_until: jax.Array  # (N, E) int: tick of its restart
    driver_ticks: jax.Array  # (E,) int: ticks for which the driver holds a command
    link_loss: jax.Array
    """(K, N, E): loss of the messages to a robot (N) from its peer in slot K, in addition to that of the world."""
    message_ticks: jax.Array  # (2, E) int: shortest and longest message time, drawn for each tick; 1 or more
    blackout: jax.Array  # (2, E) int: first tick, and the tick after the last, at which no message arrives
    jump: jax.Array  # (2, E) int: first tick, and the tick after the last, with a wrong localisation of robot 0
    jump_world: jax.Array  # (D, E) [m]: displacement
    jump_yaw: jax.Array  # (E,) [rad]
    hostile_kind: jax.Array  # (E,) int: the last robot: 0 a team member, `PURSUER`, `FAILED_PROCESS` or `FALSE_SENDER`
    false_offset_world: jax.Array  # (D, E) [m]: displacement of the announced position of a `FALSE_SENDER`
    false_fields: jax.Array  # (5, E) bool: fields with which a `FALSE_SENDER` lies, in the order of `FIELDS`
    blind_tracking: jax.Array  # (E,) bool, negative control: nobody is flagged, not even a known pursuer
    blind_age: jax.Array  # (E,) bool, negative control: message ages count from arrival
    blind_take: jax.Array  # (E,) bool, negative control: requested space is used without acknowledgements
    radio: RadioLoss | None = None  # loss of set-points to drones; None without loss


FIELDS = ("point", "velocity", "reserved", "requested", "acknowledged")
"""Fields of a message; who lies about acknowledgements says at once that it heard everything."""

PURSUER, FAILED_PROCESS, FALSE_SENDER = 1, 2, 3
"""A pursuer drives unshielded at full speed at the nearest robot and is known as untrusted; a failed process ends while
the robot drives; a false sender announces wrong positions."""


def no_faults(dimension: int, size: int, worlds: int, driver_ticks: int) -> Faults:
    """Return worlds without faults, with a message time of one tick."""
    robots, links = jnp.zeros((size, worlds), jnp.int32), jnp.zeros((size - 1, size, worlds))
    none, pair = jnp.zeros(worlds, jnp.int32), jnp.zeros((2, worlds), jnp.int32)
    return Faults(
        phase=robots,
        late_chance=jnp.zeros(worlds),
        late_ticks=pair + 1,
        dead_from=robots + NEVER,
        dead_until=robots + NEVER,
        driver_ticks=none + driver_ticks,
        link_loss=links,
        message_ticks=pair + 1,
        blackout=pair + NEVER,
        jump=pair + NEVER,
        jump_world=jnp.zeros((dimension, worlds)),
        jump_yaw=jnp.zeros(worlds),
        hostile_kind=none,
        false_offset_world=jnp.zeros((dimension, worlds)),
        false_fields=jnp.isin(jnp.arange(len(FIELDS)), jnp.array([0, 2, 3]))[:, None] & (none == 0),
        blind_tracking=none > 0,
        blind_age=none > 0,
        blind_take=none > 0,
    )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LostLinkVehicle:
    """Received set-points of the drones."""

    reached: jax.Array  # (H, D, N, E): received effective commands, newest first
    burst: jax.Array  # (N, E) int: remaining ticks of a burst of loss
    silent: jax.Array  # (N, E) int: ticks since the last set-point


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
    spec: RobotSpec,
    floor_m: float,
    before: MotionState,
    after: MotionState,
    vehicle: LostLinkVehicle,
    loss: RadioLoss,
) -> MotionState:
    """Return the motion (D, N, E) after a tick, with coasting and falling of levelled drones.

    ``after`` is the motion under the received commands, ``floor_m`` the height [m] of the floor.
    """
    period, rest_m = spec.control_period_s, floor_m + spec.body_radius_m
    levelled = (vehicle.silent >= loss.hold_ticks) & ~loss.brakes
    falls = (vehicle.silent >= loss.cut_ticks) & ~loss.brakes
    old = before.velocity
    flat = old[:2] * (1 - period * loss.drag_per_s) + period * jnp.where(falls, 0.0, loss.drift_m_s2)
    high = jnp.where(falls, old[2] - period * GRAVITY_M_S2, after.velocity[2])
    velocity = jnp.concatenate([flat, high[None]])
    place = before.position_world + period / 2 * (old + velocity)
    place = place.at[2].set(jnp.where(falls, place[2], after.position_world[2]))
    down = place[2] <= rest_m
    place = place.at[2].set(jnp.where(down, rest_m + _ON_FLOOR_M, place[2]))
    velocity = jnp.where(down & falls, 0.0, velocity)
    return MotionState(
        jnp.where(levelled, place, after.position_world), after.yaw, jnp.where(levelled, velocity, after.velocity)
    )


def is_hostile(faults: Faults, kind: int, like: jax.Array) -> jax.Array:
    """Return the mask (N, E) of untrusted robots of a kind."""
    last = jnp.arange(like.shape[0]) == like.shape[0] - 1
    return last[:, None] & (faults.hostile_kind == kind)


def falsified(faults: Faults, messages: jax.Array) -> jax.Array:
    """Return the messages (7 D + M, N, E) with the false fields of false senders."""
    offset = faults.false_offset_world
    point, velocity, reserved, requested = (field * offset for field in faults.false_fields[:4])
    moved = jnp.concatenate([point, velocity, reserved, reserved, requested, requested, 0.0 * offset])
    false_sender = is_hostile(faults, FALSE_SENDER, messages[0])
    return messages.at[: moved.shape[0]].add(jnp.where(false_sender, moved[:, None], 0.0))
