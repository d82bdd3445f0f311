"""Deadlocks: detection, and a turn of the nominal velocity that resolves them.

The rule changes the nominal velocity only, before the shield, so that it cannot weaken safety. A robot that has
been blocked for a while turns its nominal velocity to the right, as all others do, like in a roundabout, until it
can move, and back towards its goal as soon as that direction is free.
"""

import math
from dataclasses import dataclass

from testudo_deploy.shield.geometry import dot, z_scaled
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_deploy.shield.velocity_projection import PeerTable, extrapolated
from testudo_hardware.arrays import Array, array_namespace
from testudo_hardware.motion.motion_state import TINY, length

BLOCKED_SHARE = 0.3  # below this share of the wanted speed a robot counts as blocked
FREE_SHARE = 0.6  # above this share a direction counts as free
MEMORY_S = 0.7  # time constant of the mean progress; single ticks are noise
STUCK_S = 5.0  # a robot that is blocked for longer counts as deadlocked
TURN_RATE_RAD_S = math.radians(60)
LARGEST_TURN_RAD = math.radians(70)
_LOOK_RAD = math.radians(20)
_STEEP_SHARE = 0.5  # a velocity is steep if its horizontal part is less than this share of its vertical part


@dataclass(frozen=True)
class DeadlockState:
    """State of the deadlock detection; batch (...)."""

    progress: Array  # mean share of the nominal velocity that the robot reached
    free: Array  # mean share that layer 1's rows leave of the nominal velocity, turned back a little
    turn_rad: Array  # angle by which it turns its nominal velocity to the right
    stuck_s: Array  # time for which it has been blocked although its nominal velocity is not zero


def initial_deadlock_state(like: Array) -> DeadlockState:
    """Return the state of robots that are not blocked, in the shape (...) of ``like``."""
    return DeadlockState(1 + 0 * like, 1 + 0 * like, 0 * like, 0 * like)


def is_deadlocked(memory: DeadlockState) -> Array:
    """Return which robots (...) have been blocked for more than `STUCK_S`."""
    return memory.stuck_s > STUCK_S


def resolve_deadlock(
    shield: ProjectionParameters,
    memory: DeadlockState,
    control_point_world: Array,
    neighbours: PeerTable,
    nominal_world: Array,
    moved_world: Array,
    period_s: float,
) -> tuple[Array, DeadlockState]:
    """Return the nominal velocity (D, ...) [m/s], turned where the robot is blocked, and the new state.

    ``memory`` is the state of the tick before, ``period_s`` ago, when the shield allowed ``moved_world`` (D, ...)
    [m/s]. Positions are (D, ...) [m], slots (K, ...).
    """
    xp = array_namespace(nominal_world)
    speed = length(nominal_world)
    offset = extrapolated(neighbours, shield.hold_s) - control_point_world[:, None, ...]
    wants = speed > 0.05 * shield.peer_speed_m_s
    wanted = turned_right(nominal_world, memory.turn_rad)
    # a policy may want more than robots reach, which is no sign of a blocked one
    reachable = xp.minimum(speed, 0 * speed + shield.peer_speed_m_s)
    made = xp.clip(dot(wanted, moved_world) / (speed * reachable + TINY), 0.0, 1.0)
    share = reachable / xp.maximum(speed, 0 * speed + TINY)
    back = share * turned_right(nominal_world, xp.maximum(memory.turn_rad - _LOOK_RAD, 0 * speed))
    left = xp.clip(_free_share(shield, offset, back), 0.0, 1.0)
    gain = period_s / MEMORY_S
    progress = xp.where(wants, memory.progress + gain * (made - memory.progress), 1.0)
    free = xp.where(wants, memory.free + gain * (left - memory.free), 1.0)
    step = TURN_RATE_RAD_S * period_s
    change = xp.where(progress < BLOCKED_SHARE, step, xp.where(free > FREE_SHARE, 0 * free - step, 0.0))
    turn = xp.where(wants, xp.clip(memory.turn_rad + change, 0.0, LARGEST_TURN_RAD), 0.0)
    stuck_s = xp.where(wants & (progress < BLOCKED_SHARE), memory.stuck_s + period_s, 0.0)
    return turned_right(nominal_world, turn), DeadlockState(progress, free, turn, stuck_s)


def _free_share(shield: ProjectionParameters, offset: Array, velocity: Array) -> Array:
    """Return which share of a velocity (D, ...) layer 1's pair rows leave, peers at ``offset`` (D, K, ...)."""
    xp = array_namespace(velocity)
    if offset.shape[1] == 0:
        return xp.ones_like(velocity[0, ...])
    offset = z_scaled(offset, shield.height_ratio)
    distance = length(offset)
    towards = dot(offset, z_scaled(velocity, shield.height_ratio)[:, None, ...]) / (distance + TINY)
    allowed = shield.gap_share / (2 * shield.reach_s) * xp.maximum(distance - shield.separation_m, 0 * distance)
    return xp.min(xp.where(towards > TINY, allowed / xp.maximum(towards, TINY + 0 * towards), 1.0), axis=0)


def turned_right(vector: Array, angle_rad: Array) -> Array:
    """Return vectors (D, ...) turned to the right by an angle (...), about the vertical; steep ones out of it.

    One that goes up turns to y, one that goes down against it: two that meet head-on do not turn to the same side.
    """
    xp = array_namespace(vector)
    cosine, sine = xp.cos(angle_rad), xp.sin(angle_rad)
    x, y = vector[0, ...], vector[1, ...]
    if vector.shape[0] == 2:
        return xp.stack([cosine * x + sine * y, cosine * y - sine * x])
    z = vector[2, ...]
    steep = x * x + y * y < _STEEP_SHARE**2 * z * z
    return xp.where(
        steep,
        xp.stack([x + 0 * sine, cosine * y + sine * z, cosine * z - sine * y]),
        xp.stack([cosine * x + sine * y, cosine * y - sine * x, z + 0 * sine]),
    )
