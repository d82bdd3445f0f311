import itertools
import math

import mujoco
import numpy as np
import pytest
from tests.sim.points import load_point

from testudo_deploy.shield.velocity_projection import Arena
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import LagResponse, MotionState, motion_model
from testudo_hardware.motion.motion_model import effective_command
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import robot_files
from testudo_plant.worlds.robot_groups import GroupForces, make_group
from testudo_plant.worlds.world import MujocoWorld
from testudo_plant.worlds.world_builder import PlantParameters, WorldRobot, build_world_spec, physics_step_s

ROBOTS = sorted(robot_files())
WHEELED = [name for name in ROBOTS if load_point(name).kind == DIFFERENTIAL_DRIVE]
ARENA = Arena((-20.0, -20.0), (20.0, 20.0))
HEIGHT_M = 5.0  # of a drone, away from the floor


def world_of(*names, arena=ARENA, parameters=None, spacing_m=1.0):
    """Return a world whose robots stand in a row along y, and their specs."""
    specs = [load_point(name) for name in names]
    world = MujocoWorld(
        [WorldRobot(f"r{i}", spec, parameters or PlantParameters.nominal(spec)) for i, spec in enumerate(specs)],
        arena,
    )
    for i, spec in enumerate(specs):
        world.place(i, (0.0, spacing_m * i, HEIGHT_M)[: spec.dimension], 0.0)
    return world, specs


def drive(world, command, duration_s):
    """Return the velocities (steps, D) of the only robot under one command."""
    row = np.zeros((1, 3))
    row[0, : len(command)] = command
    velocities = []
    for _ in range(round(duration_s / world.step_s)):
        world.look()
        world.advance(row)
        velocities.append(world.pose(0).velocity)
    return np.array(velocities)


def unit(spec, channel, size):
    command = [0.0] * spec.dimension
    command[channel] = size
    return command


def acceleration_limit(spec, channel):
    turns = spec.name in WHEELED and channel == 1
    return spec.turn_acceleration_limit_rad_s2 if turns else spec.acceleration_limit_m_s2


def realised_lag_s(speeds, step_s):
    """Return the area above the step response: the lag, for any response that settles.

    Speeds are those at the ends of the steps; the rule of the trapezium counts the start as zero.
    """
    share = np.concatenate([[0.0], speeds / speeds[-1]])
    return float(np.sum(1 - (share[1:] + share[:-1]) / 2) * step_s)


@pytest.mark.parametrize("name", ROBOTS)
def test_a_robot_stands_still_where_it_was_placed(name):
    world, (spec,) = world_of(name)
    drive(world, [0.0] * spec.dimension, 0.5)
    pose = world.pose(0)
    assert pose.position_world == pytest.approx((0.0, 0.0, HEIGHT_M)[: spec.dimension], abs=1e-5)
    assert pose.yaw == pytest.approx(0.0, abs=1e-5)
    assert pose.velocity == pytest.approx((0.0,) * spec.dimension, abs=1e-4)
    assert world.contacts() == ()


def test_all_registered_robots_share_one_model():
    world, specs = world_of(*ROBOTS, *ROBOTS)
    drive_all = np.zeros((len(specs), 3))
    for _ in range(100):
        world.look()
        world.advance(drive_all)
    assert np.isfinite(world.data.qpos).all()
    assert world.contacts() == ()


def test_contact_is_possible_only_where_it_matters():
    world, _ = world_of(*ROBOTS, arena=Arena((-20, -20, 0), (20, 20, 8)))
    model = world.model
    names = [model.geom(geom).name for geom in range(model.ngeom)]

    def part(name):
        return name.partition("/")[2] or name.partition("_")[0]

    allowed = {
        frozenset(pair)
        for pair in (
            ("hull", "hull"),
            ("hull", "body"),
            ("hull", "wall"),
            ("floor", "left_wheel_rim"),
            ("floor", "right_wheel_rim"),
            ("floor", "front_caster"),
            ("floor", "rear_caster"),
        )
    }
    met = set()
    for a, b in itertools.combinations(range(model.ngeom), 2):
        touches = model.geom_contype[a] & model.geom_conaffinity[b] or model.geom_contype[b] & model.geom_conaffinity[a]
        if touches:
            met.add(frozenset((part(names[a]), part(names[b]))))
    assert met == allowed


@pytest.mark.parametrize(
    ("name", "form"), [("gritsbot_x", "wheels"), ("gritsbot_x", "planar"), ("robomaster_s1", "wheels")]
)
def test_a_robot_that_begins_at_speed_drives_on_at_that_speed(name, form):
    """By C MuJoCo, under the command of that speed: no wheel slides, and nothing brakes or accelerates."""
    spec = load_point(name)
    velocity = np.array([[0.15], [0.8]]) if spec.kind == DIFFERENTIAL_DRIVE else np.array([[0.3], [-0.2]])
    model = build_world_spec([WorldRobot("r0", spec)], ARENA, 0.002, form=form).compile()
    group, data, yaw = make_group(model, ["r0"], [spec], form), mujoco.MjData(model), np.array([0.7])
    data.qpos[group.start_ids] = group.start(np.zeros((2, 1)), yaw)
    data.qvel[group.rate_ids] = group.start_rates(yaw, velocity)
    gain = LagResponse.create(np.array(model.opt.timestep), np.array(spec.velocity_lag_s)).gain
    for _ in range(100):
        assert group.motion(data.qpos, data.qvel).velocity == pytest.approx(velocity, rel=0.03)
        data.ctrl[group.controls] = group.forces(velocity, data.qpos, data.qvel, GroupForces(gain))[0]
        mujoco.mj_step(model, data)


@pytest.mark.parametrize(
    ("periods_s", "step_s"),
    [
        ([0.033], 0.003),
        ([0.02], 0.02 / 7),
        ([0.05, 0.05], 0.05 / 17),
        ([0.033, 0.05], 0.001),
        ([0.033, 1 / 30], 0.003),  # no common step: whole only for the shorter one
        ([0.002], 0.002),
    ],
)
def test_a_control_period_is_a_whole_number_of_steps(periods_s, step_s):
    assert physics_step_s(periods_s) == pytest.approx(step_s)


@pytest.mark.parametrize("factor", [0.8, 1.2])
@pytest.mark.parametrize("channel", [0, 1])
@pytest.mark.parametrize("name", ROBOTS)
def test_a_step_response_has_the_lag_and_the_scale_of_the_parameters(name, channel, factor):
    spec = load_point(name)
    lag_s = factor * spec.velocity_lag_s
    parameters = PlantParameters(lag_s, 0.0, factor, 2 - factor)
    world, _ = world_of(name, parameters=parameters)
    size = 0.5 * acceleration_limit(spec, channel) * lag_s  # below saturation
    size = min(size, 0.5 * spec.speed_limit_m_s / spec.body_radius_m ** (name in WHEELED))
    speeds = drive(world, unit(spec, channel, size), 12 * lag_s)[:, channel]
    scale = parameters.channel_scale(spec)[channel]
    assert speeds[-1] == pytest.approx(scale * size, rel=0.01)
    assert realised_lag_s(speeds, world.step_s) == pytest.approx(lag_s, rel=0.03)


@pytest.mark.parametrize("channel", [0, 1])
@pytest.mark.parametrize("name", ["turtlebot4", "irobot_create", "crazyflie_2x", "robomaster_s1"])
def test_a_large_step_is_held_to_the_acceleration_limit(name, channel):
    world, (spec,) = world_of(name)
    ground = name in WHEELED
    top = spec.turn_rate_limit_rad_s if ground and channel else spec.speed_limit_m_s
    drive(world, [0.0] * spec.dimension, 0.1)  # the wheels sink by micrometres and find grip
    speeds = drive(world, unit(spec, channel, top), 2.0)[:, channel]
    limit = acceleration_limit(spec, channel)
    assert np.diff(speeds).max() / world.step_s == pytest.approx(limit, rel=0.03)


@pytest.mark.parametrize("name", WHEELED)
def test_a_straight_line_is_straight_and_a_turn_stays_in_place(name):
    world, (spec,) = world_of(name)
    drive(world, (0.5 * spec.speed_limit_m_s, 0.0), 2.0)
    pose = world.pose(0)
    assert pose.position_world[0] > 0.5 * spec.speed_limit_m_s
    assert pose.position_world[1] == pytest.approx(0.0, abs=1e-3)
    assert pose.yaw == pytest.approx(0.0, abs=1e-3)
    drive(world, (0.0, 0.0), 1.0)
    rest = world.pose(0).position_world
    drive(world, (0.0, 0.5 * spec.turn_rate_limit_rad_s), 2.0)
    assert world.pose(0).position_world == pytest.approx(rest, abs=1e-3)


@pytest.mark.parametrize("name", ["gritsbot_x", "crazyflie_2x", "robomaster_s1"])
def test_frames_of_the_command(name):
    world, (spec,) = world_of(name)
    world.place(0, (0.0, 0.0, HEIGHT_M)[: spec.dimension], math.pi / 2)
    drive(world, unit(spec, 0, 0.1), 1.0)
    x, y = world.pose(0).position_world[:2]
    along, across = (y, x) if name in WHEELED else (x, y)  # body frame, world frame
    assert along > 0.05
    assert across == pytest.approx(0.0, abs=1e-3)
    assert world.pose(0).yaw == pytest.approx(math.pi / 2, abs=1e-3)


@pytest.mark.parametrize("name", ROBOTS)
def test_random_commands_move_the_world_as_the_motion_model(name):
    """Contact, slip and the explicit integration cost less than 2 mm and 0.3 degrees in 2 s."""
    world, (spec,) = world_of(name)
    model = motion_model(spec)
    fine = 4
    response = LagResponse.create(np.array(world.step_s / fine), np.array(spec.velocity_lag_s))
    channels = (spec.speed_limit_m_s, spec.turn_rate_limit_rad_s)
    top = np.array(channels if name in WHEELED else channels[:1] * spec.dimension)
    rng = np.random.default_rng(3)
    state = MotionState(np.array((0.0, 0.0, HEIGHT_M)[: spec.dimension]), np.array(0.0), np.zeros(spec.dimension))
    for _ in range(10):
        command = model.limit_command(rng.uniform(-1, 1, spec.dimension) * top)
        drive(world, command, 0.2)
        for _ in range(fine * round(0.2 / world.step_s)):
            state = model.step(state, effective_command(model, command), response)
    pose = world.pose(0)
    assert np.linalg.norm(np.array(pose.position_world) - state.position_world) < 2e-3
    assert abs(math.remainder(pose.yaw - float(state.yaw), math.tau)) < math.radians(0.3)


@pytest.mark.parametrize(("gap_m", "count"), [(-1e-3, 1), (1e-3, 0)])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("gritsbot_x", "turtlebot4"),
        ("crazyflie_2x", "crazyflie_2x"),
        ("robomaster_s1", "robomaster_s1"),
        ("robomaster_s1", "turtlebot4"),
    ],
)
def test_two_robots_touch_when_their_discs_do(first, second, gap_m, count):
    radii = sum(load_point(name).body_radius_m for name in (first, second))
    world, _ = world_of(first, second, spacing_m=radii + gap_m)
    world.look()
    contacts = world.contacts()
    assert [(c.first, c.second) for c in contacts] == [("r0", "r1")] * count
    assert world.distances() == pytest.approx([radii + gap_m])
    for contact in contacts:
        assert contact.depth_m == pytest.approx(-gap_m, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "place", "wall"),
    [
        ("gritsbot_x", (-0.95, 0.0), "wall_x_low"),
        ("gritsbot_x", (0.95, 0.0), "wall_x_high"),
        ("gritsbot_x", (0.0, -0.95), "wall_y_low"),
        ("gritsbot_x", (0.0, 0.95), "wall_y_high"),
        ("robomaster_s1", (-0.95, 0.0), "wall_x_low"),
        ("robomaster_s1", (0.0, 0.95), "wall_y_high"),
        ("crazyflie_2x", (0.0, 0.0, 0.05), "wall_z_low"),
        ("crazyflie_2x", (0.0, 0.0, 1.95), "wall_z_high"),
    ],
)
def test_each_wall_is_where_the_arena_says(name, place, wall):
    world, (spec,) = world_of(name, arena=Arena((-1, -1, 0), (1, 1, 2)))
    world.place(0, place, 0.3)
    world.look()
    (contact,) = world.contacts()
    assert (contact.first, contact.second) == ("r0", wall)
    assert contact.depth_m == pytest.approx(spec.body_radius_m - 0.05, abs=1e-4)


def test_a_drone_in_a_flat_arena_touches_the_floor():
    world, _ = world_of("crazyflie_2x")
    world.place(0, (0.0, 0.0, 0.05), 0.0)
    world.look()
    assert [contact.second for contact in world.contacts()] == ["floor"]


def test_parameters_are_drawn_within_the_spread():
    spec = load_point("gritsbot_x")
    drawn = [PlantParameters.sample(spec, np.random.default_rng(seed)) for seed in range(200)]
    for field in ("velocity_lag_s", "command_delay_s", "speed_scale", "turn_scale"):
        share = np.array([getattr(one, field) for one in drawn]) / getattr(spec, field)
        assert 0.8 <= share.min() < 0.82
        assert 1.18 < share.max() <= 1.2
    rng = np.random.default_rng(0)
    assert PlantParameters.sample(spec, rng, spread=0.0) == PlantParameters.nominal(spec)


def test_what_cannot_be_built_is_refused():
    spec = load_point("gritsbot_x")
    robot = WorldRobot("r0", spec, PlantParameters.nominal(spec))
    with pytest.raises(TestudoError, match="each name once"):
        build_world_spec([robot, robot], None, 0.003)
    with pytest.raises(TestudoError, match="arena: y: found low 1"):
        build_world_spec([robot], Arena((0.0, 1.0), (1.0, 0.0)), 0.003)
    with pytest.raises(TestudoError, match="arena: found 1 low"):
        build_world_spec([robot], Arena((0.0,), (1.0,)), 0.003)
    with pytest.raises(TestudoError, match="spread: found 1"):
        PlantParameters.sample(spec, np.random.default_rng(0), spread=1.0)
