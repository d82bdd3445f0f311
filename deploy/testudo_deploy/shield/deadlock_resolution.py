"""Deadlocks: detection, and a turn of the nominal velocity that resolves them.

The rule changes the nominal velocity only, before the shield, so that it cannot weaken safety. A robot that has
been blocked for a while turns its nominal velocity to the right, as all others do, like in a roundabout, until it
can move, and back towards its goal as soon as that direction is free. In narrow places the right of way decides
(`right_of_way.py`).
"""

import math
from dataclasses import dataclass, replace

from testudo_deploy.shield.arena import Arena
from testudo_deploy.shield.geometry import clamped_fraction, dot, turned_right, z_scaled
from testudo_deploy.shield.going_round import go_round
from testudo_deploy.shield.passage_driving import Wants, away_from_the_mouth, passage_velocity, without_those_that_wait
from testudo_deploy.shield.passage_order import (
    PassageOrder,
    PassageState,
    initial_passage_state,
    nearest_passage,
    outward,
    passage_order,
)
from testudo_deploy.shield.passages import Passage
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_deploy.shield.right_of_way import (
    STANDS_BESIDE,
    WANTS_SHARE,
    RightOfWay,
    Traffic,
    give_way,
    initial_right_of_way,
)
from testudo_deploy.shield.room_to_pass import PASS, is_free
from testudo_deploy.shield.velocity_projection import RECENT_S, PeerTable, extrapolated
from testudo_hardware.arrays import Array, array_namespace, known_false, max_of, min_of
from testudo_hardware.motion.motion_state import TINY, length

BLOCKED_SHARE = 0.3  # below this share of the wanted speed a robot counts as blocked
FREE_SHARE = 0.6  # above this share a direction counts as free
MEMORY_S = 0.7  # time constant of the mean progress; single ticks are noise
STUCK_S = 5.0  # a robot that is blocked for longer counts as deadlocked
TURN_RATE_RAD_S = math.radians(60)
LARGEST_TURN_RAD = math.radians(70)
_LOOK_RAD = math.radians(20)
_LATE_S = 0.1  # messages that are older widen what robots near a passage keep from each other, as layer 1 does
_ROUNDING = 1e-4  # a velocity that changed by less than this share of the top speed has not been turned
_IN_ORDER_S = 1.0  # peers heard less long ago count in the order of a passage, which changes slowly


@dataclass(frozen=True)
class DeadlockState:
    """State of the deadlock detection; batch (...)."""

    progress: Array  # mean share of the nominal velocity that the robot reached
    free: Array  # mean share that layer 1's rows leave of the nominal velocity, turned back a little
    turn_rad: Array  # angle by which it turns its nominal velocity to the right
    stuck_s: Array  # time for which it has been blocked although its nominal velocity is not zero
    way: RightOfWay
    passage: PassageState


def initial_deadlock_state(like: Array) -> DeadlockState:
    """Return the state of robots that are not blocked, in the shape (...) of ``like``."""
    return DeadlockState(
        1 + 0 * like, 1 + 0 * like, 0 * like, 0 * like, initial_right_of_way(like), initial_passage_state(like)
    )


def is_deadlocked(memory: DeadlockState) -> Array:
    """Return which robots (...) have been blocked for more than `STUCK_S`."""
    return memory.stuck_s > STUCK_S


@dataclass(frozen=True)
class ResolvedVelocity:
    """What a robot wants instead of its nominal velocity; (D, ...) [m/s]."""

    velocity_world: Array  # for the shield
    wanted_world: Array
    """For the peers: the nominal velocity, or that of giving way or going round, without any turn to the right.

    Of two that announced turned velocities, each would see the other no longer come its way, and turn on and off.
    """


def resolve_deadlock(
    shield: ProjectionParameters,
    arena: Arena | None,
    passages: tuple[Passage, ...],
    memory: DeadlockState,
    control_point_world: Array,
    neighbours: PeerTable,
    first: Array,
    nominal_world: Array,
    moved_world: Array,
    period_s: float,
) -> tuple[ResolvedVelocity, DeadlockState]:
    """Return the velocity that resolves or prevents a deadlock, and the new state.

    ``memory`` is the state of the tick before, ``period_s`` ago, when the shield allowed ``moved_world`` (D, ...)
    [m/s]. Positions are (D, ...) [m], slots (K, ...); ``first`` (K, ...) bool says to which peers the robot need not
    give way.
    """
    xp = array_namespace(nominal_world)
    offset = z_scaled(extrapolated(neighbours, shield.hold_s) - control_point_world[:, None, ...], shield.height_ratio)
    announced = neighbours.wanted_world
    traffic = Traffic(
        offset,
        z_scaled(neighbours.control_velocity_world, shield.height_ratio),
        z_scaled(0 * offset if announced is None else announced, shield.height_ratio),
        first,
        _trusted(neighbours) & (neighbours.age_s < RECENT_S),  # what a silent peer wanted says nothing of now
    )
    order, in_passage, wide = None, memory.passage, shield
    if passages:
        frame, near = nearest_passage(passages, control_point_world, shield.separation_m)
        if not known_false(near):
            heard = _trusted(neighbours) & (neighbours.age_s < _IN_ORDER_S)
            unheard = neighbours.valid & ~heard
            traffic = replace(traffic, present=xp.where(near[None, ...], heard, traffic.present))
            wide = wider(shield, neighbours.age_s, heard & near[None, ...])
            outside = control_point_world + PASS * wide.separation_m * outward(frame, control_point_world)
            room = is_free(shield, arena, outside)
            known = (traffic, unheard, nominal_world, room, shield.peer_speed_m_s, period_s)
            found_order, passed = passage_order(frame, memory.passage, control_point_world, *known)
            order, in_passage = _within_reach(near, found_order, passed, memory.passage)
            traffic = without_those_that_wait(traffic, order)
            nominal_world = away_from_the_mouth(order, nominal_world)
    place, stalls = (control_point_world, traffic, nominal_world), memory.progress < BLOCKED_SHARE
    wanted, replaced, way = give_way(shield, arena, memory.way, *place, stalls, period_s)
    beside, rounds = go_round(wide, arena, *place, order)
    unturned = length(wanted - nominal_world) < _ROUNDING * shield.peer_speed_m_s
    rounds = rounds & ~replaced & unturned  # those that come have precedence
    announced = xp.where(replaced, wanted, xp.where(rounds, beside, nominal_world))
    announced = xp.where(way.to_all == STANDS_BESIDE, 0 * announced, announced)  # so that others go round it
    wants = Wants(xp.where(rounds, beside, wanted), replaced | rounds, announced)
    if order is not None and not known_false(order.takes_part):
        wants, way = _in_order(order, passage_velocity(wide, arena, order, *place), wants, way)
    turned, after = _turned(shield, memory, offset, wants.velocity_world, moved_world, period_s)
    found = ResolvedVelocity(xp.where(wants.is_final, wants.velocity_world, turned), wants.announced_world)
    return found, replace(after, way=way, passage=in_passage)


def wider(shield: ProjectionParameters, age_s: Array, heard: Array) -> ProjectionParameters:
    """Return the parameters with the separation (...) that layer 1 needs where messages are late."""
    xp = array_namespace(age_s)
    if age_s.shape[0] == 0:
        return shield
    late_s = xp.where(heard, xp.clip(age_s - _LATE_S, 0.0, RECENT_S), 0.0)
    return replace(shield, separation_m=shield.separation_m + shield.peer_speed_m_s * max_of(late_s, axis=0))


def _within_reach(
    near: Array, order: PassageOrder, passed: PassageState, before: PassageState
) -> tuple[PassageOrder, PassageState]:
    """Return order and state of robots; those that are not ``near`` (...) a passage take no part and keep their state.

    Batches of robots compute the order for all; a robot by itself leaves it out beyond its reach, with the same result.
    """
    xp = array_namespace(near)
    those = {"peer_waits": order.peer_waits & near[None, ...], "enters": order.enters & near[None, ...]}
    reached = replace(order, takes_part=order.takes_part & near, followed=order.followed & near, **those)
    through_s = xp.where(near, passed.through_s, before.through_s)
    return reached, PassageState(through_s, xp.where(near, passed.waited_s, before.waited_s))


def _trusted(neighbours: PeerTable) -> Array:
    return neighbours.valid if neighbours.untrusted is None else neighbours.valid & ~neighbours.untrusted


def _in_order(order: PassageOrder, ordered: Wants, otherwise: Wants, way: RightOfWay) -> tuple[Wants, RightOfWay]:
    """Return what robots want where the order of a passage counts, and the right of way, which rests there.

    One that gives way to all leaves its goal in the passage, and must not be the first to return.
    """
    xp = array_namespace(order.takes_part)
    counts = order.takes_part & (way.to_all == 0)

    def chosen(one: Array, other: Array) -> Array:
        return xp.where(counts, one, other)

    rests = initial_right_of_way(way.blocked_s)
    return (
        Wants(
            chosen(ordered.velocity_world, otherwise.velocity_world),
            chosen(ordered.is_final, otherwise.is_final),
            chosen(ordered.announced_world, otherwise.announced_world),
        ),
        RightOfWay(
            chosen(rests.blocked_s, way.blocked_s),
            chosen(rests.gives_way_s, way.gives_way_s),
            chosen(rests.to_all, way.to_all),
        ),
    )


def _turned(
    shield: ProjectionParameters,
    memory: DeadlockState,
    offset: Array,
    nominal_world: Array,
    moved_world: Array,
    period_s: float,
) -> tuple[Array, DeadlockState]:
    """Return the nominal velocity (D, ...) [m/s], turned where the robot is blocked, and the new state."""
    xp = array_namespace(nominal_world)
    speed = length(nominal_world)
    wants = speed > WANTS_SHARE * shield.peer_speed_m_s
    wanted = turned_right(nominal_world, memory.turn_rad)
    # a policy may want more than robots reach, which is no sign of a blocked one
    reachable = xp.minimum(speed, 0 * speed + shield.peer_speed_m_s)
    made = clamped_fraction(dot(wanted, moved_world) / (speed * reachable + TINY))
    share = reachable / xp.maximum(speed, 0 * speed + TINY)
    back = share * turned_right(nominal_world, xp.maximum(memory.turn_rad - _LOOK_RAD, 0 * speed))
    left = clamped_fraction(_free_share(shield, offset, back))
    gain = period_s / MEMORY_S
    progress = xp.where(wants, memory.progress + gain * (made - memory.progress), 1.0)
    free = xp.where(wants, memory.free + gain * (left - memory.free), 1.0)
    step = TURN_RATE_RAD_S * period_s
    change = xp.where(progress < BLOCKED_SHARE, step, xp.where(free > FREE_SHARE, 0 * free - step, 0.0))
    turn = xp.where(wants, xp.minimum(xp.maximum(memory.turn_rad + change, 0.0), LARGEST_TURN_RAD), 0.0)
    stuck_s = xp.where(wants & (progress < BLOCKED_SHARE), memory.stuck_s + period_s, 0.0)
    return turned_right(nominal_world, turn), DeadlockState(progress, free, turn, stuck_s, memory.way, memory.passage)


def _free_share(shield: ProjectionParameters, offset: Array, velocity: Array) -> Array:
    """Return the share of a velocity (D, ...) that layer 1's pair rows leave; offsets (D, K, ...) are height-scaled."""
    xp = array_namespace(velocity)
    if offset.shape[1] == 0:
        return xp.ones_like(velocity[0, ...])
    distance = length(offset)
    towards = dot(offset, z_scaled(velocity, shield.height_ratio)[:, None, ...]) / (distance + TINY)
    allowed = shield.gap_share / (2 * shield.reach_s) * xp.maximum(distance - shield.separation_m, 0 * distance)
    return min_of(xp.where(towards > TINY, allowed / xp.maximum(towards, TINY + 0 * towards), 1.0), axis=0)
