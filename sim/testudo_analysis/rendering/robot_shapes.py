"""Shapes of robots and boxes in a scene."""

from __future__ import annotations

import itertools
import math

import mujoco

from testudo_hardware.schema import HOLONOMIC
from testudo_hardware.spec import RobotSpec
from testudo_plant.worlds.robot_bodies import Box

_ROTOR_SHARE = 0.33
"""Radius of a rotor relative to that of the drone (Crazyflie: 23 of 70 mm)."""
_ARM_SHARE = 0.06
_BLADE = 0.45
"""Opacity of the disc of a spinning rotor."""
_HUB = (0.18, 0.18, 0.2)
_WHITE = (1.0, 1.0, 1.0)
_CARTON = (0.72, 0.53, 0.34)
_TYRE = (0.18, 0.18, 0.2)
_MARK_HEIGHT_M = 0.002


def add_robot(body: mujoco.MjsBody, spec: RobotSpec, colour: tuple[float, ...]) -> None:
    """Add the geoms of a robot that faces x."""
    if spec.dimension == 3:
        _add_drone(body, spec, colour)
        return
    radius, half = spec.body_radius_m, spec.body_height_m / 2
    box = mujoco.mjtGeom.mjGEOM_BOX
    top = half + 0.02 * radius
    if spec.kind == HOLONOMIC:
        _add_base(body, radius, half, colour)
    else:
        cylinder = mujoco.mjtGeom.mjGEOM_CYLINDER
        body.add_geom(type=cylinder, size=[radius, half, 0], rgba=[*colour, 1])
        body.add_geom(type=cylinder, size=[0.8 * radius, top, 0], rgba=[*_dark(colour), 1])
    # a white arrow on the top: shaft and head
    top += 0.02 * radius
    size = 0.8 * radius if spec.kind == HOLONOMIC else radius
    white = [1, 1, 1, 1]
    body.add_geom(type=box, pos=[-0.1 * size, 0, 0], size=[0.45 * size, 0.1 * size, top], rgba=white)
    for side in (-1, 1):
        body.add_geom(
            type=box,
            pos=[0.4 * size, side * 0.2 * size, 0],
            quat=[math.cos(side * math.pi / 8), 0, 0, -math.sin(side * math.pi / 8)],
            size=[0.35 * size, 0.1 * size, top],
            rgba=white,
        )


def add_box(body: mujoco.MjsBody, box: Box) -> None:
    """Add the geoms of a carton box."""
    half = [side / 2 for side in box.size_m]
    body.add_geom(type=mujoco.mjtGeom.mjGEOM_BOX, size=half, rgba=[*_CARTON, 1])
    # a mark on the top shows its heading
    body.add_geom(
        type=mujoco.mjtGeom.mjGEOM_BOX,
        pos=[0.35 * half[0], 0, half[2]],
        size=[0.5 * half[0], 0.08 * half[1], _MARK_HEIGHT_M],
        rgba=[*(0.6 * part for part in _CARTON), 1],
    )


def _add_base(body: mujoco.MjsBody, radius: float, half: float, colour: tuple[float, ...]) -> None:
    """Add a box on four wheels, aspect ratio 4 to 3, with corners on the circle of the body radius."""
    wheel = min(0.3 * radius, half)
    sides = [0.8 * radius, 0.45 * radius]
    body.add_geom(
        type=mujoco.mjtGeom.mjGEOM_BOX, pos=[0, 0, wheel / 2], size=[*sides, half - wheel / 2], rgba=[*colour, 1]
    )
    body.add_geom(
        type=mujoco.mjtGeom.mjGEOM_BOX,
        size=[*(0.8 * side for side in sides), half + 0.02 * radius],
        rgba=[*_dark(colour), 1],
    )
    for x, y in itertools.product((-1, 1), (-1, 1)):
        body.add_geom(
            type=mujoco.mjtGeom.mjGEOM_CYLINDER,
            pos=[x * (0.8 * radius - wheel), y * 0.53 * radius, wheel - half],
            quat=[math.sqrt(0.5), math.sqrt(0.5), 0, 0],
            size=[wheel, 0.07 * radius, 0],
            rgba=[*_TYRE, 1],
        )


def _add_drone(body: mujoco.MjsBody, spec: RobotSpec, colour: tuple[float, ...]) -> None:
    """Add four rotors on two arms, within the body radius, facing x; the two front rotors are white."""
    radius, half = spec.body_radius_m, spec.body_height_m / 2
    rotor = _ROTOR_SHARE * radius
    reach, arm = radius - rotor, _ARM_SHARE * radius
    box, cylinder = mujoco.mjtGeom.mjGEOM_BOX, mujoco.mjtGeom.mjGEOM_CYLINDER
    body.add_geom(type=box, size=[0.3 * radius, 0.2 * radius, 0.6 * half], rgba=[*colour, 1])
    for angle in (math.pi / 4, -math.pi / 4):
        body.add_geom(
            type=box,
            size=[reach, arm, arm],
            quat=[math.cos(angle / 2), 0, 0, math.sin(angle / 2)],
            rgba=[*(0.55 * part for part in colour), 1],
        )
    for x, y in itertools.product((1, -1), (1, -1)):
        position = [x * reach * math.sqrt(0.5), y * reach * math.sqrt(0.5), 0.0]
        body.add_geom(type=cylinder, pos=[*position[:2], 0.3 * half], size=[1.6 * arm, 0.5 * half, 0], rgba=[*_HUB, 1])
        body.add_geom(
            type=cylinder,
            pos=[*position[:2], 0.8 * half],
            size=[rotor, 0.02 * radius, 0],
            rgba=[*(_WHITE if x > 0 else colour), _BLADE],
        )


def _dark(colour: tuple[float, ...]) -> list[float]:
    return [0.55 * part for part in colour]
