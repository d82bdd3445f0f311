"""Selects and builds the physics tier of a scenario."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from testudo_deploy.shield.velocity_projection import Arena
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import MotionModel
from testudo_plant.worlds.drone_dynamics import flies
from testudo_plant.worlds.robot_bodies import Box
from testudo_plant.worlds.world_builder import Form, physics_step_s, rhythms_s
from testudo_sim.physics.c_stepper import CStepper
from testudo_sim.physics.drone_bodies import check_battery
from testudo_sim.physics.drone_tier import make_drone_tier
from testudo_sim.physics.kinematic_tier import KinematicPhysics
from testudo_sim.physics.mujoco_tier import MujocoTier, TierModel
from testudo_sim.physics.scene import Physics

Tier = Literal["kinematic", "attitude", "rotors", "mjx", "mujoco"]
Impl = Literal["auto", "jax", "warp"]
_PLANAR_STEP_S = 0.0125


@dataclass(frozen=True)
class PhysicsChoice:
    """Physics tier and its options, and how policies read the task."""

    physics: Tier = "kinematic"
    """`kinematic` is fast, without contact; `attitude` and `rotors` are drones with flight dynamics, without contact;
    `mjx` is MuJoCo under JAX; `mujoco` is C MuJoCo, the reference."""
    form: Form = "wheels"
    """Ground robots in MuJoCo: `wheels` in contact with the floor, or `planar` discs, about ten times as fast."""
    impl: Impl = "auto"  # MJX: `jax` everywhere, `warp` on NVIDIA with mujoco-warp; `auto` is `warp` if possible
    downwash: bool = True  # tiers `attitude` and `rotors`: drones push down drones in their wake
    battery: bool = False
    """All tiers with flying drones: batteries begin between full and `power.land` of the robot file, discharge with
    thrust, and limit it by their voltage."""
    task_messages: bool = True
    """Policies read the signals of the task as old as messages bring them to a robot; `--no-task-messages`: exact, of
    the present."""


def make_physics(
    choice: PhysicsChoice, model: MotionModel, arena: Arena | None, size: int, boxes: tuple[Box, ...] = ()
) -> Physics:
    """Return the physics for a team of one kind of robot.

    Raises:
        TestudoError: there is no such tier, it has no such bodies, or its implementation cannot run here.
    """
    for name, kind in (("physics", Tier), ("form", Form), ("impl", Impl)):
        if getattr(choice, name) not in get_args(kind):
            raise TestudoError(
                f"--{name}: found {getattr(choice, name)!r}, expected one of {', '.join(get_args(kind))}"
            )
    if choice.battery:
        if choice.physics == "kinematic":
            raise TestudoError(
                "--battery: --physics kinematic has no batteries; use another one, or leave --battery out"
            )
        check_battery(model.spec)
    if choice.physics in ("kinematic", "attitude", "rotors"):
        if boxes:
            raise TestudoError(
                f"--physics {choice.physics}: this scenario has boxes that robots push, which only "
                "MuJoCo moves; use --physics mjx or --physics mujoco"
            )
        if choice.physics == "kinematic":
            return KinematicPhysics(model, arena)
        return make_drone_tier(choice.physics, model, arena, with_downwash=choice.downwash, with_battery=choice.battery)
    tier = make_tier(choice.form, model, arena, size, boxes)
    if choice.physics == "mujoco":
        return MujocoTier(tier, CStepper(tier.compiled), "mujoco", battery=choice.battery)
    # MJX takes a second to start, which the other tiers, and what only reads runs, do without
    from testudo_sim.physics.mjx_stepper import MjxStepper, choose_impl  # noqa: PLC0415

    return MujocoTier(tier, MjxStepper(tier.compiled, choose_impl(choice.impl)), "mjx", battery=choice.battery)


def make_tier(form: Form, model: MotionModel, arena: Arena | None, size: int, boxes: tuple[Box, ...] = ()) -> TierModel:
    """Return the MuJoCo world of a team of one kind of robot, with as few steps in a control tick as its form needs."""
    period = model.spec.control_period_s
    longest = _PLANAR_STEP_S if form == "planar" and not flies(model.spec) else physics_step_s(rhythms_s(model.spec))
    return TierModel(model, arena, size, form, math.ceil(period / longest - 1e-9), boxes)
