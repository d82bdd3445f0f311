"""MuJoCo scene of a run: arena, obstacles, goals, robots, boxes and camera."""

# mujoco is a binary module without stubs
# pyright: reportAttributeAccessIssue=false

import itertools
import math
from typing import Literal

import mujoco
import numpy as np

from testudo_analysis.rendering.animation import AnimationMoment, AnimationScene
from testudo_deploy.shield.arena import Arena, Ball, Block, Obstacle
from testudo_hardware.schema import HOLONOMIC
from testudo_hardware.spec import RobotSpec
from testudo_plant.worlds.robot_bodies import Box

PALETTE = (
    (0.00, 0.45, 0.70),
    (0.84, 0.37, 0.00),
    (0.00, 0.62, 0.45),
    (0.80, 0.40, 0.62),
    (0.90, 0.62, 0.00),
    (0.30, 0.66, 0.87),
    (0.40, 0.30, 0.62),
    (0.62, 0.57, 0.10),
    (0.50, 0.28, 0.18),
    (0.42, 0.42, 0.42),
)
"""Colours (red, green, blue) of robots, repeated after ten robots; those of Okabe and Ito, which colour-blind people
can tell apart, and four more."""

View = Literal["oblique", "top"]
FLOOR_NAME = "floor"
FLOOR_RGB = (0.88, 0.89, 0.915)
"""Mean colour of the floor."""

_CARTON_GOAL = (0.84, 0.77, 0.71)  # opaque, because a transparent geom would show its own shadow
_STONE = (0.45, 0.48, 0.55)

_FOV_DEG = 40.0
_WALL_HEIGHT_M = 0.06
_WALL_WIDTH_M = 0.03
_MARGIN = 1.06
_LIFT_M = 0.002  # height of discs above the floor, against flicker


def robot_colour(index: int) -> str:
    """Return the colour of a robot by its index in the fleet, hexadecimal."""
    return "#" + "".join(f"{round(255 * part):02x}" for part in PALETTE[index % len(PALETTE)])


def scene_spec(scenery: AnimationScene, size: tuple[int, int] = (640, 448), *, free: bool = False) -> mujoco.MjSpec:
    """Return the scene: a body for each robot, then for each box, in order, and the surroundings.

    ``size`` is width and height of pictures [px]; bodies have free joints if ``free``, else they are mocap bodies.
    """
    scene, arena = mujoco.MjSpec(), scenery.arena
    scene.modelname = "Testudo"  # title of the window
    scene.visual.global_.offwidth, scene.visual.global_.offheight = size
    scene.visual.global_.fovy = _FOV_DEG
    scene.visual.quality.shadowsize = 1024
    scene.visual.quality.offsamples = 4
    scene.visual.headlight.ambient = (0.35, 0.35, 0.35)
    scene.visual.headlight.diffuse = (0.15, 0.15, 0.15)
    scene.visual.headlight.specular = (0, 0, 0)
    scene.stat.extent = max(_sides(arena))
    scene.visual.map.shadowclip = 0.7  # the shadow map covers only the arena
    scene.stat.center = [*_middle(arena), 0]
    _add_surroundings(scene, arena)
    for obstacle in arena.obstacles:
        _add_obstacle(scene, obstacle)
    if scenery.goals_world is not None:
        _add_goals(scene, scenery, np.asarray(scenery.goals_world))
    for i, spec in enumerate(scenery.specs):
        add_robot(_add_body(scene, f"r{i}", free), spec, PALETTE[i % len(PALETTE)])
    for i, box in enumerate(scenery.boxes):
        add_box(_add_body(scene, f"box{i}", free), box)
    for geom in scene.geoms:  # no contacts, because poses are given
        geom.contype = geom.conaffinity = 0
    return scene


def scene_model(scenery: AnimationScene, size: tuple[int, int] = (640, 448)) -> mujoco.MjModel:
    """Return the compiled `scene_spec` with a mocap body for each robot and box."""
    return scene_spec(scenery, size).compile()


def body_poses(scenery: AnimationScene, moment: AnimationMoment) -> tuple[np.ndarray, np.ndarray]:
    """Return the centres (N + B, 3) [m] and quaternions (N + B, 4), w first, of the bodies."""
    heights = [spec.body_height_m / 2 for spec in scenery.specs] + [box.size_m[2] / 2 for box in scenery.boxes]
    positions, yaws = list(moment.position_world), list(moment.yaw)
    if moment.boxes_world is not None and moment.boxes_yaw is not None:
        positions, yaws = [*positions, *moment.boxes_world], [*yaws, *moment.boxes_yaw]
    half = np.asarray(yaws, dtype=float) / 2
    zero = np.zeros_like(half)
    centres = [in_space(position, height) for position, height in zip(positions, heights, strict=True)]
    quaternions = np.stack([np.cos(half), zero, zero, np.sin(half)], axis=-1)
    if moment.quaternion_xyzw is not None:
        quaternions[: len(scenery.specs)] = np.asarray(moment.quaternion_xyzw)[:, [3, 0, 1, 2]]
    return np.array(centres), quaternions


def place_bodies(data: mujoco.MjData, scenery: AnimationScene, moment: AnimationMoment) -> None:
    """Move the mocap bodies of a `scene_model`."""
    data.mocap_pos[:], data.mocap_quat[:] = body_poses(scenery, moment)


def _add_surroundings(scene: mujoco.MjSpec, arena: Arena) -> None:
    (x, y), (wide, deep) = _middle(arena), _sides(arena)
    kinds, patterns, grey = mujoco.mjtTexture, mujoco.mjtBuiltin, [0.97, 0.97, 0.98]
    for name, kind, pattern, first, second, side in (
        ("sky", kinds.mjTEXTURE_SKYBOX, patterns.mjBUILTIN_FLAT, grey, grey, 16),
        ("tiles", kinds.mjTEXTURE_2D, patterns.mjBUILTIN_CHECKER, [0.90, 0.91, 0.93], [0.86, 0.87, 0.90], 256),
    ):
        scene.add_texture(name=name, type=kind, builtin=pattern, rgb1=first, rgb2=second, width=side, height=side)
    tiles = scene.add_material(name="tiles", texrepeat=[2, 2], texuniform=True)
    tiles.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = "tiles"
    world = scene.worldbody
    world.add_light(  # vertical, because slanted light causes shadow artefacts on the floor
        pos=[x, y, 1.5 * wide],
        dir=[0, 0, -1],
        type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL,
        diffuse=[0.5, 0.5, 0.5],
        specular=[0.1, 0.1, 0.1],
    )
    box = mujoco.mjtGeom.mjGEOM_BOX
    half_x, half_y, wall = wide / 2, deep / 2, _WALL_WIDTH_M
    world.add_geom(  # a plane casts no shadow on itself
        name=FLOOR_NAME, type=mujoco.mjtGeom.mjGEOM_PLANE, pos=[x, y, 0], size=[half_x, half_y, 1], material="tiles"
    )
    for side in (-1, 1):
        for place, size in (
            ([x + side * (half_x + wall / 2), y], [wall / 2, half_y + wall]),
            ([x, y + side * (half_y + wall / 2)], [half_x, wall / 2]),
        ):
            world.add_geom(
                type=box,
                pos=[*place, _WALL_HEIGHT_M / 2],
                size=[*size, _WALL_HEIGHT_M / 2],
                rgba=[*_STONE, 1],
            )


def _add_obstacle(scene: mujoco.MjSpec, obstacle: Obstacle) -> None:
    """Add an obstacle; a 2-D obstacle is drawn on the floor, twice as high as the walls."""
    high = 2 * _WALL_HEIGHT_M
    geom = scene.worldbody.add_geom(rgba=[*_STONE, 1])
    if isinstance(obstacle, Ball):
        flat = len(obstacle.centre_world) == 2
        geom.type = mujoco.mjtGeom.mjGEOM_CYLINDER if flat else mujoco.mjtGeom.mjGEOM_SPHERE
        geom.pos, geom.size = [*obstacle.centre_world, high / 2][:3], [obstacle.radius_m, high / 2, 0]
    elif isinstance(obstacle, Block):
        geom.type = mujoco.mjtGeom.mjGEOM_BOX
        geom.pos, geom.size = [*obstacle.centre_world, high / 2][:3], [*obstacle.half_size_m, high / 2][:3]
        geom.quat = [math.cos(obstacle.yaw / 2), 0, 0, math.sin(obstacle.yaw / 2)]
    else:
        geom.type, geom.size = mujoco.mjtGeom.mjGEOM_CAPSULE, [obstacle.radius_m, 0, 0]
        geom.fromto = [*[*obstacle.start_world, 0.0][:3], *[*obstacle.end_world, 0.0][:3]]


def _add_goals(scene: mujoco.MjSpec, scenery: AnimationScene, goals: np.ndarray) -> None:
    """Mark the goal of each robot, or their common goal for the first box."""
    if scenery.boxes and np.all(goals == goals[0]):
        length, width, _ = scenery.boxes[0].size_m
        scene.worldbody.add_geom(
            type=mujoco.mjtGeom.mjGEOM_BOX,
            pos=in_space(goals[0], _LIFT_M / 2),
            size=[length / 2, width / 2, _LIFT_M / 2],
            rgba=[*_CARTON_GOAL, 1],
        )
        return
    for i, (spec, goal) in enumerate(zip(scenery.specs, goals, strict=True)):
        colour = PALETTE[i % len(PALETTE)]
        radius, ground = spec.body_radius_m, spec.dimension == 2
        kind = mujoco.mjtGeom.mjGEOM_CYLINDER if ground else mujoco.mjtGeom.mjGEOM_SPHERE
        x, y, z = in_space(goal, _LIFT_M / 2)
        for share, alpha in ((1.0, 0.35), (0.45, 0.8)):
            scene.worldbody.add_geom(
                type=kind,
                pos=[x, y, z + (1 - share) * _LIFT_M],
                size=[share * radius, _LIFT_M / 2, 0],
                rgba=[*colour, alpha],
            )


def _add_body(scene: mujoco.MjSpec, name: str, free: bool) -> mujoco.MjsBody:
    body = scene.worldbody.add_body(name=name, mocap=not free)
    if free:
        body.add_freejoint()
    return body


def arena_camera(arena: Arena, aspect: float, view: View) -> mujoco.MjvCamera:
    """Return a camera that shows the whole arena, with equal margins above and below."""
    (x, y), (wide, deep) = _middle(arena), _sides(arena)
    tilt = math.radians(89.9 if view == "top" else 58)
    sine, cosine, half_fov = math.sin(tilt), math.cos(tilt), math.tan(math.radians(_FOV_DEG / 2))
    half = deep / 2 + _WALL_WIDTH_M
    distance, nearer = 2 * (wide + deep), 0.0
    for _ in range(20):  # converges in a few iterations
        nearer = (half**2 - nearer**2) * cosine / distance
        near = half - nearer
        across = (wide / 2 + _WALL_WIDTH_M) / (half_fov * aspect) + near * cosine
        distance = _MARGIN * max(across, near * (sine / half_fov + cosine))
    height = arena.high_world[2] if len(arena.high_world) == 3 else 0.0
    camera = mujoco.MjvCamera()
    camera.lookat[:] = (x, y - nearer, height / 2)
    camera.azimuth, camera.elevation = 90, -math.degrees(tilt)
    camera.distance = distance + height / 2
    return camera


def _middle(arena: Arena) -> tuple[float, float]:
    (left, bottom), (right, top) = arena.low_world[:2], arena.high_world[:2]
    return ((left + right) / 2, (bottom + top) / 2)


def _sides(arena: Arena) -> tuple[float, float]:
    (left, bottom), (right, top) = arena.low_world[:2], arena.high_world[:2]
    return (right - left, top - bottom)


def in_space(place: np.ndarray, height_m: float) -> np.ndarray:
    """Return a position (D,) as (3,), at least at height ``height_m``."""
    return np.array([place[0], place[1], max(height_m, place[2] if len(place) == 3 else 0.0)])


_ROTOR_SHARE = 0.33  # radius of a rotor relative to that of the drone (Crazyflie: 23 of 70 mm)
_ARM_SHARE = 0.06
_BLADE = 0.45  # opacity of the disc of a spinning rotor
_HUB = (0.18, 0.18, 0.2)
_WHITE = (1.0, 1.0, 1.0)
_CARTON = (0.72, 0.53, 0.34)
_TYRE = (0.18, 0.18, 0.2)
_MARK_HEIGHT_M = 0.002


def add_robot(body: mujoco.MjsBody, spec: RobotSpec, colour: tuple[float, ...]) -> None:
    """Add the geoms of a robot that faces x."""
    if spec.dimension == 3:
        _add_drone(body, spec, colour)
        return
    radius, half = spec.body_radius_m, spec.body_height_m / 2
    box = mujoco.mjtGeom.mjGEOM_BOX
    top = half + 0.02 * radius
    if spec.kind == HOLONOMIC:
        _add_base(body, radius, half, colour)
    else:
        cylinder = mujoco.mjtGeom.mjGEOM_CYLINDER
        body.add_geom(type=cylinder, size=[radius, half, 0], rgba=[*colour, 1])
        body.add_geom(type=cylinder, size=[0.8 * radius, top, 0], rgba=[*_dark(colour), 1])
    # a white arrow on the top: shaft and head
    top += 0.02 * radius
    size = 0.8 * radius if spec.kind == HOLONOMIC else radius
    white = [1, 1, 1, 1]
    body.add_geom(type=box, pos=[-0.1 * size, 0, 0], size=[0.45 * size, 0.1 * size, top], rgba=white)
    for side in (-1, 1):
        body.add_geom(
            type=box,
            pos=[0.4 * size, side * 0.2 * size, 0],
            quat=[math.cos(side * math.pi / 8), 0, 0, -math.sin(side * math.pi / 8)],
            size=[0.35 * size, 0.1 * size, top],
            rgba=white,
        )


def add_box(body: mujoco.MjsBody, box: Box) -> None:
    """Add the geoms of a carton box."""
    half = [side / 2 for side in box.size_m]
    body.add_geom(type=mujoco.mjtGeom.mjGEOM_BOX, size=half, rgba=[*_CARTON, 1])
    # a mark on the top shows its heading
    body.add_geom(
        type=mujoco.mjtGeom.mjGEOM_BOX,
        pos=[0.35 * half[0], 0, half[2]],
        size=[0.5 * half[0], 0.08 * half[1], _MARK_HEIGHT_M],
        rgba=[*(0.6 * part for part in _CARTON), 1],
    )


def _add_base(body: mujoco.MjsBody, radius: float, half: float, colour: tuple[float, ...]) -> None:
    """Add a box on four wheels, aspect ratio 4 to 3, with corners on the circle of the body radius."""
    wheel = min(0.3 * radius, half)
    sides = [0.8 * radius, 0.45 * radius]
    body.add_geom(
        type=mujoco.mjtGeom.mjGEOM_BOX, pos=[0, 0, wheel / 2], size=[*sides, half - wheel / 2], rgba=[*colour, 1]
    )
    body.add_geom(
        type=mujoco.mjtGeom.mjGEOM_BOX,
        size=[*(0.8 * side for side in sides), half + 0.02 * radius],
        rgba=[*_dark(colour), 1],
    )
    for x, y in itertools.product((-1, 1), (-1, 1)):
        body.add_geom(
            type=mujoco.mjtGeom.mjGEOM_CYLINDER,
            pos=[x * (0.8 * radius - wheel), y * 0.53 * radius, wheel - half],
            quat=[math.sqrt(0.5), math.sqrt(0.5), 0, 0],
            size=[wheel, 0.07 * radius, 0],
            rgba=[*_TYRE, 1],
        )


def _add_drone(body: mujoco.MjsBody, spec: RobotSpec, colour: tuple[float, ...]) -> None:
    """Add four rotors on two arms, within the body radius, facing x; the two front rotors are white."""
    radius, half = spec.body_radius_m, spec.body_height_m / 2
    rotor = _ROTOR_SHARE * radius
    reach, arm = radius - rotor, _ARM_SHARE * radius
    box, cylinder = mujoco.mjtGeom.mjGEOM_BOX, mujoco.mjtGeom.mjGEOM_CYLINDER
    body.add_geom(type=box, size=[0.3 * radius, 0.2 * radius, 0.6 * half], rgba=[*colour, 1])
    for angle in (math.pi / 4, -math.pi / 4):
        body.add_geom(
            type=box,
            size=[reach, arm, arm],
            quat=[math.cos(angle / 2), 0, 0, math.sin(angle / 2)],
            rgba=[*(0.55 * part for part in colour), 1],
        )
    for x, y in itertools.product((1, -1), (1, -1)):
        position = [x * reach * math.sqrt(0.5), y * reach * math.sqrt(0.5), 0.0]
        body.add_geom(type=cylinder, pos=[*position[:2], 0.3 * half], size=[1.6 * arm, 0.5 * half, 0], rgba=[*_HUB, 1])
        body.add_geom(
            type=cylinder,
            pos=[*position[:2], 0.8 * half],
            size=[rotor, 0.02 * radius, 0],
            rgba=[*(_WHITE if x > 0 else colour), _BLADE],
        )


def _dark(colour: tuple[float, ...]) -> list[float]:
    return [0.55 * part for part in colour]
