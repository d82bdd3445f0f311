"""Markers of the scene: walls, obstacles, goals, and bodies of the task."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from testudo_deploy.markers.marker import Colour, Marker, Shape, area, capsule, circle, hull_outline, lifted, line
from testudo_deploy.shield.arena import Arena, Ball, Block, Obstacle
from testudo_hardware.frames import quaternion_xyzw_from_yaw

_WALL: Colour = (0.45, 0.47, 0.50, 0.5)
_OBSTACLE: Colour = (0.35, 0.30, 0.28, 0.9)
_WALL_HEIGHT_M, _WALL_WIDTH_M = 0.08, 0.02
_OBSTACLE_HEIGHT_M = 0.2
"""Drawn height of an obstacle in the plane."""
_OPEN: Colour = (0.25, 0.45, 0.95, 0.35)
_REACHED: Colour = (0.20, 0.80, 0.35, 0.6)
_BODY: Colour = (0.85, 0.65, 0.30, 0.8)
_TEXT: Colour = (0.9, 0.9, 0.9, 1.0)
_HEIGHT_M, _TEXT_M = 0.004, 0.06


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
        size = [2 * half for half in obstacle.half_size_m]
        return [
            Marker(
                namespace,
                0,
                Shape.CUBE,
                _OBSTACLE,
                lifted(obstacle.centre_world, high / 2),
                quaternion_xyzw_from_yaw(obstacle.yaw),
                (*size, high)[:3],
            )
        ]
    width = 2 * obstacle.radius_m
    if isinstance(obstacle, Ball):
        flat = len(obstacle.centre_world) == 2
        return [
            Marker(
                namespace,
                0,
                Shape.CYLINDER if flat else Shape.SPHERE,
                _OBSTACLE,
                lifted(obstacle.centre_world, high / 2),
                size_m=(width, width, high if flat else width),
            )
        ]
    if len(obstacle.start_world) == 3:
        return capsule(namespace, obstacle.start_world, obstacle.end_world, obstacle.radius_m, _OBSTACLE)
    ends = [[a, b] for a, b in zip(obstacle.start_world, obstacle.end_world, strict=True)]
    return area(namespace, hull_outline(np.array(ends), obstacle.radius_m), 0.0, _OBSTACLE, _OBSTACLE)


@dataclass(frozen=True)
class GoalView:
    """One goal."""

    name: str
    """Name of the robot or body that this goal is for."""
    position_world: tuple[float, ...]
    """(D,) [m]."""
    tolerance_m: float
    reached: bool


def goal_markers(goals: Sequence[GoalView], bodies: Sequence[Marker] = ()) -> tuple[Marker, ...]:
    """Return for each goal a disc (in space a ball) of the tolerance, green if reached, and a name; then the bodies."""
    made: list[Marker] = []
    for goal in goals:
        colour, place = _REACHED if goal.reached else _OPEN, lifted(goal.position_world, _HEIGHT_M)
        width, flat = 2 * goal.tolerance_m, len(goal.position_world) == 2
        made += [
            Marker(
                f"goals/{goal.name}",
                0,
                Shape.CYLINDER if flat else Shape.SPHERE,
                colour,
                place,
                size_m=(width, width, _HEIGHT_M if flat else width),
            ),
            line(
                f"goals/{goal.name}",
                1,
                circle(goal.position_world, goal.tolerance_m, 2 * _HEIGHT_M),
                (*colour[:3], 1.0),
            ),
            Marker(
                f"goals/{goal.name}",
                2,
                Shape.TEXT,
                _TEXT,
                (place[0], place[1], place[2] + _TEXT_M),
                size_m=(0.0, 0.0, _TEXT_M),
                text=goal.name,
            ),
        ]
    return (*made, *bodies)


def body_marker(name: str, position_world: tuple[float, ...], yaw: float, size_m: tuple[float, float, float]) -> Marker:
    """Return a box on the floor, given by its centre from above (2,) [m], its yaw [rad] and its sides [m]."""
    centre = lifted(position_world, size_m[2] / 2)
    return Marker(f"bodies/{name}", 0, Shape.CUBE, _BODY, centre, quaternion_xyzw_from_yaw(yaw), size_m)
