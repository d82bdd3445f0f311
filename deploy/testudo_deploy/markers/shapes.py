"""Outlines and bodies that markers are made of: all places within a radius of points, circles, boxes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from testudo_deploy.markers.marker import Colour, Marker, Point, Shape

_CORNERS = 16
"""Of a circle."""
_EDGE_M = 0.006
"""Width of outlines."""
_TINY_M = 1e-9


def lifted(position_world: Sequence[float], height_m: float = 0.0) -> Point:
    """Return a place (D,) [m] in space; one in the plane at a height."""
    x, y, *up = (float(value) for value in position_world)
    return x, y, up[0] if up else height_m


def circle(centre_world: Sequence[float], radius_m: float, height_m: float = 0.0) -> tuple[Point, ...]:
    """Return the corners of a circle that lies flat, the first again at the end."""
    x, y, z = lifted(centre_world, height_m)
    angles = np.linspace(0.0, 2 * np.pi, _CORNERS + 1)
    return tuple((x + radius_m * math.cos(a), y + radius_m * math.sin(a), z) for a in angles.tolist())


def hull_outline(points_world: np.ndarray, radius_m: float) -> np.ndarray:
    """Return the corners (2, C), counter-clockwise, of all places within a radius of the hull of points (2, P) [m].

    The corners lie on the true outline: areas that do not meet are not drawn as if they did. The hull is found by
    Andrew's monotone chain (1979).
    """
    angles = np.arange(_CORNERS) * 2 * np.pi / _CORNERS
    rim = radius_m * np.stack([np.cos(angles), np.sin(angles)])
    cloud = (points_world[:, :, None] + rim[:, None]).reshape(2, -1)
    places = sorted(set(map(tuple, np.round(cloud, 9).T.tolist())))
    lower, upper = _chain(places), _chain(places[::-1])
    return np.array([*lower[:-1], *upper[:-1]]).T


def area(
    namespace: str, corners_world: np.ndarray, height_m: float, fill: Colour | None, edge: Colour | None
) -> list[Marker]:
    """Return the markers (numbers 0 and 1) of a convex area with corners (2, C) [m]: its inside and its outline."""
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
    """Return the markers (numbers 0 to 2) of all places in space within a radius of a segment [m]."""
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
    """Return the quaternion (x, y, z, w) that turns the z axis to a unit vector (3,)."""
    x, y, z = direction.tolist()
    if z < -1 + _TINY_M:
        return 1.0, 0.0, 0.0, 0.0
    # the half-way turn: axis (z axis) x direction, w = 1 + cosine
    length = math.sqrt(x * x + y * y + (1 + z) ** 2)
    return -y / length, x / length, 0.0, (1 + z) / length


def _chain(places: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return one half of the hull of sorted places."""
    chain: list[tuple[float, float]] = []
    for place in places:
        while len(chain) > 1 and _cross(chain[-2], chain[-1], place) <= 0:
            chain.pop()
        chain.append(place)
    return chain


def _cross(o: tuple[float, float], a: tuple[float, float], b: tuple[float, float]) -> float:
    return (a[0] - o[0]) * (b[1] - o[1]) - (a[1] - o[1]) * (b[0] - o[0])
