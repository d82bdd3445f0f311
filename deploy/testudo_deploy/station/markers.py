"""Markers for viewers: one marker as plain values, its shapes, and the markers of walls, obstacles, goals and bodies.

`fill_marker` writes one into a `visualization_msgs/Marker`.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from testudo_deploy.shield.arena import Arena, Ball, Block, Obstacle
from testudo_hardware.frames import quaternion_xyzw_from_yaw
from testudo_hardware.links.wire import fill_stamp

Point = tuple[float, float, float]
Colour = tuple[float, float, float, float]  # red, green, blue, opacity, each 0 to 1
_CORNERS = 16  # number of corners of a circle
_EDGE_M = 0.006  # width of outlines
_TINY_M = 1e-9
_WALL: Colour = (0.45, 0.47, 0.50, 0.5)
_OBSTACLE: Colour = (0.35, 0.30, 0.28, 0.9)
_WALL_HEIGHT_M, _WALL_WIDTH_M = 0.08, 0.02
_OBSTACLE_HEIGHT_M = 0.2  # drawn height of an obstacle in the plane
_OPEN: Colour = (0.25, 0.45, 0.95, 0.35)
_REACHED: Colour = (0.20, 0.80, 0.35, 0.6)
_BODY: Colour = (0.85, 0.65, 0.30, 0.8)
_TEXT: Colour = (0.9, 0.9, 0.9, 1.0)
_HEIGHT_M, _TEXT_M = 0.004, 0.06


class Shape(IntEnum):
    """Marker types, with the numbers of `visualization_msgs/Marker`."""

    ARROW = 0
    CUBE = 1
    SPHERE = 2
    CYLINDER = 3
    LINE_STRIP = 4
    LINE_LIST = 5
    TEXT = 9
    TRIANGLES = 11


@dataclass(frozen=True)
class Marker:
    """One marker in the frame that the fleet shares; lengths in m."""

    namespace: str  # kind and owner: `robots/r0`. Viewers switch namespaces on and off
    number: int  # unique in its namespace; constant over time
    shape: Shape
    colour: Colour
    position_world: Point = (0.0, 0.0, 0.0)
    quaternion_xyzw: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 1.0)
    size_m: Point = (1.0, 1.0, 1.0)
    """Sides of a cube or ball; diameters and height of a cylinder; (width, 0, 0) of lines; (0, 0, height) of a text;
    (shaft, head, head length) of an arrow between two points."""
    points_world: tuple[Point, ...] = ()  # points of lines, triangles and arrows
    text: str = ""


def fill_marker(message: Any, marker: Marker, point: Callable[..., Any], frame: str, lifetime_s: float) -> Any:
    """Write a marker into an empty `visualization_msgs/Marker` and return it; the caller sets the stamp.

    ``point`` creates a `geometry_msgs/Point` from x, y, z by name; ``frame`` is the frame that the fleet shares.
    Viewers remove a marker that is not sent again after ``lifetime_s`` [s]; 0 is never.
    """
    message.header.frame_id = frame
    message.ns, message.id, message.type = marker.namespace, marker.number, int(marker.shape)
    pose = message.pose
    pose.position.x, pose.position.y, pose.position.z = marker.position_world
    rotation = pose.orientation
    rotation.x, rotation.y, rotation.z, rotation.w = marker.quaternion_xyzw
    message.scale.x, message.scale.y, message.scale.z = marker.size_m
    colour = message.color
    colour.r, colour.g, colour.b, colour.a = marker.colour
    fill_stamp(message.lifetime, lifetime_s)
    message.points = [point(x=x, y=y, z=z) for x, y, z in marker.points_world]
    message.text = marker.text
    return message


def lifted(position_world: Sequence[float], height_m: float = 0.0) -> Point:
    """Return a point (D,) [m] as a point in space; a point in the plane gets the height."""
    x, y, *up = (float(value) for value in position_world)
    return x, y, up[0] if up else height_m


def circle(centre_world: Sequence[float], radius_m: float, height_m: float = 0.0) -> tuple[Point, ...]:
    """Return the corners of a horizontal circle, the first one again at the end."""
    x, y, z = lifted(centre_world, height_m)
    angles = np.linspace(0.0, 2 * np.pi, _CORNERS + 1)
    return tuple((x + radius_m * math.cos(a), y + radius_m * math.sin(a), z) for a in angles.tolist())


def hull_outline(points_world: np.ndarray, radius_m: float) -> np.ndarray:
    """Return the corners (2, C), counter-clockwise, of all points within a radius of the hull of points (2, P) [m].

    The corners are on the true outline, so areas that do not meet are not drawn as if they did. Hull by Andrew's
    monotone chain (1979); SciPy, which has one, is not installed on robots.
    """
    angles = np.arange(_CORNERS) * 2 * np.pi / _CORNERS
    rim = radius_m * np.stack([np.cos(angles), np.sin(angles)])
    cloud = (points_world[:, :, None] + rim[:, None]).reshape(2, -1)
    corners: list[tuple[float, float]] = sorted({(x, y) for x, y in np.round(cloud, 9).T.tolist()})
    lower, upper = _half_hull(corners), _half_hull(corners[::-1])
    return np.array([*lower[:-1], *upper[:-1]]).T


def area(
    namespace: str, corners_world: np.ndarray, height_m: float, fill: Colour | None, edge: Colour | None
) -> list[Marker]:
    """Return the markers (numbers 0 and 1) of a convex area with corners (2, C) [m]: fill and outline."""
    corners = [(x, y, height_m) for x, y in corners_world.T.tolist()]
    fan = [corner for k in range(1, len(corners) - 1) for corner in (corners[0], corners[k], corners[k + 1])]
    filled = [] if fill is None else [Marker(namespace, 0, Shape.TRIANGLES, fill, points_world=tuple(fan))]
    return filled if edge is None else [*filled, line(namespace, 1, (*corners, corners[0]), edge)]


def line(
    namespace: str, number: int, points_world: Sequence[Point], colour: Colour, width_m: float = _EDGE_M
) -> Marker:
    """Return a line through points [m]."""
    return Marker(
        namespace, number, Shape.LINE_STRIP, colour, size_m=(width_m, 0.0, 0.0), points_world=tuple(points_world)
    )


def capsule(
    namespace: str, first_world: Sequence[float], last_world: Sequence[float], radius_m: float, colour: Colour
) -> list[Marker]:
    """Return the markers (numbers 0 to 2) of a capsule: all points in space within a radius of a segment [m]."""
    ends = [lifted(end) for end in (first_world, last_world)]
    width = 2 * radius_m
    ball = (width, width, width)
    balls = [Marker(namespace, number, Shape.SPHERE, colour, end, size_m=ball) for number, end in enumerate(ends)]
    along = np.subtract(ends[1], ends[0])
    length = float(np.linalg.norm(along))
    if length < _TINY_M:
        return balls[:1]
    middle, turned = lifted(np.mean(ends, axis=0).tolist()), upright_to(along / length)
    return [*balls, Marker(namespace, 2, Shape.CYLINDER, colour, middle, turned, (width, width, length))]


def upright_to(direction: np.ndarray) -> tuple[float, float, float, float]:
    """Return the quaternion (x, y, z, w) that rotates the z axis to a unit vector (3,)."""
    x, y, z = direction.tolist()
    if z < -1 + _TINY_M:
        return 1.0, 0.0, 0.0, 0.0
    # shortest rotation: axis (z axis) x direction, w = 1 + cosine
    length = math.sqrt(x * x + y * y + (1 + z) ** 2)
    return -y / length, x / length, 0.0, (1 + z) / length


def _half_hull(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return one half of the hull of sorted points."""

    def cross(o: tuple[float, float], a: tuple[float, float], b: tuple[float, float]) -> float:
        return (a[0] - o[0]) * (b[1] - o[1]) - (a[1] - o[1]) * (b[0] - o[0])

    chain: list[tuple[float, float]] = []
    for point in points:
        while len(chain) > 1 and cross(chain[-2], chain[-1], point) <= 0:
            chain.pop()
        chain.append(point)
    return chain


def arena_markers(arena: Arena | None) -> tuple[Marker, ...]:
    """Return walls and obstacles; none without an arena."""
    if arena is None:
        return ()
    obstacles = [
        marker
        for number, obstacle in enumerate(arena.obstacles)
        for marker in _obstacle(f"obstacles/{number}", obstacle)
    ]
    return (*(_walls(arena) if len(arena.low_world) == 2 else _edges(arena)), *obstacles)


def _walls(arena: Arena) -> list[Marker]:
    """Return four walls whose inner sides are the bounds."""
    (x0, y0), (x1, y1) = arena.low_world, arena.high_world
    w, h = _WALL_WIDTH_M, _WALL_HEIGHT_M
    middle = ((x0 + x1) / 2, (y0 + y1) / 2)
    boxes = [
        ((x0 - w / 2, middle[1]), (w, y1 - y0 + 2 * w)),
        ((x1 + w / 2, middle[1]), (w, y1 - y0 + 2 * w)),
        ((middle[0], y0 - w / 2), (x1 - x0, w)),
        ((middle[0], y1 + w / 2), (x1 - x0, w)),
    ]
    return [
        Marker("arena", number, Shape.CUBE, _WALL, lifted(place, h / 2), size_m=(*size, h))
        for number, (place, size) in enumerate(boxes)
    ]


def _edges(arena: Arena) -> list[Marker]:
    """Return the twelve edges of a box in space."""
    corners = list(itertools.product(*zip(arena.low_world, arena.high_world, strict=True)))
    points = [
        lifted(corner)
        for first, second in itertools.combinations(corners, 2)
        if sum(a != b for a, b in zip(first, second, strict=True)) == 1
        for corner in (first, second)
    ]
    return [Marker("arena", 0, Shape.LINE_LIST, _WALL, size_m=(_WALL_WIDTH_M, 0.0, 0.0), points_world=tuple(points))]


def _obstacle(namespace: str, obstacle: Obstacle) -> list[Marker]:
    high = _OBSTACLE_HEIGHT_M
    if isinstance(obstacle, Block):
        length, width, *height = (2 * half for half in obstacle.half_size_m)
        centre, turned = lifted(obstacle.centre_world, high / 2), quaternion_xyzw_from_yaw(obstacle.yaw)
        size = (length, width, height[0] if height else high)
        return [Marker(namespace, 0, Shape.CUBE, _OBSTACLE, centre, turned, size)]
    if isinstance(obstacle, Ball):
        return [_disc_or_ball(namespace, _OBSTACLE, obstacle.centre_world, obstacle.radius_m, high / 2, high)]
    if len(obstacle.start_world) == 3:
        return capsule(namespace, obstacle.start_world, obstacle.end_world, obstacle.radius_m, _OBSTACLE)
    ends = [[a, b] for a, b in zip(obstacle.start_world, obstacle.end_world, strict=True)]
    return area(namespace, hull_outline(np.array(ends), obstacle.radius_m), 0.0, _OBSTACLE, _OBSTACLE)


def _disc_or_ball(
    namespace: str, colour: Colour, centre_world: Sequence[float], radius_m: float, middle_m: float, height_m: float
) -> Marker:
    """Return a ball in space; in the plane a disc of a height, with its middle at another [m]."""
    flat, width = len(centre_world) == 2, 2 * radius_m
    shape, size = (Shape.CYLINDER, (width, width, height_m)) if flat else (Shape.SPHERE, (width, width, width))
    return Marker(namespace, 0, shape, colour, lifted(centre_world, middle_m), size_m=size)


@dataclass(frozen=True)
class GoalView:
    """One goal."""

    name: str  # name of the robot or body that this goal is for
    position_world: tuple[float, ...]  # (D,) [m]
    tolerance_m: float
    reached: bool


def goal_markers(goals: Sequence[GoalView], bodies: Sequence[Marker] = ()) -> tuple[Marker, ...]:
    """Return for each goal a disc (in space a ball) of the tolerance, green if reached, and a name; then the bodies."""
    made: list[Marker] = []
    for goal in goals:
        namespace, place = f"goals/{goal.name}", goal.position_world
        colour = _REACHED if goal.reached else _OPEN
        rim = circle(place, goal.tolerance_m, 2 * _HEIGHT_M)
        x, y, z = lifted(place, _HEIGHT_M)
        size = (0.0, 0.0, _TEXT_M)
        made += [
            _disc_or_ball(namespace, colour, place, goal.tolerance_m, _HEIGHT_M, _HEIGHT_M),
            line(namespace, 1, rim, (*colour[:3], 1.0)),
            Marker(namespace, 2, Shape.TEXT, _TEXT, (x, y, z + _TEXT_M), size_m=size, text=goal.name),
        ]
    return (*made, *bodies)


def read_goals(message: Any) -> tuple[GoalView, ...]:
    """Return the goals of a `visualization_msgs/MarkerArray` that was made of `goal_markers`.

    Heights are left out, and what is not finite, as the message may be of anybody.
    """
    found: list[GoalView] = []
    for marker in message.markers:
        kind, _, name = marker.ns.partition("/")
        if kind == "goals" and marker.id == 0:
            place, tolerance_m, is_reached = marker.pose.position, marker.scale.x / 2, marker.color.g > marker.color.b
            if math.isfinite(place.x) and math.isfinite(place.y) and math.isfinite(tolerance_m):
                found.append(GoalView(name, (place.x, place.y), tolerance_m, is_reached))
    return tuple(found)


def body_marker(name: str, position_world: tuple[float, ...], yaw: float, size_m: tuple[float, float, float]) -> Marker:
    """Return a box on the floor, given by its centre from above (2,) [m], its yaw [rad] and its sides [m]."""
    centre = lifted(position_world, size_m[2] / 2)
    return Marker(f"bodies/{name}", 0, Shape.CUBE, _BODY, centre, quaternion_xyzw_from_yaw(yaw), size_m)
