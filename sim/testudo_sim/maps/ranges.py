"""What a robot perceives of a map: the nearest points of obstacles, and ranges along rays, from their exact shapes.

Arrays are (component, ..., robot, world), JAX or NumPy.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from testudo_deploy.shield.arena import Arena, Ball, Block, Capsule, clearances


def nearest_points(arena: Arena, place_world: jax.Array, count: int, within_m: float) -> tuple[jax.Array, jax.Array]:
    """Return the nearest point of each of the nearest obstacles, (D, K, N, E) [m], and whether it is near, (K, N, E).

    ``place_world`` (D, N, E) [m]; ``count`` is K. Points farther than ``within_m``, and those of obstacles that are not
    there, are at the place itself and not near. Of a robot inside an obstacle it is the point where it would leave it.
    """
    size, *batch = place_world.shape
    if not arena.obstacles:
        return jnp.broadcast_to(place_world[:, None], (size, count, *batch)), jnp.zeros((count, *batch))
    distance, away = clearances(arena.groups, place_world)
    found = min(count, distance.shape[0])
    order = jnp.moveaxis(jax.lax.top_k(-jnp.moveaxis(distance, 0, -1), found)[1], -1, 0)
    least = jnp.take_along_axis(distance, order, axis=0)
    near = least < within_m
    offset = jnp.where(near, -least * jnp.take_along_axis(away, order[None], axis=1), 0.0)
    missing = [(0, count - found), *((0, 0) for _ in batch)]
    points = place_world[:, None] + jnp.pad(offset, [(0, 0), *missing])
    return points, jnp.pad(near.astype(jnp.float32), missing)


def ray_ranges(arena: Arena, place_world: jax.Array, heading: jax.Array, rays: int, limit_m: float) -> jax.Array:
    """Return how far it is to obstacles and walls along rays, (M, N, E) [m], at most ``limit_m``; 0 inside an obstacle.

    Ray k leaves places (2, N, E) [m] at the heading (N, E) [rad] and k / ``rays`` of a turn to the left.
    """
    turn = heading + 2 * math.pi / rays * jnp.arange(rays).reshape(rays, *(1 for _ in heading.shape))
    along = jnp.stack([jnp.cos(turn), jnp.sin(turn)])
    low, high = arena.corners(place_world)
    walls = jnp.where(along > 0, (high - place_world)[:, None], (low - place_world)[:, None])
    reach = jnp.min(jnp.where(jnp.abs(along) > 1e-9, walls / jnp.where(jnp.abs(along) > 1e-9, along, 1.0), limit_m), 0)
    reach = jnp.clip(reach, 0.0, limit_m)
    discs, boxes = _discs_and_boxes(arena)
    # shapes one after another, not at once: rays times shapes times worlds would not fit the memory
    if len(discs):
        reach = _least(lambda disc: _to_disc(disc, place_world[:, None], along), discs, reach)
    if len(boxes):
        reach = _least(lambda box: _to_box(box, place_world[:, None], along), boxes, reach)
    return reach


def ranges_to_discs(
    place_world: jax.Array, heading: jax.Array, rays: int, limit_m: float, discs: jax.Array
) -> jax.Array:
    """Return how far it is to discs along the rays of `ray_ranges`, (M, N, E) [m], at most ``limit_m``.

    ``discs`` (S, 3, N or 1, E) are x, y and radius [m] of what each robot sees, which may be different discs.
    """
    turn = heading + 2 * math.pi / rays * jnp.arange(rays).reshape(rays, *(1 for _ in heading.shape))
    along = jnp.stack([jnp.cos(turn), jnp.sin(turn)])
    return _least(lambda disc: _to_disc(disc, place_world[:, None], along), discs, jnp.full_like(turn, limit_m))


def _least(range_to: Callable[[jax.Array], jax.Array], shapes: np.ndarray | jax.Array, reach: jax.Array) -> jax.Array:
    """Return the least of ranges and those to some shapes (S, numbers)."""

    def nearer(least: jax.Array, shape: jax.Array) -> tuple[jax.Array, None]:
        return jnp.minimum(least, range_to(shape)), None

    return jax.lax.scan(nearer, reach, jnp.asarray(shapes, reach.dtype))[0]


def _discs_and_boxes(arena: Arena) -> tuple[np.ndarray, np.ndarray]:
    """Return the discs (S, 3): x, y, radius, and boxes (S, 5): x, y, half length, half width, yaw, of all obstacles.

    A capsule is a box with a disc at both ends.
    """
    discs: list[tuple[float, ...]] = []
    boxes: list[tuple[float, ...]] = []
    for obstacle in arena.obstacles:
        if isinstance(obstacle, Ball):
            discs.append((*obstacle.centre_world, obstacle.radius_m))
        elif isinstance(obstacle, Block):
            boxes.append((*obstacle.centre_world, *obstacle.half_size_m, obstacle.yaw))
        else:
            discs += [(*end, obstacle.radius_m) for end in (obstacle.start_world, obstacle.end_world)]
            boxes.append(_middle(obstacle))
    return np.array(discs), np.array(boxes)


def _middle(capsule: Capsule) -> tuple[float, ...]:
    first, last = np.array(capsule.start_world), np.array(capsule.end_world)
    way = last - first
    return (*((first + last) / 2), float(np.hypot(*way)) / 2, capsule.radius_m, math.atan2(way[1], way[0]))


def _to_disc(disc: jax.Array, place: jax.Array, along: jax.Array) -> jax.Array:
    """Return the way (M, N, E) along rays to a disc, infinite where they miss it: the first root of |p + t u| = r."""
    x, y = disc[0] - place[0], disc[1] - place[1]
    ahead, square = x * along[0] + y * along[1], x * x + y * y - disc[2] ** 2
    root = ahead**2 - square
    first = ahead - jnp.sqrt(jnp.maximum(root, 0.0))
    return jnp.where(square <= 0, 0.0, jnp.where((root > 0) & (ahead > 0), first, jnp.inf))


def _to_box(box: jax.Array, place: jax.Array, along: jax.Array) -> jax.Array:
    """Return the way (M, N, E) along rays to a box, infinite where they miss it: between its pairs of faces at once."""
    cos, sin = jnp.cos(box[4]), jnp.sin(box[4])
    x, y = place[0] - box[0], place[1] - box[1]
    enter, leave = -jnp.inf, jnp.inf
    for at, step, half in (
        (cos * x + sin * y, cos * along[0] + sin * along[1], box[2]),
        (cos * y - sin * x, cos * along[1] - sin * along[0], box[3]),
    ):
        flat = jnp.abs(step) < 1e-9
        inside = jnp.where(jnp.abs(at) <= half, jnp.inf, -jnp.inf)
        middle, wide = -at / jnp.where(flat, 1.0, step), half / jnp.abs(jnp.where(flat, 1.0, step))
        enter = jnp.maximum(enter, jnp.where(flat, -inside, middle - wide))
        leave = jnp.minimum(leave, jnp.where(flat, inside, middle + wide))
    return jnp.where((enter <= leave) & (leave >= 0), jnp.maximum(enter, 0.0), jnp.inf)
