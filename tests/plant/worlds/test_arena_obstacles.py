"""Obstacles in simulation: robots that are driven at them do not touch them, unless the shield does not know them."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from testudo_bench.shield_protocol.compiled_setting import blocks
from testudo_deploy.shield.arena import Arena, Ball, Block, Capsule, clearance
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.shield import Shield
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import motion_model
from testudo_hardware.spec import load_robot
from testudo_plant.worlds.world import MujocoWorld
from testudo_plant.worlds.world_builder import WorldRobot, build_world_spec
from testudo_sim.physics.kinematic_tier import KinematicPhysics
from testudo_sim.physics.scene import count_contacts
from testudo_sim.physics.world_parameters import Channels, draw_parameters
from testudo_sim.team.deployed_team import DeployedTeam, start_deployed, tick_deployed
from testudo_sim.team.fault_schedule import no_faults
from testudo_sim.team.team_tick import SimulatedTeam

WORLDS, DURATION_S, LEG_S = 24, 15.0, 3.0
RADIUS_M = 2.0


def team_among(robot):
    """Return two robots in an arena with an obstacle of each kind."""
    spec = load_robot(robot)
    size = spec.dimension
    half = (RADIUS_M + 1.0,) * size
    arena = Arena(tuple(-x for x in half), half, blocks(RADIUS_M, size))
    model = motion_model(spec)
    return SimulatedTeam(model, projection_parameters(spec), arena, KinematicPhysics(model, arena), 2, Channels())


def driven_at_obstacles(robot, *, gate=True, project=True, known=True):
    """Return contacts (E,), least clearance (E,) [m] and mean way (E,) [m] of robots driven from one to the next."""
    team = team_among(robot)
    spec, arena = team.model.spec, team.arena
    sees = arena if known else replace(arena, obstacles=())
    shield = Shield(team.model, team.shield, stop_tube_parameters(spec), sees, project)
    deployment = DeployedTeam(shield, gate=gate, longest_message_ticks=1)
    middles = np.float32(
        [
            np.mean([one.start_world, one.end_world], axis=0) if isinstance(one, Capsule) else one.centre_world
            for one in arena.obstacles
        ]
    ).T
    place = np.zeros((spec.dimension, 2, WORLDS), np.float32)
    place[0] = np.array([[-1.0], [1.0]]) * 0.9 * RADIUS_M
    place[1] = np.random.default_rng(0).uniform(-0.5, 0.5, (2, WORLDS))
    leg = round(LEG_S / spec.control_period_s)

    def step(carry, key):
        state, number, seen, least, way = carry
        noise_key, tick_key = jax.random.split(key)
        place = team.physics.scene(state.physics).robots.position_world
        aim = (number // leg + jnp.arange(WORLDS)[None] + jnp.arange(2)[:, None]) % middles.shape[1]
        wish = jnp.asarray(middles)[:, aim] - place + 0.05 * jax.random.normal(noise_key, place.shape)
        wish = wish / jnp.linalg.norm(wish, axis=0) * spec.control_point_speed_m_s
        state, _ = tick_deployed(team, deployment, state, wish, tick_key)
        after = team.physics.scene(state.physics).robots.position_world
        near = jnp.min(jnp.stack([clearance(one, after)[0] for one in arena.obstacles]), axis=(0, 1))
        way = way + jnp.mean(jnp.linalg.norm(after - place, axis=0), axis=0)
        seen = seen + team.physics.watch(state.physics).contacts
        return (state, number + 1, seen, jnp.minimum(least, near), way), None

    @jax.jit
    def everything(place):
        parameters = draw_parameters(jax.random.split(jax.random.key(1), WORLDS), spec, Channels())
        faults = no_faults(spec.dimension, 2, WORLDS, driver_ticks=4)
        state = start_deployed(team, deployment, place, jnp.zeros((2, WORLDS)), parameters, faults)
        zero = jnp.zeros(WORLDS)
        keys = jax.random.split(jax.random.key(2), round(DURATION_S / spec.control_period_s))
        return jax.lax.scan(step, (state, 0, zero.astype(jnp.int32), zero + jnp.inf, zero), keys)[0][2:]

    return tuple(map(np.asarray, everything(place)))


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("robot", "layers"),
    [
        pytest.param("gritsbot_x", {}, marks=SLOW),
        pytest.param("gritsbot_x", {"gate": False}, marks=SLOW),
        pytest.param("gritsbot_x", {"project": False}, marks=SLOW),
        pytest.param("robomaster_s1", {}, marks=SLOW),
        pytest.param("robomaster_s1", {"project": False}, marks=SLOW),
        pytest.param("crazyflie_2x", {}, marks=SLOW),
    ],
)
def test_robots_driven_at_obstacles_do_not_touch_them(robot, layers):
    """With all layers, with layer 1 alone and with the gate alone; and they get near."""
    contacts, least, way = driven_at_obstacles(robot, **layers)
    radius = load_robot(robot).body_radius_m
    assert contacts.sum() == 0
    assert least.min() >= radius
    assert np.median(least) < 2.5 * radius + 0.1
    assert way.min() > 0.5


@SLOW
def test_robots_whose_shield_does_not_know_the_obstacles_touch_them():
    """The negative control."""
    contacts, least, _ = driven_at_obstacles("gritsbot_x", known=False)
    assert (contacts > 0).all()
    assert least.max() < load_robot("gritsbot_x").body_radius_m


def test_contacts_with_obstacles_are_counted():
    arena = Arena((-2.0, -2.0), (2.0, 2.0), (Ball((0.5, 0.0), 0.2), Block((-0.5, 0.0), (0.1, 0.3), 0.0)))
    places = jnp.asarray([[[0.0], [0.0]], [[0.21], [0.0]], [[-0.31], [0.31]], [[-0.5], [-0.39]], [[jnp.nan], [0.0]]])
    found = [int(count_contacts(place[:, :, None], 0.1, arena)[0]) for place in places]
    assert found == [0, 1, 1, 1, 3]  # what is not a number touches everything
    assert int(count_contacts(jnp.asarray([[0.5], [0.0]])[:, :, None], 0.1, replace(arena, obstacles=()))[0]) == 0


@pytest.mark.parametrize("robot", ["gritsbot_x", "robomaster_s1", "crazyflie_2x"])
@pytest.mark.parametrize("kind", [0, 1, 2])
def test_a_robot_driven_into_an_obstacle_stops_there_and_is_a_contact(robot, kind):
    """The world of the plant holds all kinds, as far away as their distance says."""
    spec = load_robot(robot)
    middle = (1.0, 0.0, 1.0)[: spec.dimension]
    below, above = ((1.0, y, 1.0)[: spec.dimension] for y in (-0.2, 0.2))
    box = Block(middle, (0.2, 0.1, 0.3)[: spec.dimension], 0.4)
    obstacle = (Ball(middle, 0.2), Capsule(below, above, 0.1), box)[kind]
    world = MujocoWorld([WorldRobot("r0", spec)], Arena((-3.0,) * spec.dimension, (3.0,) * spec.dimension, (obstacle,)))
    world.place(0, (0.0, 0.0, 1.0)[: spec.dimension], 0.0)
    command, touched = np.array([[0.2, 0.0, 0.0]]), None
    for _ in range(round(8.0 / world.step_s)):
        world.look()
        if world.contacts() and touched is None:
            touched = float(clearance(obstacle, np.array(world.pose(0).position_world))[0])
            assert {world.contacts()[0].first, world.contacts()[0].second} == {"r0", "obstacle_0"}
        world.advance(command)
    assert touched == pytest.approx(spec.body_radius_m, abs=2e-3)
    assert clearance(obstacle, np.array(world.pose(0).position_world))[0] > spec.body_radius_m - 0.01


def test_a_world_with_what_is_no_obstacle_is_refused():
    robot = WorldRobot("r0", load_robot("gritsbot_x"))
    with pytest.raises(TestudoError, match=r"arena: obstacles\[0\].centre_world: found .*, expected 2 numbers"):
        build_world_spec([robot], Arena((-1.0, -1.0), (1.0, 1.0), (Ball((0.0, 0.0, 0.0), 0.1),)), 0.003)
