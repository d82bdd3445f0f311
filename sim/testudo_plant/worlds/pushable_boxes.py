"""Bodies beside the robots: boxes that can be pushed."""

from __future__ import annotations

import math

import mujoco

from testudo_hardware.motion.rotor_drone import GRAVITY_M_S2
from testudo_plant.worlds.contact_bits import BOX, WALL
from testudo_plant.worlds.free_body import Box

_STIFF = (0.99, 0.99, 0.001, 0.5, 2.0)  # impedance: what holds creeps by micrometres in a second


def add_box(world: mujoco.MjSpec, box: Box, step_s: float) -> None:
    """Add a box that stands at the origin, slides along x and y and turns about z, with the friction of four feet.

    Feet at the corners that rub in any direction are stood for by eight frictions: in four directions of the
    world, each acting at a lever to the left and to the right of the centre. They hold a push through the centre
    with the feet's force, to 4 % in all directions, a turn with their torque, and both together nearly as feet
    do. Feet in contact with the floor would hold 30 % less along a diagonal (a friction cone of four sides), and
    MJX would take seven times as long. The box never tips, nor do boxes so flat and wide.
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
    """Return the force [N] that slides a box."""
    return box.friction * box.mass_kg * GRAVITY_M_S2
