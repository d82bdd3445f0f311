"""Robots, obstacles and boxes as MuJoCo bodies: masses, joints, motors and contact bits.

All forces come from `actuator_forces`; a body has one motor per force, and its control is that force.

Two geoms collide if the contype of one shares a bit with the conaffinity of the other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mujoco

from testudo_deploy.fleet.fleet_bodies import FleetBody
from testudo_deploy.shield.arena import Ball, Block, Obstacle
from testudo_hardware.motion.rotor_drone import GRAVITY_M_S2
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


STIFF = (0.99, 0.99, 0.001, 0.5, 2.0)
"""Impedance of contacts and friction: what is held creeps by micrometres per second, a wheel sinks by as little."""
HULL_HEIGHT_M = 0.05
"""Height of the hulls of all ground robots, spheres that touch exactly as discs in the plane."""

_WHEEL_MASS_SHARE = 0.05  # of the robot, each wheel
_ROTOR_MASS_SHARE = 0.1  # reflected inertia of each geared motor, as mass at its rim; tames slip
_CASTER_REACH = 0.8  # of the body radius, ahead and behind


_SPHERE = mujoco.mjtGeom.mjGEOM_SPHERE


def add_geom(
    body: mujoco.MjsBody, name: str, kind: Any, size: Sequence[float], bits: tuple[int, int], **options: Any
) -> mujoco.MjsGeom:
    """Add and return a geom with contact bits (contype, conaffinity), without friction unless `condim` is given."""
    return body.add_geom(
        name=name, type=kind, size=size, contype=bits[0], conaffinity=bits[1], **({"condim": 1} | options)
    )


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
        wheel = body.add_body(name=f"{name}/{side}_wheel", pos=[0, y, 0])
        wheel_radius, mass = spec.wheel_radius_m, _WHEEL_MASS_SHARE * spec.mass_kg
        spin = mass * wheel_radius**2 / 2
        _set_inertia(wheel, mass, (spin / 2, spin, spin / 2))
        armature = _ROTOR_MASS_SHARE * spec.mass_kg * wheel_radius**2
        wheel.add_joint(name=wheel.name, type=mujoco.mjtJoint.mjJNT_HINGE, axis=[0, 1, 0], armature=armature)
        # a sphere touches the floor at one point below the axle, which makes the wheel base exact
        rim = add_geom(wheel, f"{wheel.name}_rim", _SPHERE, [wheel_radius, 0, 0], (0, FLOOR), condim=3, priority=1)
        rim.friction, rim.solref, rim.solimp = [spec.wheel_friction, 0.0, 0.0], [2 * step_s, 1.0], STIFF
    for end, x in (("front", 1), ("rear", -1)):
        place, solref = [x * _CASTER_REACH * spec.body_radius_m, 0, -radius / 2], [4 * step_s, 1.0]
        name_of_end, size = f"{name}/{end}_caster", [radius / 2, 0, 0]
        add_geom(body, name_of_end, _SPHERE, size, (0, FLOOR), pos=place, priority=1, solref=solref)
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
    damping = inertia[2] / step_s
    body.add_joint(name=f"{name}/yaw", type=mujoco.mjtJoint.mjJNT_HINGE, axis=[0, 0, 1], damping=damping)
    if spec.dimension == 2:
        _add_ground_hull(body, name, spec, HULL_HEIGHT_M, spec.body_height_m / 2)
        return
    _add_air_hull(body, name, spec)


def add_flying(world: mujoco.MjSpec, name: str, spec: RobotSpec) -> None:
    """Add a free ball with the mass and inertia of a drone, and motors for world force and body torque.

    Controls: ``name/force_x`` and so on [N], ``name/torque_x`` and so on [N m], see `drone_dynamics.CONTROLS`.
    """
    body = world.worldbody.add_body(name=name)
    inertia = [spec.rotors[f"rotors.{axis}_inertia"].value for axis in ("roll", "pitch", "yaw") if spec.rotors]
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
    radius = spec.body_radius_m
    add_geom(body, f"{name}/hull", _SPHERE, [radius, 0, 0], (ROBOT, ROBOT | WALL | BOX), pos=[0, 0, hull_z])
    cylinder = [radius, spec.body_height_m / 2, 0]
    add_geom(body, f"{name}/body", mujoco.mjtGeom.mjGEOM_CYLINDER, cylinder, (0, AIR), pos=[0, 0, body_z])


def _add_air_hull(body: mujoco.MjsBody, name: str, spec: RobotSpec) -> mujoco.MjsGeom:
    """Add and return the ball that other drones, walls, floor, ceiling, boxes and the bodies of ground robots touch."""
    return add_geom(body, f"{name}/hull", _SPHERE, [spec.body_radius_m, 0, 0], (AIR, AIR | WALL | LEVEL | BOX))


def _cylinder_inertia(mass_kg: float, spec: RobotSpec) -> tuple[float, float, float]:
    """Return the inertia [kg m^2] of a uniform cylinder of the body's size about its centre."""
    across = mass_kg * (3 * spec.body_radius_m**2 + spec.body_height_m**2) / 12
    return (across, across, mass_kg * spec.body_radius_m**2 / 2)


def _set_inertia(body: mujoco.MjsBody, mass_kg: float, inertia: Sequence[float]) -> None:
    """Set mass and inertia with the centre of mass at the origin of the body, which would else be at its `pos`."""
    body.explicitinertial, body.mass, body.inertia, body.ipos = True, mass_kg, inertia, (0, 0, 0)


def _add_motor(world: mujoco.MjSpec, name: str, share_by_joint: dict[str, float]) -> None:
    tendon = world.add_tendon(name=name)
    for joint, share in share_by_joint.items():
        tendon.wrap_joint(joint, share)
    world.add_actuator(name=name, trntype=mujoco.mjtTrn.mjTRN_TENDON, target=name).set_to_motor()


def _add_joint_motor(
    world: mujoco.MjSpec, body: mujoco.MjsBody, name: str, kind: mujoco.mjtJoint, axis: Sequence[float]
) -> None:
    body.add_joint(name=name, type=kind, axis=axis)
    world.add_actuator(name=name, trntype=mujoco.mjtTrn.mjTRN_JOINT, target=name).set_to_motor()


@dataclass(frozen=True)
class Box:
    """A box on the floor that robots can push."""

    name: str
    size_m: tuple[float, float, float]  # length, width and height
    mass_kg: float
    friction: float = 0.3  # sliding friction on the floor [1]


def box_of(body: FleetBody) -> Box:
    """Return a body of a fleet file as a box."""
    return Box(body.name, body.size_m, body.mass_kg, body.friction)


def add_box(world: mujoco.MjSpec, box: Box, step_s: float) -> None:
    """Add a box at the origin that slides along x and y and turns about z, with the friction of four feet.

    Eight friction tendons replace feet at the corners: in four world directions, each with a lever to the left and to
    the right of the centre. They resist a push through the centre with the force of the feet, to 4 % in all
    directions, a turn with their torque, and both together approximately. Real contacts would hold 30 % less along a
    diagonal (pyramidal friction cone) and take seven times as long in MJX. The box never tips.
    """
    length, width, height = box.size_m
    body = world.worldbody.add_body(name=box.name, pos=[0, 0, height / 2])
    size = [length / 2, width / 2, height / 2]
    add_geom(body, f"{box.name}/box", mujoco.mjtGeom.mjGEOM_BOX, size, (BOX, WALL | BOX), mass=box.mass_kg)
    for axis, direction in (("x", [1, 0, 0]), ("y", [0, 1, 0])):
        body.add_joint(name=f"{box.name}/{axis}", type=mujoco.mjtJoint.mjJNT_SLIDE, axis=direction)
    body.add_joint(name=f"{box.name}/yaw", type=mujoco.mjtJoint.mjJNT_HINGE, axis=[0, 0, 1])
    angles = [math.pi / 4 * k for k in range(4)]
    # a push at the angle a moves each against |cos(a - angle)|, whose mean over all a is 2 / pi
    force = friction_n(box) / (2 * len(angles) * 2 / math.pi)
    lever = 2 / math.pi * math.hypot(length / 2, width / 2)
    for k, angle in enumerate(angles):
        for side, arm in (("left", lever), ("right", -lever)):
            tendon = world.add_tendon(name=f"{box.name}/friction_{k}_{side}", frictionloss=force)
            tendon.solref_friction, tendon.solimp_friction = [2 * step_s, 1.0], STIFF
            for joint, share in (("x", math.cos(angle)), ("y", math.sin(angle)), ("yaw", arm)):
                tendon.wrap_joint(f"{box.name}/{joint}", share)


def friction_n(box: Box) -> float:
    """Return the friction force [N] of a sliding box."""
    return box.friction * box.mass_kg * GRAVITY_M_S2


def add_obstacle(world: mujoco.MjSpec, name: str, obstacle: Obstacle) -> None:
    """Add an obstacle of the plane or of space.

    A planar obstacle is placed at the height of the hulls, which are spheres and touch it exactly as discs in the
    plane do; a disc becomes a ball at that height.
    """
    geom = world.worldbody.add_geom(name=name, contype=WALL, conaffinity=0, condim=1)
    if isinstance(obstacle, Ball):
        geom.type, geom.pos = mujoco.mjtGeom.mjGEOM_SPHERE, _with_height(obstacle.centre_world)
        geom.size = [obstacle.radius_m, 0, 0]
    elif isinstance(obstacle, Block):
        geom.type, geom.pos = mujoco.mjtGeom.mjGEOM_BOX, _with_height(obstacle.centre_world)
        geom.size = [*obstacle.half_size_m, HULL_HEIGHT_M][:3]
        geom.quat = [math.cos(obstacle.yaw / 2), 0, 0, math.sin(obstacle.yaw / 2)]
    else:
        geom.type = mujoco.mjtGeom.mjGEOM_CAPSULE
        geom.fromto = [*_with_height(obstacle.start_world), *_with_height(obstacle.end_world)]
        geom.size = [obstacle.radius_m, 0, 0]


def _with_height(place_world: tuple[float, ...]) -> list[float]:
    return [*place_world, HULL_HEIGHT_M][:3]
