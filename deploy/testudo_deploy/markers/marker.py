"""A marker as plain values, and how it is written into a `visualization_msgs/Marker` by its fields only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from testudo_hardware.links.wire import fill_stamp

Point = tuple[float, float, float]
Colour = tuple[float, float, float, float]
"""Red, green, blue, opacity, each 0 to 1."""


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
    """One thing to show, in the frame that the fleet shares; lengths m."""

    namespace: str
    """What it is, and of whom: `robots/r0`. Viewers switch namespaces on and off."""
    number: int
    """Unique in its namespace; the same thing keeps its number."""
    shape: Shape
    colour: Colour
    position_world: Point = (0.0, 0.0, 0.0)
    quaternion_xyzw: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 1.0)
    size_m: Point = (1.0, 1.0, 1.0)
    """Sides of a cube or ball; diameters and height of a cylinder; (width, 0, 0) of lines; (0, 0, height) of a text;
    (shaft, head, head length) of an arrow between two points."""
    points_world: tuple[Point, ...] = ()
    """Of lines, triangles and arrows."""
    text: str = ""


def fill_marker(message: Any, marker: Marker, point: Callable[..., Any], frame: str, lifetime_s: float) -> Any:
    """Write a marker into an empty `visualization_msgs/Marker` and return it; the stamp is left to the caller.

    Args:
        message: to fill.
        marker: what to show.
        point: makes a `geometry_msgs/Point` from x, y, z by name.
        frame: the name of the frame that the fleet shares.
        lifetime_s: after so long without a new one, viewers forget it; 0 is never.
    """
    message.header.frame_id = frame
    message.ns, message.id, message.type = marker.namespace, marker.number, int(marker.shape)
    pose = message.pose
    pose.position.x, pose.position.y, pose.position.z = marker.position_world
    turn = pose.orientation
    turn.x, turn.y, turn.z, turn.w = marker.quaternion_xyzw
    message.scale.x, message.scale.y, message.scale.z = marker.size_m
    colour = message.color
    colour.r, colour.g, colour.b, colour.a = marker.colour
    fill_stamp(message.lifetime, lifetime_s)
    message.points = [point(x=x, y=y, z=z) for x, y, z in marker.points_world]
    message.text = marker.text
    return message
