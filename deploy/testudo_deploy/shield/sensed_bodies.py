"""What a robot's ranges see that no map and no peer explains: rows of layer 1, and a check of layer 2.

Each range whose end is at no wall, no mapped obstacle and no peer is a point of an unknown body. A range without an
echo says nothing of what is beyond it, so that a body may begin there. A body is bounded by a speed alone: it may turn
and come at the robot at any moment. Arrays are (component, ray, ...), NumPy on the robot and JAX in simulation.
"""

from dataclasses import dataclass

from testudo_deploy.shield.arena import Arena, clearances
from testudo_deploy.shield.geometry import point_distance
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_hardware.arrays import Array, all_of, any_of, array_namespace, min_of
from testudo_hardware.motion import StoppingPoint
from testudo_hardware.motion.motion_state import TINY, length

BACKGROUND_M = 0.1
"""What is seen nearer to a wall or mapped obstacle than this counts as that; as in the guard's zones."""
_FAR_M = 1e3


@dataclass(frozen=True)
class SensedBodies:
    """Points of unknown bodies that one scan saw, moved towards the sensor by what is uncertain of their places."""

    point_world: Array  # (2, R, ...) [m]
    there: Array  # (R, ...) bool
    age_s: Array  # (...) [s] since the scan was measured
    speed_m_s: Array  # () [m/s]: highest speed of a body; 0 where all unmapped bodies stand still


@dataclass(frozen=True)
class RangeErrors:
    """By how much a body can be nearer than the end of the ray that saw it."""

    range_m: float  # error of a range, and of the place of the robot when it was measured
    step_rad: float
    """Angle between rays, and the error of the robot's heading: the body may be nearer beside the ray by half the one
    and all of the other. A body narrower than the way from one ray to the next may not be seen at all."""


@dataclass(frozen=True)
class KnownPeers:
    """Where peers may be, whose messages the shield keeps clear of."""

    segments_world: Array  # (2, 2, K, ...) [m]: both ends of a line on which the middle of each peer's body is
    radius_m: float  # of its body, and by how much it can be beside the line


def sensed_bodies(
    arena: Arena | None,
    peers: KnownPeers | None,
    origin_world: Array,
    angle_world: Array,
    range_m: Array,
    limit_m: float,
    errors: RangeErrors,
    age_s: Array,
    speed_m_s: float,
) -> SensedBodies:
    """Return the points that neither arena nor peers explain.

    Rays leave ``origin_world`` (2, ...) [m] at ``angle_world`` (R, ...) [rad]; their ranges (R, ...) [m] are at most
    ``limit_m``, where there is no echo. A range that is not a number is a body at the sensor.
    """
    xp = array_namespace(range_m)
    range_m = xp.where(range_m >= 0, range_m, 0 * angle_world)
    along = xp.stack([xp.cos(angle_world), xp.sin(angle_world)])
    end = origin_world[:, None, ...] + range_m * along
    known = xp.zeros_like(range_m) > 0
    if arena is not None:
        low, high = arena.corners(end)
        low, high = (xp.reshape(corner, (2, *(1,) * (end.ndim - 1))) for corner in (low, high))
        known = ~all_of((end > low + BACKGROUND_M) & (end < high - BACKGROUND_M), axis=0)
        if arena.obstacles:
            known = known | (min_of(clearances(arena.groups, end)[0], axis=0) < BACKGROUND_M)
    if peers is not None and peers.segments_world.shape[2]:
        ends = peers.segments_world[:, :, :, None, ...]
        apart = point_distance(end[:, None, ...], ends[0, ...], ends[1, ...])
        known = known | any_of(apart <= peers.radius_m, axis=0)
    nearer = xp.maximum(range_m * (1 - errors.step_rad) - errors.range_m, 0 * range_m)
    there = (range_m >= limit_m) | ~known
    return SensedBodies(origin_world[:, None, ...] + nearer * along, there, age_s, xp.asarray(speed_m_s))


def nearest_in_sectors(bodies: SensedBodies, origin_world: Array, sectors: int) -> SensedBodies:
    """Return the nearest point of each of some sectors of neighbouring rays: fewer rows for the layer 1 of training.

    The number of rays is a multiple of ``sectors``; the robot itself keeps every ray.
    """
    xp = array_namespace(bodies.point_world)
    rays, *batch = bodies.there.shape
    distance = xp.where(bodies.there, length(bodies.point_world - origin_world[:, None, ...]), _FAR_M)
    shape = (sectors, rays // sectors, *batch)
    first = xp.argmin(xp.reshape(distance, shape), axis=1)[:, None, ...]
    there = xp.take_along_axis(xp.reshape(bodies.there, shape), first, axis=1)[:, 0, ...]
    points = [
        xp.take_along_axis(xp.reshape(bodies.point_world[d, ...], shape), first, axis=1)[:, 0, ...] for d in range(2)
    ]
    return SensedBodies(xp.stack(points), there, bodies.age_s, bodies.speed_m_s)


def body_rows(parameters: ProjectionParameters, stop: StoppingPoint, bodies: SensedBodies) -> tuple[Array, Array]:
    """Return a row (D, R, ...), (R, ...) for each body: that of an obstacle at its point, which may have come nearer.

    It may have, since the scan and until the command that follows no longer acts. What it does while the robot brakes
    is a matter of layer 2.
    """
    xp = array_namespace(stop.position_world)
    offset = stop.position_world[:, None, ...] - bodies.point_world
    distance = length(offset)
    come_m = bodies.speed_m_s * (bodies.age_s + parameters.reach_s)
    gap = xp.where(bodies.there, distance - parameters.wall_m - come_m, _FAR_M)
    return -offset / (distance + TINY), parameters.gap_share / parameters.reach_s * gap
