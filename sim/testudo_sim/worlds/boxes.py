"""Bodies beside the robots: boxes that can be pushed, and obstacles that cannot."""

from __future__ import annotations

import math
from dataclasses import dataclass

import mujoco

from testudo_sim.scene import Box
from testudo_sim.worlds.contact_bits import BOX, FLOOR, WALL


@dataclass(frozen=True)
class Obstacle:
    """A box that never moves, part of the arena."""

    name: str
    size_m: tuple[float, float, float]
    """Length, width and height; it stands on the floor."""
    position_world: tuple[float, float]
    """Centre [m]."""
    yaw: float = 0.0
    """[rad]."""


_FOOT_M = 0.01
"""Boxes stand on four small feet: four points of contact, wherever the box is."""


def add_box(world: mujoco.MjSpec, box: Box, step_s: float) -> None:
    """Add a box that stands at the origin and can be pushed."""
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
    body.add_freejoint(name=f"{box.name}/free")
    for i, (x, y) in enumerate(((1, 1), (1, -1), (-1, -1), (-1, 1))):
        body.add_geom(
            name=f"{box.name}/foot_{i}",
            type=mujoco.mjtGeom.mjGEOM_SPHERE,
            pos=[x * (length / 2 - _FOOT_M), y * (width / 2 - _FOOT_M), _FOOT_M - height / 2],
            size=[_FOOT_M, 0, 0],
            mass=0,
            contype=0,
            conaffinity=FLOOR,
            condim=3,
            priority=1,
            friction=[box.friction, 0.0, 0.0],
            solref=[2 * step_s, 1.0],
        )


def add_obstacle(world: mujoco.MjSpec, obstacle: Obstacle) -> None:
    """Add an obstacle, which hulls and boxes touch as they touch walls."""
    length, width, height = obstacle.size_m
    world.worldbody.add_geom(
        name=obstacle.name,
        type=mujoco.mjtGeom.mjGEOM_BOX,
        pos=[*obstacle.position_world, height / 2],
        quat=[math.cos(obstacle.yaw / 2), 0, 0, math.sin(obstacle.yaw / 2)],
        size=[length / 2, width / 2, height / 2],
        contype=WALL,
        conaffinity=0,
        condim=1,
    )
