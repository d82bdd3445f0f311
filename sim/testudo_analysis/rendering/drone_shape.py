"""What a drone looks like: four rotors on two arms, within the ball that the shield keeps free."""

from __future__ import annotations

import itertools
import math

import mujoco

from testudo_hardware.spec import RobotSpec

_ROTOR_SHARE = 0.33
"""Radius of a rotor over that of the drone; 23 of 70 mm for a Crazyflie."""
_ARM_SHARE = 0.06
_BLADE = 0.45
"""Opacity of the disc that a turning rotor is."""
_HUB = (0.18, 0.18, 0.2)
_WHITE = (1.0, 1.0, 1.0)


def add_drone(body: mujoco.MjsBody, spec: RobotSpec, colour: tuple[float, ...]) -> None:
    """Add the geoms of a drone that looks along x: the two front rotors are white, all else has its colour."""
    radius, half = spec.body_radius_m, spec.body_height_m / 2
    rotor = _ROTOR_SHARE * radius
    reach, arm = radius - rotor, _ARM_SHARE * radius
    box, cylinder = mujoco.mjtGeom.mjGEOM_BOX, mujoco.mjtGeom.mjGEOM_CYLINDER
    body.add_geom(type=box, size=[0.3 * radius, 0.2 * radius, 0.6 * half], rgba=[*colour, 1])
    for turn in (math.pi / 4, -math.pi / 4):
        body.add_geom(
            type=box,
            size=[reach, arm, arm],
            quat=[math.cos(turn / 2), 0, 0, math.sin(turn / 2)],
            rgba=[*(0.55 * part for part in colour), 1],
        )
    for x, y in itertools.product((1, -1), (1, -1)):
        place = [x * reach * math.sqrt(0.5), y * reach * math.sqrt(0.5), 0.0]
        body.add_geom(type=cylinder, pos=[*place[:2], 0.3 * half], size=[1.6 * arm, 0.5 * half, 0], rgba=[*_HUB, 1])
        body.add_geom(
            type=cylinder,
            pos=[*place[:2], 0.8 * half],
            size=[rotor, 0.02 * radius, 0],
            rgba=[*(_WHITE if x > 0 else colour), _BLADE],
        )
