"""MuJoCo worlds built from robot descriptions: one model, robots of several types, an arena."""

from testudo_sim.worlds.build import Form, WorldRobot, build_world_spec, physics_step_s, rhythms_s, world_sha256
from testudo_sim.worlds.parameters import PlantParameters
from testudo_sim.worlds.world import Contact, MujocoWorld, RobotPose

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
