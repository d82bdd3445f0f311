"""Drones with an attitude in MuJoCo, against the law that they are built on and against each other."""

import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from testudo_bench.accuracy.tier_drift import drawn_worlds, profiles, run_commands, sent_commands, single_start
from testudo_deploy.shield.velocity_projection import Arena
from testudo_hardware.frames import body_up, conjugate, multiply, rotation_vector
from testudo_hardware.motion import motion_model
from testudo_hardware.motion.attitude_drone import AttitudeDroneParameters, resting
from testudo_hardware.motion.attitude_drone import step as attitude_step
from testudo_hardware.motion.firmware_controllers import CascadeParameters, attitude_command, settled
from testudo_hardware.spec import load_robot
from testudo_plant.worlds.world import MujocoWorld
from testudo_plant.worlds.world_builder import PlantParameters, WorldRobot
from testudo_sim.physics_choice import PhysicsChoice, make_physics

pytestmark = pytest.mark.usefixtures("quick")

SPEC = load_robot("crazyflie_2x")
POINT = dataclasses.replace(SPEC, attitude={})
GROUND = load_robot("turtlebot4")
HIGH_M = 5.0
CASCADE = CascadeParameters.from_spec(SPEC)
PURE = PlantParameters(SPEC.velocity_lag_s, 0.0, 1.0, math.nan)


def world_of(*places, arena=None, specs=None):
    """Return a world whose drones hover at places (x, y, z, yaw)."""
    specs = specs or [SPEC] * len(places)
    world = MujocoWorld(
        [WorldRobot(f"r{i}", spec, PURE if spec.dimension == 3 else None) for i, spec in enumerate(specs)], arena
    )
    for i, (place, spec) in enumerate(zip(places, specs, strict=True)):
        world.place(i, place[:3][: spec.dimension], place[3])
    return world


def fly(world, commands, duration_s):
    """Give each robot its velocity for a while; return the poses at every step."""
    rows, poses = np.array(commands, dtype=float), []
    for _ in range(round(duration_s / world.step_s)):
        world.look()
        world.advance(rows)
        poses.append([world.pose(i) for i in range(len(rows))])
    return poses


def random_commands(seed, duration_s=2.0, held_s=0.2):
    """Return velocities (T, 3) that change every 0.2 s, within the limit of speed."""
    rng = np.random.default_rng(seed)
    found = rng.uniform(-1, 1, (round(duration_s / held_s), 3))
    return SPEC.speed_limit_m_s * found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1)


def law(commands, yaw, step_s, held_s=0.2):
    """Return the states at the end of each command under the law alone: cascade at its rate, attitude at the step."""
    drone = AttitudeDroneParameters.from_spec(SPEC)
    state = resting(np.array([0.0, 0.0, HIGH_M]), np.array(yaw), drone)
    memory, found, every = (
        settled(CASCADE, np.array(drone.hover_thrust_n), np.array(yaw)),
        [],
        round(CASCADE.period_s / step_s),
    )
    for command in commands:
        for k in range(round(held_s / step_s)):
            if k % every == 0:
                asked, memory = attitude_command(CASCADE, state, memory, command, np.array(0.0), CASCADE.period_s)
            state = attitude_step(drone, state, asked, step_s)
        found.append(state)
    return found


@pytest.mark.parametrize("yaw", [0.0, 2.0])
@pytest.mark.parametrize("seed", range(2))
def test_the_body_flies_as_the_law(seed, yaw):
    """Two seconds of random velocities: within 50 µm and a hundredth of a degree of the law itself."""
    commands = random_commands(seed)
    world = world_of((0.0, 0.0, HIGH_M, yaw))
    assert world.step_s == pytest.approx(0.002)
    fastest = 0.0
    for command, wanted in zip(commands, law(commands, yaw, world.step_s), strict=True):
        pose = fly(world, [command], 0.2)[-1][0]
        assert np.linalg.norm(pose.position_world - wanted.position_world) < 5e-5
        apart = rotation_vector(multiply(conjugate(np.array(pose.quaternion_xyzw)), wanted.quaternion_xyzw))
        assert np.linalg.norm(apart) < math.radians(0.01)
        assert np.linalg.norm(np.array(pose.velocity) - wanted.velocity_world) < 0.01
        fastest = max(fastest, np.linalg.norm(pose.velocity))
    assert fastest > 0.3


def test_a_drone_that_is_told_nothing_stays_where_it_is():
    pose = fly(world_of((1.0, -1.0, HIGH_M, 0.7)), [(0, 0, 0)], 2.0)[-1][0]
    assert pose.position_world == pytest.approx((1.0, -1.0, HIGH_M), abs=1e-6)
    assert pose.yaw == pytest.approx(0.7, abs=1e-6)


def test_velocities_are_of_the_world_whatever_the_heading():
    for yaw in (0.0, 1.5, -2.5):
        pose = fly(world_of((0.0, 0.0, HIGH_M, yaw)), [(0.4, 0.2, -0.1)], 2.0)[-1][0]
        assert pose.velocity == pytest.approx((0.4, 0.2, -0.1), abs=0.06)
        assert pose.yaw == pytest.approx(yaw, abs=0.02)


def test_it_leans_where_it_accelerates():
    pose = fly(world_of((0.0, 0.0, HIGH_M, 1.0)), [(0.0, 0.8, 0.0)], 0.15)[-1][0]
    up = body_up(np.array(pose.quaternion_xyzw))
    assert up[1] > 0.03
    assert abs(up[0]) < 0.01


def test_robots_of_one_world_do_not_share_memories():
    """Three drones apart, each under its own commands, with a point and a ground robot among them."""
    alone = [fly(world_of((0.0, 0.0, HIGH_M, 0.3)), [command], 0.5)[-1][0] for command in ((0.5, 0, 0), (0, -0.5, 0.2))]
    specs = [SPEC, GROUND, SPEC, POINT]
    world = world_of((0.0, 0.0, HIGH_M, 0.3), (0, 5, 0, 0), (3.0, 0.0, HIGH_M, 0.3), (0, 0, 9, 0), specs=specs)
    world_step = world.step_s
    poses = fly(world, [(0.5, 0, 0), (0.1, 0, 0), (0, -0.5, 0.2), (0, 0, 0)], 0.5)[-1]
    assert world_step == pytest.approx(0.002)
    for i, x, lone in ((0, 0.0, alone[0]), (2, 3.0, alone[1])):
        assert np.array(poses[i].position_world) - (x, 0, 0) == pytest.approx(lone.position_world, abs=1e-3)


def test_placed_anew_a_drone_hovers_and_the_others_fly_on():
    world = world_of((0.0, 0.0, HIGH_M, 0.0), (2.0, 0.0, HIGH_M, 0.0))
    fly(world, [(0.8, 0, 0)] * 2, 0.5)
    world.place(0, (0.0, 0.0, HIGH_M), 0.0)
    poses = fly(world, [(0, 0, 0), (0.8, 0, 0)], 1.0)[-1]
    assert poses[0].position_world == pytest.approx((0, 0, HIGH_M), abs=1e-6)
    assert poses[1].velocity[0] > 0.7


def test_a_levelled_drone_drifts_and_its_climb_goes_on():
    world = world_of((0.0, 0.0, HIGH_M, 0.0))
    fly(world, [(1.0, 0, 0.2)], 3.0)
    begin = world.pose(0)
    world.order(0, level=True, off=False)
    poses = fly(world, [(1.0, 0, 0.2)], 1.5)
    end = poses[-1][0]
    assert body_up(np.array(end.quaternion_xyzw))[2] > math.cos(math.radians(1))
    assert end.velocity[2] == pytest.approx(0.2, abs=0.05)
    # drag alone slows it down: about 1.5 m in 1.5 s at 1 m/s
    assert 0.9 < end.position_world[0] - begin.position_world[0] < 1.6
    assert 0.3 < end.velocity[0] < begin.velocity[0] + 0.05


def test_without_motors_it_falls():
    world = world_of((0.0, 0.0, HIGH_M, 0.0))
    world.order(0, level=True, off=True)
    pose = fly(world, [(0, 0, 0)], 0.5)[-1][0]
    assert pose.velocity[2] == pytest.approx(-9.81 * 0.5, rel=1e-3)
    world.order(0, level=False, off=False)
    pose = fly(world, [(0, 0, 0)], 6.0)[-1][0]  # its integral begins anew
    assert abs(pose.velocity[2]) < 0.1


def test_what_pushes_it_moves_it():
    world = world_of((0.0, 0.0, HIGH_M, 0.0))
    world.push(np.array([[0.0], [0.0], [-2.0]]))
    assert fly(world, [(0, 0, 0)], 0.3)[-1][0].velocity[2] < -0.1


@pytest.mark.parametrize(("gap_m", "count"), [(-1e-3, 1), (1e-3, 0)])
def test_two_drones_touch_when_their_balls_do(gap_m, count):
    apart = 2 * SPEC.body_radius_m + gap_m
    for place in ((apart, 0, 1, 0.0), (0, apart, 1, 0.0), (0, 0, 1 + apart, 0.0)):
        world = world_of((0, 0, 1, 0.5), place)
        world.look()
        assert [(one.first, one.second) for one in world.contacts()] == [("r0", "r1")] * count


def test_it_touches_walls_floor_ceiling_and_the_bodies_of_ground_robots():
    arena = Arena((-1, -1, 0), (1, 1, 2))
    near = 0.5 * SPEC.body_radius_m
    for place, wall in (
        ((-1 + near, 0, 1), "wall_x_low"),
        ((0, 1 - near, 1), "wall_y_high"),
        ((0, 0, near), "wall_z_low"),
        ((0, 0, 2 - near), "wall_z_high"),
    ):
        world = world_of((*place, 0.2), arena=arena)
        world.look()
        assert [one.second for one in world.contacts()] == [wall]
    for height, count in (
        (GROUND.body_height_m + 1.01 * SPEC.body_radius_m, 0),
        (GROUND.body_height_m + 0.9 * SPEC.body_radius_m, 1),
    ):
        world = world_of((0, 0, height, 0.0), (0, 0, 0, 0.0), specs=[SPEC, GROUND])
        world.look()
        assert len([one for one in world.contacts() if one.second != "floor"]) == count


def test_it_is_stopped_by_a_wall_and_by_the_floor():
    arena = Arena((-1, -1, 0), (1, 1, 2))
    poses = fly(world_of((0.6, 0, 1, 0.0), arena=arena), [(0.8, 0, 0)], 1.5)
    assert max(pose[0].position_world[0] for pose in poses) < 1 - SPEC.body_radius_m + 0.02
    world = world_of((0, 0, 0.5, 0.0), arena=arena)
    world.order(0, level=True, off=True)
    pose = fly(world, [(0, 0, 0)], 1.5)[-1][0]
    assert pose.position_world[2] == pytest.approx(SPEC.body_radius_m, abs=0.01)


def team(choice, signal="steps"):
    spec = SPEC
    model = motion_model(spec)
    commands = sent_commands(model, profiles(spec, 1.0)[signal])
    physics = make_physics(choice, model, None, 1)
    return run_commands(physics, single_start(spec, 2), commands, drawn_worlds(spec, 2)), physics


@pytest.mark.slow
def test_mjx_is_c_mujoco_for_drones():
    """The same steps in single precision: a quarter of a millimetre after a second."""
    (found, _), (reference, _) = (team(PhysicsChoice(tier, impl="jax")) for tier in ("mjx", "mujoco"))
    apart = np.asarray(found.position_world - reference.position_world)
    assert np.abs(np.asarray(reference.position_world[-1, :2])).max() > 0.05
    assert np.sqrt((apart**2).sum(axis=1)).max() < 2.5e-4
    turned = np.asarray(found.yaw - reference.yaw)
    assert np.abs(turned).max() < 1e-3


def test_a_drone_in_the_tier_hovers_and_keeps_its_heading():
    physics = make_physics(PhysicsChoice("mujoco"), motion_model(SPEC), None, 2)
    place = jnp.asarray([[[0.0], [1.0]], [[0.0], [0.0]], [[1.0], [1.0]]])
    state = physics.reset(place, jnp.asarray([[0.4], [-3.0]]), None)
    parameters = drawn_worlds(SPEC, 1)
    sent = jnp.zeros((parameters.delay_weights.shape[0], 3, 2, 1))
    advance = jax.jit(lambda state: physics.advance(state, sent, parameters))
    for _ in range(25):
        state = advance(state)
    robots = physics.scene(state).robots
    np.testing.assert_allclose(robots.position_world, place, atol=1e-4)
    np.testing.assert_allclose(robots.yaw[:, 0], [0.4, -3.0], atol=1e-4)


def test_without_an_attitude_a_drone_is_a_point_as_before():
    world = world_of((0.0, 0.0, HIGH_M, 0.0), specs=[POINT])
    assert {world.model.joint(k).name for k in range(world.model.njnt)} == {"r0/x", "r0/y", "r0/z", "r0/yaw"}
    assert world.pose(0).quaternion_xyzw is None
    with_attitude = world_of((0.0, 0.0, HIGH_M, 0.0))
    assert [with_attitude.model.joint(k).name for k in range(with_attitude.model.njnt)] == ["r0/free"]
    masses = [one.model.body("r0").mass[0] for one in (world, with_attitude)]
    assert masses == pytest.approx([SPEC.mass_kg] * 2)


def test_every_pair_of_commands_and_masses_is_finite():
    for command, yaw in itertools.product(((1e3, 0, 0), (0, 0, -1e3)), (0.0, 3.1)):
        world = world_of((0.0, 0.0, HIGH_M, yaw))
        fly(world, [command], 0.5)
        assert np.isfinite(world.data.qpos).all()


def test_the_mujoco_tier_is_the_attitude_tier_in_drawn_worlds():
    """Masses, lags, drags and link delays of the whole intervals: within a millimetre after a second, in float32."""
    (found, physics), (reference, _) = (team(PhysicsChoice(tier)) for tier in ("mujoco", "attitude"))
    apart = np.asarray(found.position_world - reference.position_world)
    assert np.abs(np.asarray(reference.position_world[-1, :2])).max() > 0.05
    assert np.sqrt((apart**2).sum(axis=1)).max() < 1e-3
    assert np.abs(np.asarray(found.yaw - reference.yaw)).max() < 1e-3
    assert physics.tier.step_s == pytest.approx(0.002)
