"""The arena's obstacles as fixed geoms that hulls and boxes touch as they touch walls."""

from __future__ import annotations

import math

import mujoco

from testudo_deploy.shield.arena import Ball, Block, Obstacle
from testudo_plant.worlds.contact_bits import WALL
from testudo_plant.worlds.robot_bodies import HULL_HEIGHT_M


def add_obstacle(world: mujoco.MjSpec, name: str, obstacle: Obstacle) -> None:
    """Add an obstacle of the plane or of space.

    One of the plane lies at the height of the hulls, spheres all of them, which touch it there just as discs in the
    plane touch: a disc is a ball at that height.
    """
    geom = world.worldbody.add_geom(name=name, contype=WALL, conaffinity=0, condim=1)
    if isinstance(obstacle, Ball):
        geom.type, geom.pos = mujoco.mjtGeom.mjGEOM_SPHERE, _in_space(obstacle.centre_world)
        geom.size = [obstacle.radius_m, 0, 0]
    elif isinstance(obstacle, Block):
        geom.type, geom.pos = mujoco.mjtGeom.mjGEOM_BOX, _in_space(obstacle.centre_world)
        geom.size = [*obstacle.half_size_m, HULL_HEIGHT_M][:3]
        geom.quat = [math.cos(obstacle.yaw / 2), 0, 0, math.sin(obstacle.yaw / 2)]
    else:
        geom.type = mujoco.mjtGeom.mjGEOM_CAPSULE
        geom.fromto = [*_in_space(obstacle.start_world), *_in_space(obstacle.end_world)]
        geom.size = [obstacle.radius_m, 0, 0]


def _in_space(place_world: tuple[float, ...]) -> list[float]:
    return [*place_world, HULL_HEIGHT_M][:3]
