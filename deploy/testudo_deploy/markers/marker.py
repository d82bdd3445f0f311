"""One marker as plain values, its shapes, and how it is written into a `visualization_msgs/Marker`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from testudo_hardware.links.wire import fill_stamp

Point = tuple[float, float, float]
Colour = tuple[float, float, float, float]
"""Red, green, blue, opacity, each 0 to 1."""
_CORNERS = 16
"""Number of corners of a circle."""
_EDGE_M = 0.006
"""Width of outlines."""
_TINY_M = 1e-9


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

    namespace: str
    """Kind and owner: `robots/r0`. Viewers switch namespaces on and off."""
    number: int
    """Unique in its namespace; constant over time."""
    shape: Shape
    colour: Colour
    position_world: Point = (0.0, 0.0, 0.0)
    quaternion_xyzw: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 1.0)
    size_m: Point = (1.0, 1.0, 1.0)
    """Sides of a cube or ball; diameters and height of a cylinder; (width, 0, 0) of lines; (0, 0, height) of a text;
    (shaft, head, head length) of an arrow between two points."""
    points_world: tuple[Point, ...] = ()
    """Points of lines, triangles and arrows."""
    text: str = ""


def fill_marker(message: Any, marker: Marker, point: Callable[..., Any], frame: str, lifetime_s: float) -> Any:
    """Write a marker into an empty `visualization_msgs/Marker` and return it; the caller sets the stamp.

    Args:
        message: the message to fill.
        marker: the values.
        point: creates a `geometry_msgs/Point` from x, y, z by name.
        frame: the name of the frame that the fleet shares.
        lifetime_s: time after which viewers remove a marker that is not sent again [s]; 0 is never.
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
    corners = sorted(set(map(tuple, np.round(cloud, 9).T.tolist())))
    lower, upper = _half_hull(corners), _half_hull(corners[::-1])
    return np.array([*lower[:-1], *upper[:-1]]).T


def area(
    namespace: str, corners_world: np.ndarray, height_m: float, fill: Colour | None, edge: Colour | None
) -> list[Marker]:
    """Return the markers (numbers 0 and 1) of a convex area with corners (2, C) [m]: fill and outline."""
    corners = [(x, y, height_m) for x, y in corners_world.T.tolist()]
    fan = [corner for k in range(1, len(corners) - 1) for corner in (corners[0], corners[k], corners[k + 1])]
    made = []
    if fill is not None:
        made.append(Marker(namespace, 0, Shape.TRIANGLES, fill, points_world=tuple(fan)))
    if edge is not None:
        made.append(line(namespace, 1, (*corners, corners[0]), edge))
    return made


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
    made = [
        Marker(namespace, number, Shape.SPHERE, colour, end, size_m=(width, width, width))
        for number, end in enumerate(ends)
    ]
    along = np.subtract(ends[1], ends[0])
    length = float(np.linalg.norm(along))
    if length < _TINY_M:
        return made[:1]
    middle = lifted(np.mean(ends, axis=0))
    return [
        *made,
        Marker(namespace, 2, Shape.CYLINDER, colour, middle, upright_to(along / length), (width, width, length)),
    ]


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
    chain: list[tuple[float, float]] = []
    for point in points:
        while len(chain) > 1 and _cross(chain[-2], chain[-1], point) <= 0:
            chain.pop()
        chain.append(point)
    return chain


def _cross(o: tuple[float, float], a: tuple[float, float], b: tuple[float, float]) -> float:
    return (a[0] - o[0]) * (b[1] - o[1]) - (a[1] - o[1]) * (b[0] - o[0])
