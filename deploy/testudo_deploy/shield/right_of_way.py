"""Right of way: on which side robots pass each other, who gives way in a narrow place, and where to.

The rule changes the nominal velocity only, before the shield, so that it cannot weaken safety. Robots announce the
velocity that they want. Those that come each other's way keep to their right. One that is blocked by a robot of a
higher priority that comes its way leaves that one's lane: of a few directions it takes the one in which lane, walls,
obstacles and other robots of the map leave most room: first backwards out of a narrow place, then aside. It waits there
until the other has passed. If that one is held up all the same, as two beside each other in a corridor are in which
both have to go round one that stands, it goes back where it came from. A robot that stands where it wants to be gives
way to all. One that is blocked otherwise tries the directions, too.
"""

import functools
import math
from dataclasses import dataclass, replace

import numpy as np

from testudo_deploy.shield.arena import Arena
from testudo_deploy.shield.geometry import dot, left_of, turned_right
from testudo_deploy.shield.passages import beyond_walls
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_deploy.shield.room_to_pass import can_pass, free_beside, goes_round_one, is_free
from testudo_hardware.arrays import Array, any_of, array_namespace, known_false, max_of, min_of
from testudo_hardware.motion.motion_state import TINY, length

GIVES_WAY_AFTER_S = 0.2  # a robot that is blocked for longer gives way
DETOURS_AFTER_S = 0.4  # one that need not give way tries other directions
_LEAVES_WALL_AFTER_S = 2.0  # and after this, off the wall: a wheeled robot that turns along it swings its tail into it
_GOES_ROUND_S = 1.5  # time that a peer has to go round one that stands, where there is room
_GIVES_WAY_FOR_S = 0.4  # time for which a robot gives way after it no longer has to
_MAKES_ROOM_FOR_S = 6.0  # one that has made room for longer in vain tries the directions, too
BACKS_OUT_AFTER_S = 3.0  # one that has given way in vain for longer goes back where it came from
_DIRECTIONS = 16
_STEEPEST_RAD = math.radians(50)  # largest turn to the right of robots that meet
PARKED_SHARE = 0.25  # a robot that wants less than this share of its speed stands where it wants to be
_HELD_SHARE = 0.3  # a peer that moves at less than this share of what it wants is held up
SLOW_SHARE = 0.7  # share of its speed at which a robot gives way
WANTS_SHARE = 0.05  # below this share of its speed a robot wants nothing
_AGAINST, _HEAD_ON = -0.2, -0.7  # cosines below which two wanted directions are against each other, and head-on
# lengths in separations of two control points
_STEP = 0.35  # look-ahead of a direction
_LANE = 1.1  # half the width of a lane that is left free
_ROOM = 1.12  # distance that directions keep from peers; reserved segments need more than the separation
_OFF_WALL = 0.3
_SHIFTS = (-0.1, 0.0, 0.25, 0.5)  # by how much one that stands, perhaps too near to a wall, can move aside
_TO_SPARE = 1.16  # with less room beside it one that stands makes room: others would squeeze past along the wall
_GIVES_ROOM = 1.2  # how far beside others one stands that makes room
_HELD_UP, _NEAR, _FAR = 1.8, 2.5, 4.0  # how near a peer holds up a parked robot's peer, is given way to, and still is
_AT_ALL = math.hypot(_FAR, _LANE)  # one that is farther away matters in no way
_LOOKS = (0.7, 1.4, 2.1, 2.8)  # where a robot looks for a narrow place
_BESIDE = 1.2  # and how far to both sides of it
_FAR_M = 1e3
# costs of a direction, for a share of the separation that is missing
_LANE_COST, _BACK_COST, _PEER_COST, _WALL_COST = 1.0, 0.3, 2.0, 10.0
_MOVES_COST = 0.03
_EAGER, _YIELDING = 0.3, 0.02  # gain of a direction towards the own aim, in a detour and when giving way
STANDS_BESIDE = 2.0  # `RightOfWay.to_all` of one that stands aside in a place where others pass it


@dataclass(frozen=True)
class RightOfWay:
    """State of the rule; batch (...)."""

    blocked_s: Array  # time for which the robot has been blocked, or has held up another
    gives_way_s: Array  # time for which it still gives way
    to_all: Array  # 1 if it gives way to all, since it stood where it wants to be; 2 if it stands beside them; else 0


def initial_right_of_way(like: Array) -> RightOfWay:
    """Return the state of robots that are not blocked, in the shape (...) of ``like``."""
    return RightOfWay(0 * like, 0 * like, 0 * like)


@dataclass(frozen=True)
class Traffic:
    """What a robot knows of its peers; slots (K, ...). Heights are scaled."""

    offset_world: Array  # (D, K, ...) [m]: from the own control point
    moving_world: Array  # (D, K, ...) [m/s]: announced velocity
    wanted_world: Array  # (D, K, ...) [m/s]: announced wanted velocity
    first: Array  # (K, ...) bool: the robot itself has the higher priority
    present: Array  # (K, ...) bool


@dataclass(frozen=True)
class Lanes:
    """The lanes of the peers, from where they are into the direction that they want; slots (K, ...)."""

    ahead: Array  # (D, K, ...): unit vector
    wants: Array  # bool
    held: Array  # bool: the peer hardly moves
    towards_m: Array  # how far ahead of the peer the robot is
    is_inside: Array  # bool: the robot is in the lane
    distance_m: Array


def give_way(
    shield: ProjectionParameters,
    arena: Arena | None,
    state: RightOfWay,
    point_world: Array,
    traffic: Traffic,
    nominal_world: Array,
    stalls: Array,
    period_s: float,
) -> tuple[Array, Array, RightOfWay]:
    """Return the wanted velocity (D, ...) [m/s], whether it replaces the nominal one (...), and the new state.

    ``stalls`` (...) bool says whether the robot hardly makes the velocity that it wants; positions are (D, ...) [m].
    """
    xp = array_namespace(nominal_world)
    unit, speed = shield.separation_m, length(nominal_world)
    zero, ahead = 0 * speed, nominal_world / (speed + TINY)
    lanes = lanes_of(shield, traffic)
    giving = state.gives_way_s > 0
    if known_false(stalls | giving | (state.blocked_s > 0)) and known_false(
        lanes.wants & (lanes.distance_m < _AT_ALL * unit)
    ):
        return nominal_world, stalls, initial_right_of_way(zero)  # what follows would give the same
    cosine = dot(ahead[:, None, ...], lanes.ahead)
    parked = speed < PARKED_SHARE * shield.peer_speed_m_s
    near = lanes.wants & lanes.is_inside & (lanes.distance_m < _HELD_UP * unit)
    no_room = ~can_pass(shield, arena, point_world, lanes.ahead, (0.0,), _TO_SPARE)
    waits_for = goes_round_one(shield, arena, point_world, lanes.ahead) & (state.blocked_s < _GOES_ROUND_S)
    stops = no_room | (lanes.held & ~waits_for)
    comes = lanes.wants & ~traffic.first & lanes.is_inside & (lanes.distance_m < _NEAR * unit) & (cosine < _AGAINST)
    in_vain = _gives_way_in_vain(shield, state, lanes, traffic)
    stalls = xp.where(parked, any_of(near & (lanes.held | no_room), axis=0), stalls | in_vain)
    fades_s = xp.where(giving | parked, xp.maximum(state.blocked_s - period_s, zero), zero)
    blocked_s = xp.where(_is_narrow(shield, arena, point_world, stalls), state.blocked_s + period_s, fades_s)
    against = xp.where(parked, near & stops, comes)
    must = any_of(against, axis=0) & (blocked_s > GIVES_WAY_AFTER_S)
    to_all = xp.where(giving, state.to_all > 0, parked & must)
    higher = ~traffic.first | to_all[None, ...]
    behind_m = xp.where(to_all, zero, zero - 0.5 * unit)  # until there it waits for those that have passed
    passing = lanes.wants & higher & (lanes.distance_m < _FAR * unit) & (lanes.towards_m > behind_m[None, ...])
    passing = passing & ((cosine < _AGAINST) | giving[None, ...])
    goes_on = must | (giving & any_of(passing, axis=0))
    gives_way_s = xp.where(goes_on, _GIVES_WAY_FOR_S, xp.maximum(state.gives_way_s - period_s, zero))
    after = RightOfWay(blocked_s, gives_way_s, xp.where(to_all, zero + 1, zero))
    gives = gives_way_s > 0
    replaces = gives | (~parked & (blocked_s > DETOURS_AFTER_S))
    wanted = turned_right(nominal_world, _keeps_right(unit, traffic, lanes, ahead, cosine))
    if known_false(replaces):
        return wanted, replaces, after
    kept_free = replace(lanes, wants=(passing | against) & gives[None, ...] & (stops | ~to_all[None, ...]))
    eager = xp.where(gives, _YIELDING + zero, _EAGER + zero)
    off_wall = xp.where(~gives & (blocked_s > _LEAVES_WALL_AFTER_S), _OFF_WALL * unit + zero, zero)
    best = best_direction(shield, arena, point_world, traffic, kept_free, ahead, eager, 1.0, off_wall)
    if lanes.wants.shape[0] > 0:
        sideways, makes_room = _sideways(shield, arena, point_world, traffic, lanes, passing | against)
        makes_room = makes_room & gives & to_all & (blocked_s < _MAKES_ROOM_FOR_S)
        best = xp.where(makes_room, sideways, best)
        after = replace(after, to_all=xp.where(makes_room, zero + STANDS_BESIDE, after.to_all))
    best = xp.where(gives & ~parked & ~to_all & (blocked_s > BACKS_OUT_AFTER_S), -ahead, best)
    return xp.where(replaces, SLOW_SHARE * shield.peer_speed_m_s * best, wanted), replaces, after


def _gives_way_in_vain(shield: ProjectionParameters, state: RightOfWay, lanes: Lanes, traffic: Traffic) -> Array:
    """Return whether a robot gives way to one, near it and not past it, that is held up all the same (...).

    Once the robot backs out, it does so until it need not give way: the other one follows.
    """
    near = (lanes.distance_m < _NEAR * shield.separation_m) & (lanes.towards_m > -0.5 * shield.separation_m)
    held_up = any_of(near & lanes.wants & lanes.held & ~traffic.first, axis=0)
    gives = (state.gives_way_s > 0) & (state.to_all == 0)
    return gives & (held_up | (state.blocked_s > BACKS_OUT_AFTER_S))


def _sideways(
    shield: ProjectionParameters,
    arena: Arena | None,
    point_world: Array,
    traffic: Traffic,
    lanes: Lanes,
    passing: Array,
) -> tuple[Array, Array]:
    """Return the unit vector (D, ...), or zero, across the lane of one that passes, and whether that makes room (...).

    Of those ``passing`` (K, ...) the nearest counts, if walls let it pass here or a little to the side. The robot stays
    on its side of the lane, and goes on until there is room to spare, or until layer 1 stops it at a wall: a centimetre
    there decides whether the other can pass. It does not drive along the lane: it would be before the other for the
    whole length of a corridor.
    """
    xp = array_namespace(point_world)
    unit = shield.separation_m
    counts = passing & can_pass(shield, arena, point_world, lanes.ahead, _SHIFTS)
    nearest = counts & (lanes.distance_m <= min_of(xp.where(counts, lanes.distance_m, _FAR_M), axis=0))
    ahead = xp.sum(xp.where(nearest[None, ...], lanes.ahead, 0 * lanes.ahead), axis=1)
    ahead = ahead / (length(ahead) + TINY)
    offset = xp.sum(xp.where(nearest[None, ...], traffic.offset_world, 0 * traffic.offset_world), axis=1)
    left_m = ahead[1, ...] * offset[0, ...] - ahead[0, ...] * offset[1, ...]  # how far left of the lane the robot is
    left = xp.stack([-ahead[1, ...], ahead[0, ...], *(0 * ahead[0, ...] for _ in range(ahead.shape[0] - 2))])
    place = point_world[:, None, ...]
    by_right, by_left = free_beside(shield, arena, place, ahead[:, None, ...])
    to_left = ((by_right & ~by_left) | ((by_right == by_left) & (left_m >= 0)[None, ...]))[0, ...]
    way = xp.where(to_left, left, -left)
    goes = is_free(shield, arena, point_world) & (xp.abs(left_m) < _GIVES_ROOM * unit)
    return xp.where(goes[None, ...], way, 0 * way), any_of(nearest, axis=0)


def lanes_of(shield: ProjectionParameters, traffic: Traffic) -> Lanes:
    """Return the lanes of all peers."""
    xp = array_namespace(traffic.offset_world)
    wanted = length(traffic.wanted_world)
    ahead, distance = traffic.wanted_world / (wanted + TINY), length(traffic.offset_world)
    towards = -dot(traffic.offset_world, ahead)
    beside = xp.sqrt(xp.maximum(distance**2 - towards**2, 0 * distance))
    fastest = xp.minimum(wanted, shield.peer_speed_m_s + 0 * wanted)
    return Lanes(
        ahead,
        (wanted > PARKED_SHARE * shield.peer_speed_m_s) & traffic.present,  # noise about its place is no wish
        length(traffic.moving_world) < _HELD_SHARE * fastest,
        towards,
        (towards > -0.3 * shield.separation_m) & (beside < _LANE * shield.separation_m),
        distance,
    )


def _keeps_right(unit: float, traffic: Traffic, lanes: Lanes, ahead: Array, cosine: Array) -> Array:
    """Return by how much [rad] a robot turns to the right, so that those who come its way pass on its left."""
    xp = array_namespace(ahead)
    if lanes.wants.shape[0] == 0:
        return 0 * ahead[0, ...]
    along, left = dot(ahead[:, None, ...], traffic.offset_world), left_of(ahead, traffic.offset_world)
    meets = lanes.wants & (cosine < _HEAD_ON) & (along > 0.3 * unit) & (along < _FAR * unit)
    # in space, one that is far above or far aside of a climbing robot can be near in both of these
    meets = meets & (xp.abs(left) < _LANE * unit) & (lanes.distance_m < _AT_ALL * unit)
    if known_false(meets):
        return 0 * ahead[0, ...]
    missing = (_LANE * unit - left) / 2  # each robot makes half of the way
    angle = xp.atan2(missing, xp.maximum(along / 2 - 0.5 * unit, 0.2 * unit + 0 * along))
    angle = max_of(xp.where(meets, angle, 0 * angle), axis=0)
    return xp.minimum(angle, _STEEPEST_RAD + 0 * angle)


def best_direction(
    shield: ProjectionParameters,
    arena: Arena | None,
    point_world: Array,
    traffic: Traffic,
    lanes: Lanes,
    ahead: Array,
    eager: Array,
    reach: float = 1.0,
    off_wall_m: Array | float = 0.0,
) -> Array:
    """Return the horizontal unit vector (D, ...), or zero, that leaves ``lanes`` and keeps most room; C directions.

    ``eager`` (...) is the gain of a direction towards ``ahead``; ``reach`` is the share of the usual look-ahead;
    ``off_wall_m`` (...) is what walls are kept from beyond the margin.
    """
    xp = array_namespace(point_world)
    unit, size = shield.separation_m, point_world.shape[0]
    compass = xp.asarray(_compass(size), dtype=point_world.dtype)
    moves = xp.reshape(length(compass), (-1,) + (1,) * (point_world.ndim - 1))
    compass = xp.reshape(compass, (*compass.shape, *(1,) * (point_world.ndim - 1)))
    step = _STEP * unit * reach * compass
    # a little to the right of the aim, so that two robots do not choose the same side
    aim = turned_right(ahead, 0.1 + 0 * ahead[0, ...])
    cost = reach * (_MOVES_COST * moves - eager * dot(aim[:, None, ...], compass))
    offset = traffic.offset_world[:, None, ...] - step[:, :, None, ...]  # (D, C, K, ...)
    distance = length(offset)
    towards = -dot(offset, lanes.ahead[:, None, ...])
    beside = xp.where(towards > 0, xp.sqrt(xp.maximum(distance**2 - towards**2, 0 * distance)), distance)
    inside = xp.maximum(_LANE * unit - beside, 0 * beside)
    back = xp.where(inside > 0, _FAR * unit - towards, 0 * towards)
    in_lanes = xp.where(lanes.wants[None, ...], _LANE_COST * inside + _BACK_COST * back, 0 * inside)
    close = xp.where(traffic.present[None, ...], xp.maximum(_ROOM * unit - distance, 0 * distance), 0 * distance)
    cost = cost + xp.sum(in_lanes + _PEER_COST * close, axis=1) / unit
    if arena is not None:
        place = point_world[:, None, ...] + step
        cost = cost + _WALL_COST / unit * beyond_walls(shield.wall_m + off_wall_m, arena, place)
    best = xp.argmin(cost, axis=0)[None, ...]
    chosen = xp.reshape(xp.arange(compass.shape[1]), (-1,) + (1,) * (point_world.ndim - 1)) == best
    return xp.stack([xp.sum(xp.where(chosen, compass[d, ...], 0 * cost), axis=0) for d in range(size)])


def _is_narrow(shield: ProjectionParameters, arena: Arena | None, point_world: Array, asked: Array) -> Array:
    """Return whether a robot (...) is near a passage in which two can hardly pass each other.

    There a free place has walls or obstacles on two opposite sides, and none on the two sides across. A corner, which
    also has walls on opposite sides, is no passage.
    """
    xp = array_namespace(point_world)
    if arena is None or known_false(asked):
        return asked & ~asked
    unit = shield.separation_m

    def is_free(places: np.ndarray) -> Array:
        offset = xp.asarray(unit * places, dtype=point_world.dtype)
        offset = xp.reshape(offset, (*offset.shape, *(1,) * (point_world.ndim - 1)))
        point = xp.reshape(point_world, (point_world.shape[0], *(1,) * (places.ndim - 1), *point_world.shape[1:]))
        return beyond_walls(shield.wall_m, arena, point + offset) <= 0.1 * unit

    centres, sides = _places(point_world.shape[0])
    free = is_free(sides)  # (C, axis, side, ...)
    open_axis, closed_axis = free[:, :, 0, ...] & free[:, :, 1, ...], ~free[:, :, 0, ...] & ~free[:, :, 1, ...]
    across = xp.concat([open_axis[:, 2:, ...], open_axis[:, :2, ...]], axis=1)
    return asked & any_of(is_free(centres) & any_of(closed_axis & across, axis=1), axis=0)


@functools.cache
def _places(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return places (D, C) about a robot, and those beside each (D, C, axis, side), in separations.

    The axes are 45 degrees apart, so that the one across is two further.
    """

    def towards(count: int, turn_rad: float) -> np.ndarray:
        angle = turn_rad * np.arange(count)
        return np.stack([np.cos(angle), np.sin(angle), *(0 * angle for _ in range(size - 2))])

    around = towards(8, math.pi / 4)
    centres = np.concatenate([np.zeros((size, 1)), *(reach * around for reach in _LOOKS)], axis=1)
    beside = _BESIDE * np.stack([towards(4, math.pi / 4), -towards(4, math.pi / 4)], axis=-1)
    return centres, centres[:, :, None, None] + beside[:, None]


@functools.cache
def _compass(size: int) -> np.ndarray:
    """Return zero and the directions (D, C) that are tried."""
    angle = 2 * math.pi * np.arange(_DIRECTIONS) / _DIRECTIONS
    compass = np.zeros((size, _DIRECTIONS + 1))
    compass[0, 1:], compass[1, 1:] = np.cos(angle), np.sin(angle)
    return compass
