"""Bodies of an arena: fixed obstacles, and boxes that robots push."""

from __future__ import annotations

import math
from dataclasses import dataclass

import mujoco

from testudo_deploy.shield.arena import Ball, Block, Obstacle
from testudo_hardware.motion.rotor_drone import GRAVITY_M_S2
from testudo_plant.worlds.robot_bodies import BOX, HULL_HEIGHT_M, WALL


@dataclass(frozen=True)
class Box:
    """A box on the floor that robots can push."""

    name: str
    size_m: tuple[float, float, float]
    """Length, width and height."""
    mass_kg: float
    friction: float = 0.3
    """Sliding friction on the floor [1]."""


_STIFF = (0.99, 0.99, 0.001, 0.5, 2.0)  # impedance: a held body creeps by micrometres per second


def add_box(world: mujoco.MjSpec, box: Box, step_s: float) -> None:
    """Add a box at the origin that slides along x and y and turns about z, with the friction of four feet.

    Eight friction tendons replace feet at the corners: in four world directions, each with a lever to the left and to
    the right of the centre. They resist a push through the centre with the force of the feet, to 4 % in all
    directions, a turn with their torque, and both together approximately. Real contacts would hold 30 % less along a
    diagonal (pyramidal friction cone) and take seven times as long in MJX. The box never tips.
    """
    length, width, height = box.size_m
    body = world.worldbody.add_body(name=box.name, pos=[0, 0, height / 2])
    body.add_geom(
        name=f"{box.name}/box",
        type=mujoco.mjtGeom.mjGEOM_BOX,
        size=[length / 2, width / 2, height / 2],
        contype=BOX,
        conaffinity=WALL | BOX,
        condim=1,
        mass=box.mass_kg,
    )
    for axis, direction in (("x", [1, 0, 0]), ("y", [0, 1, 0])):
        body.add_joint(name=f"{box.name}/{axis}", type=mujoco.mjtJoint.mjJNT_SLIDE, axis=direction)
    body.add_joint(name=f"{box.name}/yaw", type=mujoco.mjtJoint.mjJNT_HINGE, axis=[0, 0, 1])
    angles = [math.pi / 4 * k for k in range(4)]
    # a push at the angle a moves each against |cos(a - angle)|, whose mean over all a is 2 / pi
    force = friction_n(box) / (2 * len(angles) * 2 / math.pi)
    lever = 2 / math.pi * math.hypot(length / 2, width / 2)
    for k, angle in enumerate(angles):
        for side, arm in (("left", lever), ("right", -lever)):
            tendon = world.add_tendon(
                name=f"{box.name}/friction_{k}_{side}",
                frictionloss=force,
                solref_friction=[2 * step_s, 1.0],
                solimp_friction=_STIFF,
            )
            for joint, share in (("x", math.cos(angle)), ("y", math.sin(angle)), ("yaw", arm)):
                tendon.wrap_joint(f"{box.name}/{joint}", share)


def friction_n(box: Box) -> float:
    """Return the friction force [N] of a sliding box."""
    return box.friction * box.mass_kg * GRAVITY_M_S2


def add_obstacle(world: mujoco.MjSpec, name: str, obstacle: Obstacle) -> None:
    """Add an obstacle of the plane or of space.

    A planar obstacle is placed at the height of the hulls, which are spheres and touch it exactly as discs in the
    plane do; a disc becomes a ball at that height.
    """
    geom = world.worldbody.add_geom(name=name, contype=WALL, conaffinity=0, condim=1)
    if isinstance(obstacle, Ball):
        geom.type, geom.pos = mujoco.mjtGeom.mjGEOM_SPHERE, _with_height(obstacle.centre_world)
        geom.size = [obstacle.radius_m, 0, 0]
    elif isinstance(obstacle, Block):
        geom.type, geom.pos = mujoco.mjtGeom.mjGEOM_BOX, _with_height(obstacle.centre_world)
        geom.size = [*obstacle.half_size_m, HULL_HEIGHT_M][:3]
        geom.quat = [math.cos(obstacle.yaw / 2), 0, 0, math.sin(obstacle.yaw / 2)]
    else:
        geom.type = mujoco.mjtGeom.mjGEOM_CAPSULE
        geom.fromto = [*_with_height(obstacle.start_world), *_with_height(obstacle.end_world)]
        geom.size = [obstacle.radius_m, 0, 0]


def _with_height(place_world: tuple[float, ...]) -> list[float]:
    return [*place_world, HULL_HEIGHT_M][:3]
