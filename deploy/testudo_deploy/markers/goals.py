"""Where a task wants robots, or a body, to be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testudo_deploy.markers.marker import Colour, Marker, Shape
from testudo_deploy.markers.shapes import circle, lifted, line
from testudo_hardware.frames import quaternion_xyzw_from_yaw

_OPEN: Colour = (0.25, 0.45, 0.95, 0.35)
_REACHED: Colour = (0.20, 0.80, 0.35, 0.6)
_BODY: Colour = (0.85, 0.65, 0.30, 0.8)
_TEXT: Colour = (0.9, 0.9, 0.9, 1.0)
_HEIGHT_M, _TEXT_M = 0.004, 0.06


@dataclass(frozen=True)
class GoalView:
    """One goal."""

    name: str
    """Of the robot, or of the body, that shall be there."""
    position_world: tuple[float, ...]
    """(D,) [m]."""
    tolerance_m: float
    reached: bool


def goal_markers(goals: Sequence[GoalView], bodies: Sequence[Marker] = ()) -> tuple[Marker, ...]:
    """Return a disc (in space a ball) of the tolerance and a name for each goal, green where reached; then bodies."""
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
    """Return a box of a scenario that stands on the floor, by its centre seen from above (2,) [m]."""
    centre = lifted(position_world, size_m[2] / 2)
    return Marker(f"bodies/{name}", 0, Shape.CUBE, _BODY, centre, quaternion_xyzw_from_yaw(yaw), size_m)
