"""One MuJoCo model from robots of any registered type and an arena."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import mujoco

from testudo_deploy.shield.arena import Arena, check_obstacle
from testudo_hardware.errors import TestudoError
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec
from testudo_plant.worlds.arena_obstacles import add_obstacle
from testudo_plant.worlds.contact_bits import FLOOR, LEVEL, WALL
from testudo_plant.worlds.drone_dynamics import flies
from testudo_plant.worlds.free_body import Box
from testudo_plant.worlds.plant_parameters import PlantParameters
from testudo_plant.worlds.pushable_boxes import add_box
from testudo_plant.worlds.robot_bodies import add_flying, add_planar, add_velocity_point, add_wheeled

LONGEST_STEP_S = 0.003
SHORTEST_STEP_S = 0.001
ATTITUDE_STEP_S = 0.002
"""Longest step of a drone with an attitude: its loops run at 500 and 100 Hz."""
FLOOR_NAME = "floor"
SOLVER_ITERATIONS = (20, 20)
"""Newton steps, and steps of the line search in each; seldom needed: a warm start takes one or two."""

BOX_ITERATIONS, BOX_TOLERANCE = (8, 20), 1e-6
"""As above with boxes, whose friction keeps the last steps small: the same to 0.2 mm after 13 s of pushing, in half
the time of MJX, in which all worlds wait for the last."""

Form = Literal["wheels", "planar"]
"""What a wheeled robot is in MuJoCo."""

_HALF = math.sqrt(0.5)
_INWARD = {  # quaternions (w, x, y, z) that turn the normal of a plane, z, into the arena
    ("x", "low"): (_HALF, 0, _HALF, 0),
    ("x", "high"): (_HALF, 0, -_HALF, 0),
    ("y", "low"): (_HALF, -_HALF, 0, 0),
    ("y", "high"): (_HALF, _HALF, 0, 0),
    ("z", "low"): (1, 0, 0, 0),
    ("z", "high"): (0, 1, 0, 0),
}


@dataclass(frozen=True)
class WorldRobot:
    """A robot to be built into a world."""

    name: str
    spec: RobotSpec
    parameters: PlantParameters | None = None
    """How it moves; None is as its description says. Not part of the model: see `drive.py`."""


def physics_step_s(control_periods_s: Sequence[float]) -> float:
    """Return the longest step, 1 to 3 ms, of which every control period [s] is a whole number.

    Where there is none, the shortest period is a whole number of steps.
    """
    shortest = min(control_periods_s)
    fewest = max(1, math.ceil(shortest / LONGEST_STEP_S - 1e-9))
    for count in range(fewest, max(fewest, int(shortest / SHORTEST_STEP_S + 1e-9)) + 1):
        step = shortest / count
        if all(abs(period / step - round(period / step)) < 1e-6 for period in control_periods_s):
            return step
    return shortest / fewest


def rhythms_s(spec: RobotSpec) -> list[float]:
    """Return the times [s] of which the physics of a robot should be a whole number of steps."""
    return [spec.control_period_s, ATTITUDE_STEP_S] if flies(spec) else [spec.control_period_s]


def build_world_spec(
    robots: Sequence[WorldRobot],
    arena: Arena | None,
    step_s: float,
    *,
    form: Form = "wheels",
    boxes: Sequence[Box] = (),
) -> mujoco.MjSpec:
    """Return the world, ready to compile; more bodies can be added to it before.

    Contact exists only where `contact_bits` says; a robot has few candidates beside the other robots.

    Args:
        robots: any number of any kinds.
        arena: its walls and obstacles; None is an open plane.
        step_s: of the physics.
        form: `wheels` is faithful: wheels in contact with the floor; `planar` is cheap: discs that slide and turn.
        boxes: bodies that can be pushed.

    Raises:
        TestudoError: no robot, two things of one name, sides of the arena out of order, or an obstacle that is none.
    """
    names = [thing.name for thing in (*robots, *boxes)]
    if not robots or len(set(names)) != len(names):
        raise TestudoError(f"world: robots: found the names {names}, expected at least one robot and each name once")
    world = mujoco.MjSpec()
    world.modelname = "testudo"
    world.option.timestep = step_s
    world.option.integrator = mujoco.mjtIntegrator.mjINT_EULER
    # as exact as the elliptic cone for wheels that hardly slip, and five times as fast in MJX (measured)
    world.option.cone = mujoco.mjtCone.mjCONE_PYRAMIDAL
    world.option.iterations, world.option.ls_iterations = BOX_ITERATIONS if boxes else SOLVER_ITERATIONS
    if boxes:
        world.option.tolerance = BOX_TOLERANCE
    # a state that is not finite must show, not jump back to the start
    world.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
    _add_arena(world, arena)
    for robot in robots:
        if flies(robot.spec):
            add_flying(world, robot.name, robot.spec)
        elif robot.spec.kind != DIFFERENTIAL_DRIVE:
            add_velocity_point(world, robot.name, robot.spec, step_s)
        elif form == "wheels":
            add_wheeled(world, robot.name, robot.spec, step_s)
        else:
            add_planar(world, robot.name, robot.spec)
    for box in boxes:
        add_box(world, box, step_s)
    return world


def world_sha256(world: mujoco.MjSpec) -> str:
    """Return the hash of a world: of its XML, which holds all masses, frictions and contact bits."""
    return hashlib.sha256(world.to_xml().encode()).hexdigest()


def _add_arena(world: mujoco.MjSpec, arena: Arena | None) -> None:
    flat = arena is None or len(arena.low_world) == 2
    # in a box with a lower side of its own, the floor only carries wheels
    world.worldbody.add_geom(
        name=FLOOR_NAME,
        type=mujoco.mjtGeom.mjGEOM_PLANE,
        size=[0, 0, 1],
        contype=FLOOR | (LEVEL if flat else 0),
        conaffinity=0,
    )
    if arena is None:
        return
    _check_arena(arena)
    for axis, letter in enumerate("xyz"[: len(arena.low_world)]):
        for side, bound in (("low", arena.low_world), ("high", arena.high_world)):
            position = [0.0] * 3
            position[axis] = bound[axis]
            world.worldbody.add_geom(
                name=f"wall_{letter}_{side}",
                type=mujoco.mjtGeom.mjGEOM_PLANE,
                pos=position,
                quat=_INWARD[letter, side],
                size=[0, 0, 1],
                contype=WALL if axis < 2 else LEVEL,
                conaffinity=0,
                condim=1,
            )
    for index, obstacle in enumerate(arena.obstacles):
        add_obstacle(world, f"obstacle_{index}", obstacle)


def _check_arena(arena: Arena) -> None:
    if len(arena.low_world) not in (2, 3) or len(arena.low_world) != len(arena.high_world):
        raise TestudoError(
            f"arena: found {len(arena.low_world)} low and {len(arena.high_world)} high sides, "
            "expected 2 of each (ground) or 3 of each (space)"
        )
    for letter, low, high in zip("xyz", arena.low_world, arena.high_world, strict=False):
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise TestudoError(
                f"arena: {letter}: found low {low} and high {high} m, expected finite numbers with low below high"
            )
    for index, obstacle in enumerate(arena.obstacles):
        check_obstacle(obstacle, len(arena.low_world), f"arena: obstacles[{index}]")
