"""Samples at which a robot may touch a body that it pushes, so that its motion says nothing about the robot alone."""

from collections.abc import Iterable

import numpy as np

from testudo_deploy.fleet.fleet_bodies import FleetBody
from testudo_hardware.spec import RobotSpec
from testudo_runs.tracks import Track


def may_push(
    position_world: np.ndarray, stamp_s: np.ndarray, spec: RobotSpec, bodies: Iterable[tuple[FleetBody, Track]]
) -> np.ndarray:
    """Return (T,) bool: the robot may touch a body, as far as the measured poses of both say.

    ``position_world`` (T, D) [m] and ``stamp_s`` (T,) [s] are of the robot, on the clock of the tracks. Before its
    first and after its last measured pose a body is where that one says.
    """
    found = np.zeros(len(stamp_s), bool)
    for body, recorded in bodies:
        if not len(recorded.stamp_s):
            continue
        place, yaw = recorded.in_order().at(stamp_s)
        offset = position_world.T[:2] - place.T[:2]
        along = np.cos(yaw) * offset[0] + np.sin(yaw) * offset[1]
        across = np.cos(yaw) * offset[1] - np.sin(yaw) * offset[0]
        length_m, width_m = body.size_m[:2]
        outside = np.maximum([np.abs(along) - length_m / 2, np.abs(across) - width_m / 2], 0.0)
        found |= np.hypot(*outside) <= spec.body_radius_m + 2 * spec.position_error_m
    return found
