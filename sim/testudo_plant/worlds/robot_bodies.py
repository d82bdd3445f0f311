"""Robots as MuJoCo bodies: masses, joints, motors and contact bits from a `RobotSpec`.

All forces come from `actuator_forces`; a body has one motor per force, and its control is that force.

Two geoms collide if the contype of one shares a bit with the conaffinity of the other.
"""

from __future__ import annotations

import mujoco

from testudo_hardware.spec import RobotSpec
from testudo_plant.worlds.drone_dynamics import CONTROLS

FLOOR = 1
"""Floor, for wheels, casters and boxes."""
ROBOT = 2
"""Hulls of ground robots, among themselves."""
WALL = 4
"""Walls and fixed obstacles, for hulls and boxes."""
LEVEL = 8
"""Floor and ceiling, for drones."""
AIR = 16
"""Hulls of drones, among themselves and with the bodies of ground robots."""
BOX = 32
"""Boxes, for hulls and other boxes."""


HULL_HEIGHT_M = 0.05
"""Height of the hulls of all ground robots, spheres that touch exactly as discs in the plane."""

_WHEEL_MASS_SHARE = 0.05  # of the robot, each wheel
_ROTOR_MASS_SHARE = 0.1  # reflected inertia of each geared motor, as mass at its rim; tames slip
_CASTER_REACH = 0.8  # of the body radius, ahead and behind
_STIFF = (0.99, 0.99, 0.001, 0.5, 2.0)  # impedance: wheels sink by micrometres, so the radius holds


def wheel_inertia(spec: RobotSpec) -> tuple[float, float]:
    """Return the effective inertia for speed [kg] and turn rate [kg m^2], rotating parts as mass at the rim."""
    wheel_mass, half_base = _WHEEL_MASS_SHARE * spec.mass_kg, spec.wheel_base_m / 2
    rolling = wheel_mass + 2 * _ROTOR_MASS_SHARE * spec.mass_kg
    body = _cylinder_inertia(spec.mass_kg - 2 * wheel_mass, spec)[2]
    turning = body + 2 * wheel_mass * (spec.wheel_radius_m**2 / 4 + half_base**2)
    return spec.mass_kg + rolling, turning + rolling * half_base**2


def disc_inertia(spec: RobotSpec) -> float:
    """Return the inertia [kg m^2] about the vertical of a robot that is one body."""
    return _cylinder_inertia(spec.mass_kg, spec)[2]


def add_wheeled(world: mujoco.MjSpec, name: str, spec: RobotSpec, step_s: float) -> None:
    """Add a free body on two wheels and two casters, with a motor for its speed and one for its turn rate.

    The body frame sits on the middle of the axle, x ahead. Each motor acts on both wheels through a tendon that
    measures v [m/s] or omega [rad/s]. Controls: ``name/speed`` [N] and ``name/turn`` [N m].
    """
    radius, half_base = spec.wheel_radius_m, spec.wheel_base_m / 2
    wheel_mass = _WHEEL_MASS_SHARE * spec.mass_kg
    body = world.worldbody.add_body(name=name, pos=[0, 0, radius])
    body.add_freejoint(name=f"{name}/free")
    body_mass = spec.mass_kg - 2 * wheel_mass
    _set_inertia(body, body_mass, _cylinder_inertia(body_mass, spec))
    _add_ground_hull(body, name, spec, HULL_HEIGHT_M - radius, spec.body_height_m / 2 - radius)
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
    half, turn = radius / 2, radius / spec.wheel_base_m
    _add_motor(world, f"{name}/speed", {f"{name}/left_wheel": half, f"{name}/right_wheel": half})
    _add_motor(world, f"{name}/turn", {f"{name}/left_wheel": -turn, f"{name}/right_wheel": turn})


def add_planar(world: mujoco.MjSpec, name: str, spec: RobotSpec) -> None:
    """Add a disc that slides along x and y and turns about z, with a motor for each.

    Controls: ``name/x``, ``name/y`` [N], ``name/yaw`` [N m]. Walls are those of the contact, as for all robots.
    """
    body = world.worldbody.add_body(name=name)
    # includes the rotating parts of the wheels, for the same pushing force as a robot on wheels
    _set_inertia(body, wheel_inertia(spec)[0], _cylinder_inertia(spec.mass_kg, spec))
    for axis, direction in (("x", [1, 0, 0]), ("y", [0, 1, 0])):
        _add_joint_motor(world, body, f"{name}/{axis}", mujoco.mjtJoint.mjJNT_SLIDE, direction)
    _add_joint_motor(world, body, f"{name}/yaw", mujoco.mjtJoint.mjJNT_HINGE, [0, 0, 1])
    _add_ground_hull(body, name, spec, HULL_HEIGHT_M, spec.body_height_m / 2)


def add_velocity_point(world: mujoco.MjSpec, name: str, spec: RobotSpec, step_s: float) -> None:
    """Add a hovering ball, or a base on the ground, that slides along the world axes, with a motor [N] for each.

    The yaw joint has no motor; strong damping replaces the heading controller.
    Controls: ``name/x``, ``name/y``, and in space ``name/z``.
    """
    body = world.worldbody.add_body(name=name, gravcomp=1)
    inertia = _cylinder_inertia(spec.mass_kg, spec)
    _set_inertia(body, spec.mass_kg, inertia)
    axes = (("x", [1, 0, 0]), ("y", [0, 1, 0]), ("z", [0, 0, 1]))[: spec.dimension]
    for axis, direction in axes:
        _add_joint_motor(world, body, f"{name}/{axis}", mujoco.mjtJoint.mjJNT_SLIDE, direction)
    body.add_joint(
        name=f"{name}/yaw",
        type=mujoco.mjtJoint.mjJNT_HINGE,
        axis=[0, 0, 1],
        damping=inertia[2] / step_s,
    )
    if spec.dimension == 2:
        _add_ground_hull(body, name, spec, HULL_HEIGHT_M, spec.body_height_m / 2)
        return
    _add_air_hull(body, name, spec)


def add_flying(world: mujoco.MjSpec, name: str, spec: RobotSpec) -> None:
    """Add a free ball with the mass and inertia of a drone, and motors for world force and body torque.

    Controls: ``name/force_x`` and so on [N], ``name/torque_x`` and so on [N m], see `drone_dynamics.CONTROLS`.
    """
    body = world.worldbody.add_body(name=name)
    axes = ("roll", "pitch", "yaw")
    rotors = spec.rotors
    inertia = tuple(rotors[f"rotors.{axis}_inertia"].value for axis in axes) if rotors else None
    _set_inertia(body, spec.mass_kg, inertia or _cylinder_inertia(spec.mass_kg, spec))
    joint = f"{name}/free"
    body.add_freejoint(name=joint)
    for index, control in enumerate(CONTROLS):
        motor = world.add_actuator(name=f"{name}/{control}", trntype=mujoco.mjtTrn.mjTRN_JOINT, target=joint)
        motor.set_to_motor()
        motor.gear = [float(index == k) for k in range(6)]
    # no friction: a ball on the floor would roll
    _add_air_hull(body, name, spec).priority = 1


def _add_ground_hull(body: mujoco.MjsBody, name: str, spec: RobotSpec, hull_z: float, body_z: float) -> None:
    """Add the sphere that ground robots, walls and boxes touch, and the cylinder that drones touch."""
    body.add_geom(
        name=f"{name}/hull",
        type=mujoco.mjtGeom.mjGEOM_SPHERE,
        pos=[0, 0, hull_z],
        size=[spec.body_radius_m, 0, 0],
        contype=ROBOT,
        conaffinity=ROBOT | WALL | BOX,
        condim=1,
    )
    body.add_geom(
        name=f"{name}/body",
        type=mujoco.mjtGeom.mjGEOM_CYLINDER,
        pos=[0, 0, body_z],
        size=[spec.body_radius_m, spec.body_height_m / 2, 0],
        contype=0,
        conaffinity=AIR,
        condim=1,
    )


def _add_air_hull(body: mujoco.MjsBody, name: str, spec: RobotSpec) -> mujoco.MjsGeom:
    """Add and return the ball that other drones, walls, floor, ceiling, boxes and the bodies of ground robots touch."""
    return body.add_geom(
        name=f"{name}/hull",
        type=mujoco.mjtGeom.mjGEOM_SPHERE,
        size=[spec.body_radius_m, 0, 0],
        contype=AIR,
        conaffinity=AIR | WALL | LEVEL | BOX,
        condim=1,
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
        friction=[spec.wheel_friction, 0.0, 0.0],
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


def _add_motor(world: mujoco.MjSpec, name: str, share_by_joint: dict[str, float]) -> None:
    tendon = world.add_tendon(name=name)
    for joint, share in share_by_joint.items():
        tendon.wrap_joint(joint, share)
    world.add_actuator(name=name, trntype=mujoco.mjtTrn.mjTRN_TENDON, target=name).set_to_motor()


def _add_joint_motor(
    world: mujoco.MjSpec, body: mujoco.MjsBody, name: str, kind: mujoco.mjtJoint, axis: list[float]
) -> None:
    body.add_joint(name=name, type=kind, axis=axis)
    world.add_actuator(name=name, trntype=mujoco.mjtTrn.mjTRN_JOINT, target=name).set_to_motor()
