"""What a robot wants in a narrow passage: to follow it, to wait beside the way out of others, or to back out."""

import math
from dataclasses import dataclass, replace

from testudo_deploy.shield.arena import Arena
from testudo_deploy.shield.geometry import dot
from testudo_deploy.shield.passage_order import PassageOrder
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_deploy.shield.right_of_way import SLOW_SHARE, Traffic, best_direction, lanes_of
from testudo_hardware.arrays import Array, array_namespace, known_false
from testudo_hardware.motion.motion_state import TINY, length

_WAITS_NEAR = 0.06
"""Gain of a direction towards the mouth, for one that waits: it stands close to it, so that it is soon inside.

More than a move costs, less than any lane.
"""

_MAINLY = 0.7
"""Least part along the axis of what one wants that came out and is followed."""
_STEP_SHARE = 0.5  # of the usual look-ahead, so that it stands no farther aside than it must


@dataclass(frozen=True)
class Wants:
    """What robots want; (D, ...) [m/s]."""

    velocity_world: Array
    is_final: Array  # (...) bool: it is not turned to the right
    announced_world: Array  # to the peers: in a passage the way through, whether they drive or wait


def without_those_that_wait(traffic: Traffic, order: PassageOrder) -> Traffic:
    """Return the traffic in which peers that must wait want nothing, so that nobody gives way to them."""
    xp = array_namespace(traffic.wanted_world)
    kept = xp.where(order.peer_waits[None, ...], xp.zeros_like(traffic.wanted_world), traffic.wanted_world)
    return replace(traffic, wanted_world=kept)


def away_from_the_mouth(order: PassageOrder, nominal_world: Array) -> Array:
    """Return the wanted velocity (D, ...) [m/s] of one that came out: while it is followed, in an arc.

    A sharp turn right at the mouth takes time, in which those behind would have to wait.
    """
    xp = array_namespace(nominal_world)
    speed, outward = length(nominal_world), order.outward_world
    along = dot(nominal_world, outward)
    across = nominal_world - along * outward
    beside = length(across)
    turns = order.followed & (along < _MAINLY * speed) & (along > -_MAINLY * speed)
    arc = speed * (_MAINLY * outward + math.sqrt(1 - _MAINLY**2) * across / (beside + TINY))
    return xp.where(turns, arc, nominal_world)


def passage_velocity(
    shield: ProjectionParameters,
    arena: Arena | None,
    order: PassageOrder,
    point_world: Array,
    traffic: Traffic,
    nominal_world: Array,
) -> Wants:
    """Return what robots want that take part in the order; ``traffic`` is `without_those_that_wait`."""
    xp = array_namespace(nominal_world)
    top = shield.peer_speed_m_s
    speed = length(nominal_world)  # slow near a goal in the passage
    way = xp.minimum(speed, top + 0 * speed) * order.through_world
    drives = order.speed_share * xp.where(order.follows, way, nominal_world)
    if not known_false(order.waits):
        drives = xp.where(order.waits, SLOW_SHARE * top * _aside(shield, arena, order, point_world, traffic), drives)
    velocity = xp.where(order.backs_out, SLOW_SHARE * top * order.out_world, drives)
    return Wants(velocity, order.follows | order.waits, way)


def _aside(
    shield: ProjectionParameters, arena: Arena | None, order: PassageOrder, point_world: Array, traffic: Traffic
) -> Array:
    """Return the unit vector (D, ...), or zero, out of the lanes of others and of the way out of the passage."""
    xp = array_namespace(point_world)
    # they come out along the axis; who then turns to this robot passes on its outer side
    ways = order.outward_world[:, None, ...] + 0 * traffic.offset_world
    offset = xp.concat([traffic.offset_world, order.comes_from_world], axis=1)
    beyond = order.peer_beyond[None, ...]
    wanted = xp.where(beyond, xp.zeros_like(traffic.wanted_world), traffic.wanted_world)
    wanted = xp.concat([wanted, shield.peer_speed_m_s * ways], axis=1)
    still = xp.concat([traffic.moving_world, xp.zeros_like(ways)], axis=1)
    comes = order.comes
    nobody = comes & ~comes
    first = xp.concat([traffic.first, nobody])
    lanes = lanes_of(shield, Traffic(offset, still, wanted, first, xp.concat([traffic.present, comes])))
    bodies = Traffic(offset, still, wanted, first, xp.concat([traffic.present, nobody]))
    eager = _WAITS_NEAR + 0 * order.speed_share
    return best_direction(shield, arena, point_world, bodies, lanes, order.through_world, eager, _STEP_SHARE)
