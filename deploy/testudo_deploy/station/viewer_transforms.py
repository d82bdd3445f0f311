"""Transforms for viewers: from the frame that the fleet shares to the body of each robot; pure.

A robot that is localised by transforms, or by amcl, has a chain of its own from `map` to its body (REP-105). A second
parent would break it, so that those robots are left out.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from testudo_hardware.frames import PlanarTransform
from testudo_hardware.links.wire import TransformReading, body_frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from testudo_deploy.fleet.fleet import Fleet
    from testudo_deploy.station.robot_markers import RobotView

_SOURCES = ("odom", "odom+initial", "mocap")
_OLDEST_S = 1.0  # an older place is not shown


def transformed_robots(fleet: Fleet) -> tuple[str, ...]:
    """Return the robots that have no chain of transforms of their own."""
    return tuple(robot.name for robot in fleet.robots if robot.pose.source in _SOURCES)


def viewer_transforms(
    fleet: Fleet, views: Sequence[RobotView], stamp_s: float
) -> list[tuple[tuple[str, str], TransformReading]]:
    """Return parent and child frame, and pose, of each robot that is seen; ``stamp_s`` is on the viewers' clock."""
    names = transformed_robots(fleet)
    found: list[tuple[tuple[str, str], TransformReading]] = []
    for view in views:
        place = view.position_world
        if view.name not in names or place is None or not view.pose_age_s <= _OLDEST_S:
            continue
        if all(map(math.isfinite, (*place, view.yaw))):
            reading = TransformReading(stamp_s, PlanarTransform(tuple(place), view.yaw))
            found.append(((fleet.frame, body_frame(view.name)), reading))
    return found
