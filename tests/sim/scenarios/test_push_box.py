"""`push_box`: starts that are free of everything, rewards by hand, and a box that one robot cannot move."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples
from tests.sim.scenarios.compiled import CompiledScenario, starts_of_keys
from tests.sim.sliding_box import sliding_environment

from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import MotionState, motion_model
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import load_robot, robot_files
from testudo_plant.worlds.robot_bodies import friction_n
from testudo_sim.physics.scene import BodyState, Scene
from testudo_sim.physics.world_parameters import Channels, draw_parameters
from testudo_sim.physics_choice import PhysicsChoice, make_physics
from testudo_sim.scenarios.push_box import PushTask, largest_push_n
from testudo_sim.scenarios.scenario import make_scenario

pytestmark = pytest.mark.usefixtures("quick")

GROUND = [name for name in sorted(robot_files()) if load_robot(name).kind == DIFFERENTIAL_DRIVE]
WORLDS = 64


def scenario_of(name="gritsbot_x"):
    spec = load_robot(name)
    return make_scenario("push_box", spec, projection_parameters(spec))


SCENARIOS = {name: scenario_of(name) for name in GROUND}


def starts_of(scenario, size, seed, worlds=WORLDS):
    keys = jax.random.split(jax.random.key(seed), worlds)
    return starts_of_keys(scenario, size, keys)


def from_box(points, begin):
    """Return points (2, N, E) in the frame of the box (2, N, E)."""
    offset = np.asarray(points) - np.asarray(begin.bodies.position_world)
    cosine, sine = np.cos(begin.bodies.yaw), np.sin(begin.bodies.yaw)
    return np.stack([cosine * offset[0] + sine * offset[1], cosine * offset[1] - sine * offset[0]])


def gap_to_box(points, begin, half):
    """Return the distance (N, E) of points from the sides of the box, 0 inside."""
    return np.linalg.norm(np.maximum(np.abs(from_box(points, begin)) - half, 0), axis=0)


def corners(position, yaw, half):
    """Return the corners (2, 4, E) of boxes at (2, E)."""
    x, y = np.array([1, 1, -1, -1])[:, None] * half, np.array([1, -1, -1, 1])[:, None] * half
    cosine, sine = np.cos(yaw), np.sin(yaw)
    return np.asarray(position)[:, None] + np.stack([cosine * x - sine * y, sine * x + cosine * y])


@settings(max_examples=examples(8), deadline=None)
@given(name=st.sampled_from(GROUND), size=st.integers(2, 4), seed=st.integers(0, 2**31 - 1), train=st.booleans())
def test_robots_start_free_of_each_other_of_the_box_and_of_the_walls(name, size, seed, train):
    scenario, spec = SCENARIOS[name], load_robot(name)
    shield = projection_parameters(spec)
    begin = starts_of(scenario.for_training() if train else scenario, size, seed)
    places, half = np.asarray(begin.position_world), scenario.boxes[0].size_m[0] / 2
    apart = np.linalg.norm(places[:, :, None] - places[:, None], axis=0) + 1e3 * np.eye(size)[..., None]
    assert apart.min() >= shield.separation_m + 0.1 - 1e-5
    assert gap_to_box(places, begin, half).min() > spec.body_radius_m
    high = np.array(scenario.arena.high_world)[:, None, None]
    assert (high - np.abs(places)).min() > shield.wall_m
    box = np.asarray(begin.bodies.position_world)[:, 0]
    box_corners = corners(box, np.asarray(begin.bodies.yaw)[0], half)
    # a robot fits between the box and any wall
    assert (high - np.abs(box_corners)).min() > spec.body_radius_m + shield.wall_m
    goal = np.asarray(begin.task.goal_world)
    assert (high[..., 0] - np.abs(goal)).min() > half * np.sqrt(2)
    way = np.linalg.norm(goal - box, axis=0)
    assert way.min() >= scenario.way_m[0] - 1e-5
    assert way.max() <= scenario.way_m[1] + 1e-5
    assert way.min() > scenario.tolerance_m


@pytest.mark.parametrize("name", GROUND)
def test_two_robots_fit_beside_each_other_on_one_side_of_the_box(name):
    scenario, shield = SCENARIOS[name], projection_parameters(load_robot(name))
    assert 2 * shield.separation_m < scenario.boxes[0].size_m[0] < 3 * shield.separation_m


@pytest.mark.parametrize("size", [1, 5])
def test_other_teams_are_refused_with_the_reason(size):
    with pytest.raises(TestudoError, match=f"push_box: found {size} robots, expected 2 to 4; one cannot move"):
        scenario_of().start(jax.random.key(0), size)


@pytest.mark.parametrize(("name", "why"), [("crazyflie_2x", "flies"), ("robomaster_s1", "slides in any direction")])
def test_robots_that_fly_or_slide_are_refused(name, why):
    with pytest.raises(TestudoError, match=f"push_box: {name} {why}; a box on the floor is pushed by ground"):
        scenario_of(name)


def test_goals_lie_in_all_directions_and_training_starts_behind_the_box():
    scenario = scenario_of()
    begin = starts_of(scenario, 2, 1, 2000)
    way = np.asarray(begin.task.goal_world - begin.bodies.position_world[:, 0])
    counts, _ = np.histogram(np.arctan2(way[1], way[0]), bins=8, range=(-np.pi, np.pi))
    assert counts.min() > 2000 / 8 / 2

    def mean_way(chosen):
        start = starts_of(chosen, 2, 1, 2000)
        rest = MotionState(start.position_world, start.yaw, jnp.zeros_like(start.position_world))
        return float(jnp.mean(scenario.way_behind(start.task, Scene(rest, start.bodies))))

    assert mean_way(scenario.for_training()) < 0.8 * mean_way(scenario)


def scene(robots, box, yaw=0.0):
    """Return the scene of robots at rest (N, 2) and a box, one world."""
    position = jnp.asarray(np.array(robots, float).T[..., None])
    rest = MotionState(position, jnp.zeros(position.shape[1:]), jnp.zeros_like(position))
    return Scene(rest, BodyState(jnp.asarray(np.array(box, float)[:, None, None]), jnp.full((1, 1), yaw)))


def test_rewards_computed_by_hand():
    """Speed 0.2 m/s, decision 0.33 s: 0.066 m is full progress. The goal is the origin, the box comes along x.

    The box moves from 0.5 m to 0.467 m: push 3 x 0.5. The first robot stands behind the box and follows it:
    nothing. The second is still 0.6 m from the place where it would touch, straight behind, and comes 0.033 m
    nearer to the box: 0.5 x 0.5.
    """
    scenario = CompiledScenario(scenario_of())
    task, touch = PushTask(jnp.zeros((2, 1))), scenario.contact_m
    before = scene([(0.5 + touch, 0), (1.1 + touch, 0)], (0.5, 0))
    after = scene([(0.467 + touch, 0), (1.034 + touch, 0)], (0.467, 0))
    keys = jax.random.split(jax.random.key(0), 1)
    step = scenario.advance(task, before, after, keys)
    terms = step.terms
    assert set(terms) == {"push", "approach", "waiting", "success"}
    assert terms["push"][:, 0] == pytest.approx(np.array([1.5, 1.5]), rel=1e-4)
    assert terms["approach"][:, 0] == pytest.approx(np.array([0.0, 0.25]), abs=1e-4)
    assert terms["waiting"][:, 0] == pytest.approx(np.array([-0.05, -0.05]))
    assert terms["success"][:, 0].tolist() == [0, 0]
    assert not step.success[0]
    there = scenario.advance(task, after, scene([(0.5, 0), (0.9, 0)], (0.0, -0.099)), keys)
    assert there.success[0]
    assert there.terms["success"][:, 0].tolist() == [10, 10]
    assert not scenario.advance(task, after, scene([(0.5, 0), (0.9, 0)], (0.0, 0.101)), keys).success[0]


def test_the_way_behind_the_box_leads_round_it():
    """From the goal's side it is half a turn, less what robots beside each other need; on the way it only shrinks."""
    scenario = CompiledScenario(scenario_of())
    task, touch = PushTask(jnp.zeros((2, 1))), scenario.contact_m
    round_it = [(1 + touch * np.cos(a), touch * np.sin(a)) for a in np.linspace(np.pi, 0, 9)]
    ways = [float(scenario.way_behind(task, scene([place], (1, 0)))[0, 0]) for place in round_it]
    assert ways[0] == pytest.approx((touch + scenario.body_radius_m) * (np.pi - 0.7), rel=1e-4)
    assert (np.diff(ways) <= 1e-6).all()
    assert ways[-1] == pytest.approx(0, abs=1e-5)


def test_every_robot_is_told_the_pose_of_the_box_and_its_goal():
    environment = sliding_environment(3)
    state = jax.jit(environment.reset)(jax.random.split(jax.random.key(0), 4))
    told = jax.jit(environment.signals)(state)
    names = [signal.name for signal in environment.scenario.task_signals]
    assert names == ["goal_world", "box_position_world", "box_quarter_yaw"]
    for signal in environment.scenario.task_signals:
        assert told[signal.name].shape == (4, 3, *signal.shape)
    bodies = environment.scene(state).bodies
    for robot in range(3):
        assert (told["goal_world"][:, robot] == state.task.goal_world.T).all()
        assert (told["box_position_world"][:, robot] == bodies.position_world[:, 0].T).all()
        assert (told["box_quarter_yaw"][:, robot, 0] == bodies.yaw[0]).all()


def pushed(form, beside, seconds=10.0):
    """Return how far robots at full command, beside each other at (N) [m], push the box [m], [rad]."""
    spec = load_robot("gritsbot_x")
    scenario, model, size = scenario_of(), motion_model(spec), len(beside)
    physics = make_physics(PhysicsChoice("mujoco", form), model, scenario.arena, size, scenario.boxes)
    draw = jax.jit(lambda keys: draw_parameters(keys, spec, Channels(), 0.0))
    nominal = draw(jax.random.split(jax.random.key(0), 1))
    place = jnp.asarray([[-scenario.contact_m - 0.02] * size, beside])[..., None]
    state = physics.reset(place, jnp.zeros((size, 1)), BodyState(jnp.zeros((2, 1, 1)), jnp.zeros((1, 1))))
    sent = jnp.zeros((nominal.delay_weights.shape[0], 2, size, 1)).at[:, 0].set(spec.speed_limit_m_s)
    ticks = round(seconds / spec.control_period_s)
    after = jax.jit(lambda s: jax.lax.fori_loop(0, ticks, lambda _, s: physics.advance(s, sent, nominal), s))(state)
    bodies = physics.scene(after).bodies
    return float(bodies.position_world[0, 0, 0]), float(bodies.yaw[0, 0])


@pytest.mark.parametrize("form", ["planar", "wheels"])
def test_one_robot_does_not_move_the_box_and_two_do(form):
    alone, _ = pushed(form, [0.0])
    together, turned = pushed(form, [-0.15, 0.15])
    assert abs(alone) < 0.01
    assert together > 0.4
    assert abs(turned) < 0.05


@pytest.mark.parametrize("name", GROUND)
def test_the_mass_follows_from_the_push_of_one_robot(name):
    scenario, spec = SCENARIOS[name], load_robot(name)
    assert friction_n(scenario.boxes[0]) == pytest.approx(1.25 * largest_push_n(spec))


def test_the_push_of_a_gritsbot_by_hand():
    # 0.4 kg, wheels of 0.02 kg and motors like 0.08 kg at the rim; 0.2 m/s within a lag of 0.08 s
    assert largest_push_n(load_robot("gritsbot_x")) == pytest.approx(0.5 * 0.2 / 0.08)


def test_the_kinematic_tier_refuses_the_scenario():
    spec = load_robot("gritsbot_x")
    scenario = scenario_of()
    with pytest.raises(TestudoError, match="--physics kinematic: this scenario has boxes that robots push"):
        make_physics(PhysicsChoice(), motion_model(spec), scenario.arena, 2, scenario.boxes)
