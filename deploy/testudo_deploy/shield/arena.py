"""The arena: a box with static obstacles, distances to them, and the constraints that layer 1 makes of both.

Obstacles are balls (discs in the plane), capsules and boxes, all of them convex. Arrays are (D, ...), any batch; an
obstacle itself is plain numbers, so that it can be a constant of a compiled program. What is asked of all obstacles of
a map is worked out for all of one kind at once (`ObstacleGroup`), so that a map of a hundred takes few calls.
"""

import functools
import json
import math
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np

from testudo_deploy.shield.geometry import dot, fraction_along, point_distance, segment_distance
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_hardware.arrays import Array, all_of, array_namespace, is_numpy, max_of, min_of
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import StoppingPoint
from testudo_hardware.motion.motion_state import TINY, length
from testudo_hardware.strict_files import OPTIONAL, read_as

_SURFACE_M = 1e-6  # nearer to a box than this, the direction to its nearest point is rounding: its nearest face counts
_HULL_ROUNDS = 2  # directions that are tried to part a hull from an obstacle; the first is nearly always enough


@dataclass(frozen=True)
class Ball:
    """A ball; in the plane a disc."""

    centre_world: tuple[float, ...]  # (D,) [m]
    radius_m: float
    kind: Literal["ball"] = "ball"


@dataclass(frozen=True)
class Capsule:
    """All that is within a radius of a segment."""

    start_world: tuple[float, ...]  # (D,) [m]
    end_world: tuple[float, ...]  # (D,) [m]
    radius_m: float
    kind: Literal["capsule"] = "capsule"


@dataclass(frozen=True)
class Block:
    """A box, turned about the vertical axis."""

    centre_world: tuple[float, ...]  # (D,) [m]
    half_size_m: tuple[float, ...]  # (D,): half of its length, width and, in space, height
    yaw: float  # [rad]
    kind: Literal["box"] = "box"


Obstacle = Ball | Capsule | Block
ObstacleGroup = Obstacle
"""Obstacles (O) of one kind as one, of which each number is an array: places and sizes (D, O), radii and angles (O,).

Arrays that are compared with it have O, or 1, as their second axis."""


def groups_of(obstacles: tuple[Obstacle, ...]) -> tuple[ObstacleGroup, ...]:
    """Return obstacles as a group for each kind."""
    by_kind: dict[type[Obstacle], list[Obstacle]] = {Ball: [], Capsule: [], Block: []}
    for obstacle in obstacles:
        by_kind[type(obstacle)].append(obstacle)
    groups: list[ObstacleGroup] = []
    for kind, found in by_kind.items():
        if found:
            names = [name for name in vars(found[0]) if name != "kind"]
            stacked: dict[str, Any] = {name: np.array([getattr(one, name) for one in found]).T for name in names}
            groups.append(kind(**stacked))
    return tuple(groups)


def read_obstacles(text: str, dimension: int, where: str) -> tuple[Obstacle, ...]:
    """Read a JSON list of obstacles, each with its `kind`: `ball`, `capsule` or `box`; no text is no obstacle.

    Raises:
        TestudoError: not JSON, an unknown kind, a missing or unknown key, or numbers that `check_obstacle` refuses.
    """
    try:
        values = json.loads(text or "[]")
    except (ValueError, RecursionError) as error:
        raise TestudoError(
            f"{where}: not JSON: {error}; expected a list such as "
            '[{"kind": "ball", "centre_world": [0.5, 0], "radius_m": 0.2}]'
        ) from error
    found: tuple[Obstacle, ...] = read_as(tuple[Obstacle, ...], values, where, TestudoError)
    for index, obstacle in enumerate(found):
        check_obstacle(obstacle, dimension, f"{where}[{index}]")
    return found


def check_obstacle(obstacle: Obstacle, dimension: int, where: str, error: type[TestudoError] = TestudoError) -> None:
    """Check numbers and sizes; ``where`` names the entry.

    Raises:
        TestudoError: of the type ``error``: a place or size of another dimension, a number that is not finite, or a
            size that is not above zero.
    """
    for name, value in vars(obstacle).items():
        if name == "kind":
            continue
        is_vector = isinstance(value, tuple)
        numbers = cast("tuple[Any, ...]", value) if is_vector else (value,)
        if is_vector and len(numbers) != dimension:
            raise error(f"{where}.{name}: found {value}, expected {dimension} numbers")
        if not all(isinstance(number, int | float) and math.isfinite(number) for number in numbers):
            raise error(f"{where}.{name}: found {value}, expected finite numbers")
        if name in ("radius_m", "half_size_m") and min(numbers) <= 0:
            raise error(f"{where}.{name}: found {value}, expected above 0")


def clearance(obstacle: Obstacle, point_world: Array) -> tuple[Array, Array]:
    """Return distance and direction from an obstacle to points (D, ...).

    Returns:
        The distance to its surface (...) [m], negative inside, and the unit vector (D, ...) from its nearest point
        to the given one; inside, out of the nearest face. At the very axis of a ball or capsule it is zero.
    """
    if isinstance(obstacle, Block):
        return _block_clearance(obstacle, point_world)
    if isinstance(obstacle, Ball):
        offset = point_world - _like(obstacle.centre_world, point_world)
    else:
        start = _like(obstacle.start_world, point_world)
        along = _like(obstacle.end_world, point_world) - start
        offset = point_world - start
        offset = offset - fraction_along(offset, along) * along
    distance = length(offset)
    return distance - _like(obstacle.radius_m, distance), offset / (distance + TINY)


def distance_to(obstacle: Obstacle, point_world: Array) -> Array:
    """Return the distance (...) [m] of points (D, ...) to an obstacle's surface, as `clearance` without directions."""
    if isinstance(obstacle, Block):
        return _block_distance(obstacle, _into_block(obstacle, point_world))[0]
    return clearance(obstacle, point_world)[0]


def clearances(groups: tuple[ObstacleGroup, ...], point_world: Array) -> tuple[Array, Array]:
    """Return `clearance` of all obstacles of some groups, not empty, to points (D, ...): (O, ...) and (D, O, ...)."""
    found = [clearance(group, point_world[:, None, ...]) for group in groups]
    xp = array_namespace(point_world)
    return xp.concat([distance for distance, _ in found], axis=0), xp.concat([away for _, away in found], axis=1)


def segment_clearance(obstacle: Obstacle, start_world: Array, end_world: Array) -> Array:
    """Return the least distance (...) [m] of segments with ends (D, ...) to the obstacle's surface.

    Exact where they do not meet; zero (within rounding) or negative where they do.
    """
    if isinstance(obstacle, Ball):
        distance = point_distance(_like(obstacle.centre_world, start_world), start_world, end_world)
        return distance - _like(obstacle.radius_m, distance)
    if isinstance(obstacle, Capsule):
        ends = (_like(end, start_world) for end in (obstacle.start_world, obstacle.end_world))
        distance = segment_distance(start_world, end_world, *ends)
        return distance - _like(obstacle.radius_m, distance)
    start = _into_block(obstacle, start_world)
    along = _into_block(obstacle, end_world) - start
    share = _nearest_share(start, along, obstacle.half_size_m)
    return distance_to(obstacle, start_world + share * (end_world - start_world))


def segment_clearances(groups: tuple[ObstacleGroup, ...], start_world: Array, end_world: Array) -> Array:
    """Return `segment_clearance` of all obstacles of some groups, at least one, to segments (D, ...): (O, ...)."""
    ends = (start_world[:, None, ...], end_world[:, None, ...])
    return array_namespace(start_world).concat([segment_clearance(group, *ends) for group in groups], axis=0)


def hull_clearance(obstacle: Obstacle, points_world: Array) -> Array:
    """Return a lower bound (...) [m] of the distance from the hull of points (D, P, ...); see `hull_clearances`."""
    return hull_clearances(groups_of((obstacle,)), points_world)[0, ...]


def hull_clearances(groups: tuple[ObstacleGroup, ...], points_world: Array) -> Array:
    """Return a lower bound (O, ...) [m] of the distance from the hull of points (D, P, ...) to each obstacle.

    Where the two meet it is zero or below.

    Let x be the obstacle's point nearest to some y, and n the direction from it to y. The obstacle is convex, so that
    all of it has n . z <= n . x. The hull of the points has n . z >= the least n . p among them. So the least
    n . (p - x) is a lower bound for every y: a plane parts the two. It is exact if y is the point of the hull nearest
    to the obstacle. The first y is the nearest of the points; then y moves towards the point that was least, as in
    Gilbert's algorithm (1966), and the best bound counts.
    """
    return array_namespace(points_world).concat([_hull_clearance(group, points_world) for group in groups], axis=0)


def _hull_clearance(group: ObstacleGroup, points_world: Array) -> Array:
    xp = array_namespace(points_world)
    points = points_world[:, None, ...]
    y = _pick(points, xp.argmin(distance_to(group, points), axis=1))
    best = None
    for _ in range(_HULL_ROUNDS):
        distance, outward = clearance(group, y)
        nearest = y - distance * outward
        beyond = dot(outward[:, :, None, ...], points - nearest[:, :, None, ...])
        bound = min_of(beyond, axis=1)
        best = bound if best is None else xp.maximum(best, bound)
        towards = _pick(points, xp.argmin(beyond, axis=1)) - y
        y = y + fraction_along(nearest - y, towards) * towards
    return best


def _pick(points: Array, index: Array) -> Array:
    """Return the points (D, O, ...) of (D, 1, P, ...) at an index (O, ...)."""
    xp = array_namespace(points)
    size, count = points.shape[0], index.shape[0]
    rows = xp.broadcast_to(index[None, :, None, ...], (size, count, 1, *index.shape[1:]))
    among = xp.broadcast_to(points, (size, count, *points.shape[2:]))
    return xp.take_along_axis(among, rows, axis=2)[:, :, 0, ...]


def _block_distance(block: Block, local: Array) -> tuple[Array, Array, Array, Array]:
    """Return the distance (...) [m] of points (D, ...) in the frame of a box, and what its direction is made of.

    That is the distance of points outside, else zero (...), and by how much they are beyond the faces (D, ...): above
    zero only, and with sign.
    """
    xp = array_namespace(local)
    beyond = xp.abs(local) - _like(block.half_size_m, local)  # of the faces that the point is in front of
    outside = xp.maximum(beyond, xp.zeros_like(beyond))
    apart, face = length(outside), max_of(beyond, axis=0)
    return xp.where(face > 0, apart, face), apart, outside, beyond


def _block_clearance(block: Block, point_world: Array) -> tuple[Array, Array]:
    xp = array_namespace(point_world)
    local = _into_block(block, point_world)
    distance, apart, outside, beyond = _block_distance(block, local)
    sign = xp.where(local < 0, -xp.ones_like(local), xp.ones_like(local))
    first = xp.argmax(beyond, axis=0)
    on_face = xp.stack([xp.astype(first == d, local.dtype) for d in range(local.shape[0])])
    outward = sign * xp.where(apart > _SURFACE_M, outside / (apart + TINY), on_face)
    return distance, _turned(outward, block.yaw)


def _nearest_share(start: Array, along: Array, half_size: tuple[float, ...]) -> Array:
    """Return where on segments (D, ...), in the frame of a box, the point nearest to it lies (...).

    The squared distance is convex in the share t, with a derivative that is linear between the places where the
    segment passes a face: it is known at these, and its zero lies between two of them.
    """
    xp = array_namespace(start)
    zero = xp.zeros_like(start[0, ...])
    passes = [zero, zero + 1]
    halves = [_like(half, zero) for half in half_size]
    for d, half in enumerate(halves):
        step = along[d, ...]
        flat = xp.abs(step) < TINY
        step = xp.where(flat, xp.ones_like(step), step)
        passes += [xp.where(flat, zero, xp.clip((side - start[d, ...]) / step, 0.0, 1.0)) for side in (-half, half)]

    def slope(share: Array) -> Array:
        total = 0.0
        for d, half in enumerate(halves):
            at = start[d, ...] + share * along[d, ...]
            total = total + along[d, ...] * (at - xp.clip(at, -half, half))
        return total

    shares = xp.stack(passes)
    falls = slope(shares) < 0
    low = max_of(xp.where(falls, shares, xp.zeros_like(shares)), axis=0)
    high = min_of(xp.where(falls, xp.ones_like(shares), shares), axis=0)
    rise = slope(high) - slope(low)
    part = xp.clip(-slope(low) / xp.where(rise > 0, rise, xp.ones_like(rise)), 0.0, 1.0)
    return low + part * (high - low)


def _into_block(block: Block, point_world: Array) -> Array:
    return _turned(point_world - _like(block.centre_world, point_world), -block.yaw)


def _turned(vector: Array, angle: Any) -> Array:
    """Return vectors (D, ...) turned about the vertical axis."""
    xp = array_namespace(vector)
    x, y = vector[0, ...], vector[1, ...]
    cos, sin = _like(np.cos(angle), x), _like(np.sin(angle), x)
    return xp.stack([cos * x - sin * y, sin * x + cos * y, *(vector[d, ...] for d in range(2, vector.shape[0]))])


@functools.lru_cache(maxsize=64)
def _numbers(numbers: tuple[float, ...], axes: int, dtype: Any) -> np.ndarray:
    """Return numbers (D,) with further axes, made once: the walls are asked for several times in each tick."""
    array = np.array(numbers, dtype).reshape((-1,) + (1,) * (axes - 1))
    array.setflags(write=False)
    return array


def _like(numbers: Any, array: Array) -> Array:
    """Return numbers with the axes that ``array`` begins with, (), (D,) or (D, O), as an array that fits it."""
    given: object = numbers
    if isinstance(given, tuple) and is_numpy(array):
        return _numbers(cast("tuple[float, ...]", given), array.ndim, array.dtype)
    xp = array_namespace(array)
    shape = np.shape(numbers)
    return xp.reshape(xp.asarray(numbers, dtype=array.dtype), shape + (1,) * (array.ndim - len(shape)))


_OUTWARD = {size: np.concatenate([np.eye(size), -np.eye(size)], axis=1) for size in (2, 3)}
"""Outward normals (D, 2 D) of a box: upper walls, then lower ones."""


@dataclass(frozen=True)
class Arena:
    """The box that robots stay in, and the obstacles in it; None is a world without either."""

    low_world: tuple[float, ...]  # (D,) [m]
    high_world: tuple[float, ...]  # (D,) [m]
    obstacles: tuple[Obstacle, ...] = field(default=(), metadata=OPTIONAL)  # bodies that robots must not touch

    @functools.cached_property
    def groups(self) -> tuple[ObstacleGroup, ...]:
        """Return the obstacles by kind."""
        return groups_of(self.obstacles)

    def corners(self, like: Array) -> tuple[Array, Array]:
        """Return the low and the high corner [m] in the shape that goes with ``like`` (D, ...): (D, 1, ...) each."""
        return _like(self.low_world, like), _like(self.high_world, like)


def wall_rows(parameters: ProjectionParameters, arena: Arena | None, stop: StoppingPoint) -> tuple[Array, Array] | None:
    """Return two rows for each axis of the arena; walls take the whole share, since they do not move."""
    if arena is None:
        return None
    xp = array_namespace(stop.position_world)
    q = stop.position_world
    size, batch = q.shape[0], q.shape[1:]
    rate = parameters.gap_share / parameters.reach_s
    limits = _like((*arena.high_world, *(-x for x in arena.low_world)), q)
    gap = limits - parameters.wall_m - xp.concat([q, -q], axis=0)
    outward = xp.reshape(xp.asarray(_OUTWARD[size], dtype=q.dtype), (size, *limits.shape))
    return xp.broadcast_to(outward, (size, 2 * size, *batch)), rate * gap


def obstacle_rows(
    parameters: ProjectionParameters, arena: Arena | None, stop: StoppingPoint
) -> tuple[Array, Array] | None:
    """Return a row for each obstacle: in a hold the control point approaches by its share of the gap at most.

    Let x be the obstacle's point nearest to q, n the unit vector from q to x, and d their distance. An obstacle is
    convex, so that all of it lies beyond the plane through x across n. The row n . q' <= gap_share (d - margin) /
    hold therefore bounds the distance to all of it, not to x alone: after a time t of the hold q is at least
    d - t n . q' >= margin + (1 - gap_share t / hold) (d - margin) before that plane, whatever the motion along it.
    The margin is that of walls, and so is the share: obstacles do not move either.
    """
    if arena is None or not arena.obstacles:
        return None
    distance, away = clearances(arena.groups, stop.position_world)
    return -away, parameters.gap_share / parameters.reach_s * (distance - parameters.wall_m)


OBSTACLE_ROWS = 8
"""Obstacles with a row of their own: the nearest; a bound of the speed covers the others."""


def nearest_rows(rows: tuple[Array, Array], count: int = OBSTACLE_ROWS) -> tuple[tuple[Array, Array], Array | None]:
    """Return the rows (D, K, ...), (K, ...) with the least bounds, ``count`` at most, and a speed (...) for the others.

    A velocity that is no faster than the least bound that was left out keeps every row that was left out, since normals
    are of length one. That speed is None where none is left out, zero where one of them asks for a retreat, and not a
    number where any bound is not, which ends in a brake.
    """
    normals, bounds = rows
    if bounds.shape[0] <= count:
        return rows, None
    xp = array_namespace(bounds)
    order = xp.argsort(bounds, axis=0, stable=True)[: count + 1, ...]  # NumPy's default depends on the processor
    least = xp.take_along_axis(bounds, order, axis=0)
    chosen = [xp.take_along_axis(normals[d, ...], order[:count, ...], axis=0) for d in range(normals.shape[0])]
    known = all_of(xp.abs(bounds) < xp.inf, axis=0)  # what is not finite sorts last, where no row would see it
    speed = xp.where(known, xp.maximum(least[count, ...], 0.0), xp.nan)
    return (xp.stack(chosen), least[:count, ...]), speed
