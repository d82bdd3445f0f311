"""MuJoCo worlds built from robot files.

In: robots of several types, an arena, boxes; commands at every physics step.
Out: one model; poses, contacts and distances.
"""

from testudo_plant.worlds.plant_parameters import PlantParameters
from testudo_plant.worlds.world import Contact, MujocoWorld, RobotPose
from testudo_plant.worlds.world_builder import (
    Form,
    WorldRobot,
    build_world_spec,
    physics_step_s,
    rhythms_s,
    world_sha256,
)

__all__ = [
    "Contact",
    "Form",
    "MujocoWorld",
    "PlantParameters",
    "RobotPose",
    "WorldRobot",
    "build_world_spec",
    "physics_step_s",
    "rhythms_s",
    "world_sha256",
]
