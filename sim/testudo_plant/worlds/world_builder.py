"""Builds one MuJoCo model from robots of any registered type, an arena and boxes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import mujoco
import numpy as np

from testudo_deploy.shield.arena import Arena, check_obstacle
from testudo_hardware.errors import TestudoError
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import Quantity, RobotSpec
from testudo_plant.worlds.drone_dynamics import flies
from testudo_plant.worlds.robot_bodies import (
    FLOOR,
    LEVEL,
    WALL,
    Box,
    add_box,
    add_flying,
    add_geom,
    add_obstacle,
    add_planar,
    add_velocity_point,
    add_wheeled,
)


@dataclass(frozen=True)
class PlantParameters:
    """The dynamics of one robot in the plant."""

    velocity_lag_s: float  # first-order lag from effective to realised velocity
    command_delay_s: float  # time from arrival to effect of a command
    speed_scale: float  # realised over commanded speed
    turn_scale: float  # realised over commanded turn rate; NaN for a robot without one
    turn_slip_s_rad: float = 0.0  # forward speed is divided by 1 + (this times commanded turn rate)²
    attitude: Mapping[str, float] = field(default_factory=dict)
    """Values by `attitude.key` that replace those in the file of a drone with an attitude."""

    @classmethod
    def nominal(cls, spec: RobotSpec) -> "PlantParameters":
        """Return the parameters of the robot file."""
        slip = spec.turn_slip_s_rad if "dynamics.turn_slip" in spec.quantities else 0.0
        return cls(spec.velocity_lag_s, spec.command_delay_s, spec.speed_scale, spec.turn_scale, slip)

    @classmethod
    def sample(cls, spec: RobotSpec, rng: np.random.Generator, spread: float = 0.2) -> "PlantParameters":
        """Return parameters of the robot file times 1 ± ``spread``, uniform, within the intervals of the file.

        Shield and monitors assume that parameters are within the intervals.

        Raises:
            TestudoError: the spread is not in [0, 1).
        """
        if not (math.isfinite(spread) and 0 <= spread < 1):
            raise TestudoError(
                f"plant: spread: found {spread}, expected a share from 0 to below 1, such as 0.2 for ±20 %"
            )
        names = ("velocity_lag", "command_delay", "speed_scale", "turn_scale")
        known = [spec.quantities.get(f"dynamics.{name}") for name in names]
        low, high = np.array(
            [
                (1 - spread, 1 + spread)
                if one is None
                else (max(1 - spread, one.low / one.value), min(1 + spread, one.high / one.value))
                for one in known
            ]
        ).T
        lag, delay, speed, turn = rng.uniform(low, high).tolist()
        slip = spec.quantities.get("dynamics.turn_slip")
        return cls(
            spec.velocity_lag_s * lag,
            spec.command_delay_s * delay,
            spec.speed_scale * speed,
            spec.turn_scale * turn,
            _within(slip, rng, spread) if slip is not None else 0.0,
            {key: _within(one, rng, spread) for key, one in spec.attitude.items()},
        )

    def channel_scale(self, spec: RobotSpec) -> tuple[float, ...]:
        """Return the scale of each command channel of ``spec``."""
        if spec.kind == DIFFERENTIAL_DRIVE:
            return (self.speed_scale, self.turn_scale)
        return (self.speed_scale,) * spec.dimension


def _within(quantity: Quantity, rng: np.random.Generator, spread: float) -> float:
    """Return a value times 1 ± ``spread``, uniform, within its interval."""
    return float(
        rng.uniform(max(quantity.low, quantity.value * (1 - spread)), min(quantity.high, quantity.value * (1 + spread)))
    )


LONGEST_STEP_S = 0.003
SHORTEST_STEP_S = 0.001
ATTITUDE_STEP_S = 0.002
"""Longest step of a drone with an attitude: its loops run at 500 and 100 Hz."""
FLOOR_NAME = "floor"
SOLVER_ITERATIONS = (20, 20)
"""Limits of Newton steps and of line search steps in each; a warm start usually takes one or two."""

BOX_ITERATIONS, BOX_TOLERANCE = (8, 20), 1e-6
"""The same with boxes, whose friction makes the last steps small: equal to 0.2 mm after 13 s of pushing, in half the
time of MJX, where all worlds wait for the slowest."""

Form = Literal["wheels", "planar"]
"""MuJoCo model of a wheeled robot."""

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
    """A robot of a world."""

    name: str
    spec: RobotSpec
    parameters: PlantParameters | None = None
    """Its dynamics; None for those of its robot file. Not part of the model, see `actuator_forces`."""


def physics_step_s(control_periods_s: Sequence[float]) -> float:
    """Return the longest step [s], 1 to 3 ms, that divides every control period [s].

    If there is none, the step divides the shortest period.
    """
    shortest = min(control_periods_s)
    fewest = max(1, math.ceil(shortest / LONGEST_STEP_S - 1e-9))
    for count in range(fewest, max(fewest, int(shortest / SHORTEST_STEP_S + 1e-9)) + 1):
        step = shortest / count
        if all(abs(period / step - round(period / step)) < 1e-6 for period in control_periods_s):
            return step
    return shortest / fewest


def rhythms_s(spec: RobotSpec) -> list[float]:
    """Return the periods [s] of a robot that the physics step should divide."""
    return [spec.control_period_s, ATTITUDE_STEP_S] if flies(spec) else [spec.control_period_s]


def build_world_spec(
    robots: Sequence[WorldRobot],
    arena: Arena | None,
    step_s: float,
    *,
    form: Form = "wheels",
    boxes: Sequence[Box] = (),
) -> mujoco.MjSpec:
    """Return the world, ready to compile or to extend.

    The contact bits in `robot_bodies` define which geoms can touch.

    Without an ``arena`` the world is an open plane. The form `wheels` models wheels in contact with the floor; `planar`
    is the cheaper model of a sliding disc. ``boxes`` are bodies that can be pushed.

    Raises:
        TestudoError: no robot, a repeated name, an arena with low above high, or an invalid obstacle.
    """
    names = [thing.name for thing in (*robots, *boxes)]
    if not robots or len(set(names)) != len(names):
        raise TestudoError(f"world: robots: found the names {names}, expected at least one robot and each name once")
    world = mujoco.MjSpec()
    world.modelname = "testudo"
    world.option.timestep = step_s
    world.option.integrator = mujoco.mjtIntegrator.mjINT_EULER
    # as accurate as the elliptic cone for wheels with little slip, and five times as fast in MJX (measured)
    world.option.cone = mujoco.mjtCone.mjCONE_PYRAMIDAL
    world.option.iterations, world.option.ls_iterations = BOX_ITERATIONS if boxes else SOLVER_ITERATIONS
    if boxes:
        world.option.tolerance = BOX_TOLERANCE
    # keep a state that is not finite visible instead of resetting it
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


def _add_arena(world: mujoco.MjSpec, arena: Arena | None) -> None:
    flat = arena is None or len(arena.low_world) == 2
    # in a box with a lower side of its own, the floor only carries wheels
    plane, floor = mujoco.mjtGeom.mjGEOM_PLANE, FLOOR | (LEVEL if flat else 0)
    add_geom(world.worldbody, FLOOR_NAME, plane, [0, 0, 1], (floor, 0), condim=3)
    if arena is None:
        return
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
    for axis, letter in enumerate("xyz"[: len(arena.low_world)]):
        for side, bound in (("low", arena.low_world), ("high", arena.high_world)):
            position = [0.0] * 3
            position[axis] = bound[axis]
            name, bits = f"wall_{letter}_{side}", (WALL if axis < 2 else LEVEL, 0)
            add_geom(world.worldbody, name, plane, [0, 0, 1], bits, pos=position, quat=_INWARD[letter, side])
    for index, obstacle in enumerate(arena.obstacles):
        add_obstacle(world, f"obstacle_{index}", obstacle)
