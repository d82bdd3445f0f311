"""Robots as MuJoCo bodies: masses, joints, actuators and contact bits from a `RobotSpec`."""

from __future__ import annotations

import math

import mujoco

from testudo_hardware.spec import RobotSpec

FLOOR = 1
"""Contact bit of the floor: wheels and casters stand on it."""
ROBOT = 2
"""Contact bit of robot bodies among themselves."""
WALL = 4
"""Contact bit of the walls, which only robot bodies touch."""
LEVEL = 8
"""Contact bit of floor and ceiling for robots that fly."""

_WHEEL_MASS_SHARE = 0.05  # of the robot, each wheel
_ROTOR_MASS_SHARE = 0.1  # reflected inertia of each geared motor, as mass at its rim; tames slip
_CASTER_REACH = 0.8  # of the body radius, ahead and behind
_STIFF = (0.99, 0.99, 0.001, 0.5, 2.0)  # impedance: wheels sink by micrometres, so the radius holds
_BODY_FRICTION = (0.3, 0.005, 0.0001)


def discrete_gain(velocity_lag_s: float, step_s: float) -> float:
    """Return the rate [1/s] at which an explicit step follows a first-order lag exactly."""
    return -math.expm1(-step_s / velocity_lag_s) / step_s


def add_differential_drive(
    world: mujoco.MjSpec, name: str, spec: RobotSpec, velocity_lag_s: float, step_s: float
) -> None:
    """Add a free body on two wheels and two casters, with a velocity loop for v and one for omega.

    The body frame sits on the middle of the axle, x ahead. Each loop acts on both wheels through a
    tendon that measures v [m/s] or omega [rad/s], so that lag and acceleration limits of the
    description hold for each channel, whatever the inertia. Controls: ``name/speed`` and
    ``name/turn``.
    """
    radius, half_base = spec.wheel_radius_m, spec.wheel_base_m / 2
    wheel_mass = _WHEEL_MASS_SHARE * spec.mass_kg
    body = world.worldbody.add_body(name=name, pos=[0, 0, radius])
    body.add_freejoint(name=f"{name}/free")
    body_mass = spec.mass_kg - 2 * wheel_mass
    _set_inertia(body, body_mass, _cylinder_inertia(body_mass, spec))
    body.add_geom(
        name=f"{name}/hull",
        type=mujoco.mjtGeom.mjGEOM_CYLINDER,
        pos=[0, 0, spec.body_height_m / 2 - radius],
        size=[spec.body_radius_m, spec.body_height_m / 2, 0],
        contype=ROBOT,
        conaffinity=ROBOT | WALL,
        friction=_BODY_FRICTION,
    )
    for side, y in (("left", half_base), ("right", -half_base)):
        _add_wheel(body.add_body(name=f"{name}/{side}_wheel", pos=[0, y, 0]), spec, step_s)
    for end, x in (("front", 1), ("rear", -1)):
        body.add_geom(
            name=f"{name}/{end}_caster",
            type=mujoco.mjtGeom.mjGEOM_SPHERE,
            pos=[x * _CASTER_REACH * spec.body_radius_m, 0, -radius / 2],
            size=[radius / 2, 0, 0],
            contype=0,
            conaffinity=FLOOR,
            condim=1,
            priority=1,
            solref=[4 * step_s, 1.0],
        )
    # what both loops move: the robot, and its spinning parts as mass at the rim
    rolling = wheel_mass + 2 * _ROTOR_MASS_SHARE * spec.mass_kg
    inertia = body.inertia[2] + 2 * wheel_mass * (radius**2 / 4 + half_base**2)
    gain = discrete_gain(velocity_lag_s, step_s)
    _add_loop(
        world,
        f"{name}/speed",
        {f"{name}/left_wheel": radius / 2, f"{name}/right_wheel": radius / 2},
        spec.mass_kg + rolling,
        gain,
        spec.acceleration_limit_m_s2,
    )
    turn = radius / spec.wheel_base_m
    _add_loop(
        world,
        f"{name}/turn",
        {f"{name}/left_wheel": -turn, f"{name}/right_wheel": turn},
        inertia + rolling * half_base**2,
        gain,
        spec.turn_acceleration_limit_rad_s2,
    )


def add_velocity_point(world: mujoco.MjSpec, name: str, spec: RobotSpec, step_s: float) -> None:
    """Add a hovering ball that slides along x, y, z of the world, with a motor [N] for each.

    The yaw joint has no motor; strong damping stands for the controller that holds the heading.
    Controls: ``name/x``, ``name/y``, ``name/z``.
    """
    body = world.worldbody.add_body(name=name, gravcomp=1)
    inertia = _cylinder_inertia(spec.mass_kg, spec)
    _set_inertia(body, spec.mass_kg, inertia)
    for axis, direction in (("x", [1, 0, 0]), ("y", [0, 1, 0]), ("z", [0, 0, 1])):
        body.add_joint(name=f"{name}/{axis}", type=mujoco.mjtJoint.mjJNT_SLIDE, axis=direction)
        motor = world.add_actuator(
            name=f"{name}/{axis}", trntype=mujoco.mjtTrn.mjTRN_JOINT, target=f"{name}/{axis}"
        )
        motor.set_to_motor()
    body.add_joint(
        name=f"{name}/yaw",
        type=mujoco.mjtJoint.mjJNT_HINGE,
        axis=[0, 0, 1],
        damping=inertia[2] / step_s,
    )
    body.add_geom(
        name=f"{name}/hull",
        type=mujoco.mjtGeom.mjGEOM_SPHERE,
        size=[spec.body_radius_m, 0, 0],
        contype=ROBOT,
        conaffinity=ROBOT | WALL | LEVEL,
        friction=_BODY_FRICTION,
    )


def _add_wheel(wheel: mujoco.MjsBody, spec: RobotSpec, step_s: float) -> None:
    radius, mass = spec.wheel_radius_m, _WHEEL_MASS_SHARE * spec.mass_kg
    spin = mass * radius**2 / 2
    _set_inertia(wheel, mass, (spin / 2, spin, spin / 2))
    wheel.add_joint(
        name=wheel.name,
        type=mujoco.mjtJoint.mjJNT_HINGE,
        axis=[0, 1, 0],
        armature=_ROTOR_MASS_SHARE * spec.mass_kg * radius**2,
    )
    # a sphere touches the floor at one point below the axle, which makes the wheel base exact
    wheel.add_geom(
        name=f"{wheel.name}_rim",
        type=mujoco.mjtGeom.mjGEOM_SPHERE,
        size=[radius, 0, 0],
        contype=0,
        conaffinity=FLOOR,
        condim=3,
        priority=1,
        friction=[1.0, 0.0, 0.0],
        solref=[2 * step_s, 1.0],
        solimp=_STIFF,
    )


def _cylinder_inertia(mass_kg: float, spec: RobotSpec) -> tuple[float, float, float]:
    """Return the inertia [kg m^2] of a uniform cylinder of the body's size about its centre."""
    across = mass_kg * (3 * spec.body_radius_m**2 + spec.body_height_m**2) / 12
    return (across, across, mass_kg * spec.body_radius_m**2 / 2)


def _set_inertia(body: mujoco.MjsBody, mass_kg: float, inertia: tuple[float, float, float]) -> None:
    """Put the centre of mass on the body's origin; if unset it lies at the body's pos."""
    body.explicitinertial, body.mass, body.inertia, body.ipos = True, mass_kg, inertia, (0, 0, 0)


def _add_loop(
    world: mujoco.MjSpec,
    name: str,
    share_by_joint: dict[str, float],
    inertia: float,
    gain: float,
    acceleration_limit: float,
) -> None:
    """Add force = inertia * gain * (control - rate), limited to inertia * acceleration_limit."""
    tendon = world.add_tendon(name=name)
    for joint, share in share_by_joint.items():
        tendon.wrap_joint(joint, share)
    limit = inertia * acceleration_limit
    loop = world.add_actuator(
        name=name,
        trntype=mujoco.mjtTrn.mjTRN_TENDON,
        target=name,
        forcelimited=True,
        forcerange=[-limit, limit],
    )
    loop.set_to_velocity(kv=inertia * gain)
