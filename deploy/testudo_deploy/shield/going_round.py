"""Going round a robot that stands where it wants to be, beside a wall: on the side on which there is room.

The rule changes the nominal velocity only, before the shield, so that it cannot weaken safety. Elsewhere the turn of
all to the right does that; beside a wall the right may have no room.
"""

import math

from testudo_deploy.shield.arena import Arena
from testudo_deploy.shield.geometry import dot, left_of, turned_right
from testudo_deploy.shield.passage_order import PassageOrder
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_deploy.shield.right_of_way import PARKED_SHARE, Traffic
from testudo_deploy.shield.room_to_pass import PASS, free_beside
from testudo_hardware.arrays import Array, any_of, array_namespace, known_false, min_of
from testudo_hardware.motion.motion_state import TINY, length

_STEEPEST_RAD = math.radians(60)
# lengths in separations of two control points
_BEFORE = 1.8  # how far before one that stands a robot turns
_BESIDE = 0.3  # nearer along its way it is beside that one
_FULLY, _SHORTEST = 0.5, 0.2  # so far before that one the robot is fully beside its lane; least length of the turn
_FAR_M = 1e3


def go_round(
    shield: ProjectionParameters,
    arena: Arena | None,
    point_world: Array,
    traffic: Traffic,
    nominal_world: Array,
    order: PassageOrder | None = None,
) -> tuple[Array, Array]:
    """Return the wanted velocity (D, ...) [m/s] and whether it goes round one that stands (...); in the plane only.

    One that came out of a passage goes round those that want in on the side away from the passage, if it has room.
    """
    xp = array_namespace(nominal_world)
    speed = length(nominal_world)
    if arena is None or nominal_world.shape[0] != 2 or traffic.present.shape[0] == 0:
        return nominal_world, speed < 0
    unit, least, ahead = shield.separation_m, PARKED_SHARE * shield.peer_speed_m_s, nominal_world / (speed + TINY)
    along, left = dot(ahead[:, None, ...], traffic.offset_world), left_of(ahead, traffic.offset_world)
    stands = length(traffic.wanted_world) < least
    stands = stands if order is None else stands | order.enters
    stands = stands & traffic.present & (speed > least)[None, ...]
    stands = stands & (along > _BESIDE * unit) & (along < _BEFORE * unit) & (xp.abs(left) < PASS * unit)
    if known_false(stands):
        return nominal_world, speed < 0
    place = point_world[:, None, ...] + traffic.offset_world
    by_right, by_left = free_beside(shield, arena, place, ahead[:, None, ...] + 0 * place)
    one_side = stands & (by_left != by_right)
    if order is not None:
        outer_is_left = left_of(ahead, order.outward_world) > 0
        one_side = one_side | (stands & order.enters & (by_left | by_right))
        by_left = xp.where(order.enters & by_right & ~outer_is_left, by_left & ~by_left, by_left)
    nearest = one_side & (along <= min_of(xp.where(one_side, along, _FAR_M), axis=0))
    missing = PASS * unit - xp.where(by_left, -left, left)
    angle = xp.atan2(missing, xp.maximum(along - _FULLY * unit, _SHORTEST * unit + 0 * along))
    angle = xp.minimum(angle, _STEEPEST_RAD + 0 * angle)
    signed = xp.sum(xp.where(nearest, xp.where(by_left, -angle, angle), 0 * angle), axis=0)
    return turned_right(nominal_world, signed), any_of(nearest, axis=0)
