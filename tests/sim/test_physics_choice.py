"""The physics tiers against each other: same commands, same start, bounded distance.

Oracles: C MuJoCo for MJX, the motion model for both, and the plant, which has its own bookkeeping.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.sim.points import load_point
from tests.sim.scenarios.compiled import starts_of_keys

from testudo_bench.accuracy.tier_drift import compare, drawn_worlds, profiles, run_commands, sent_commands, single_start
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.velocity_projection import Arena
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import MotionState, motion_model
from testudo_hardware.schema import HOLONOMIC
from testudo_hardware.spec import robot_files
from testudo_plant.worlds.world import MujocoWorld
from testudo_plant.worlds.world_builder import WorldRobot
from testudo_sim.environment import Environment
from testudo_sim.physics.mjx_stepper import choose_impl
from testudo_sim.physics.world_parameters import Channels, draw_parameters
from testudo_sim.physics_choice import PhysicsChoice, make_physics, make_tier
from testudo_sim.scenarios.scenario import make_scenario
from testudo_sim.team.team_tick import SimulatedTeam

pytestmark = pytest.mark.usefixtures("quick")

ARENA = Arena((-1.6, -1.0), (1.6, 1.0))
ROBOTS = sorted(robot_files())
GROUND = [name for name in ROBOTS if load_point(name).dimension == 2]
BOUND_M = {"wheels": 0.0015, "planar": 0.002}
"""Largest distance from the kinematic tier within 2 s; measured 1.2 and 1.5 mm (`testudo bench tiers`)."""
BOUND_RAD = np.radians(1.0)
CASES = [(name, "wheels") for name in ROBOTS] + [(name, "planar") for name in GROUND]
FEW = [pytest.param(*case, marks=pytest.mark.slow) if case[0].startswith("cf2x") else case for case in CASES]
"""Of the quick drones, which differ in their numbers alone, one; in the full run all."""


@functools.cache
def driven(choice, name, signal):
    """Return the motion of one robot alone in four worlds under a test signal."""
    spec = load_point(name)
    model = motion_model(spec)
    commands = sent_commands(model, profiles(spec, 2.1)[signal])
    physics = make_physics(choice, model, None, 1)
    return run_commands(physics, single_start(spec, 4), commands, drawn_worlds(spec, 4))


def bound_m(choice, name):
    """At 1 m/s a step counts for more: 2.3 mm measured, and 4.2 mm with the long steps of `planar`.

    Points that stop from there in a quarter of a second, as those of the drones `cf2...`: 8.2 mm.
    """
    spec = load_point(name)
    if spec.dimension == 3 and spec.acceleration_limit_m_s2 > 2:
        return 6 * BOUND_M[choice.form]
    return BOUND_M[choice.form] * (3 if spec.kind == HOLONOMIC else 1)


def assert_within_bounds(choice, name, signal):
    reference = driven(PhysicsChoice(), name, signal)
    period = load_point(name).control_period_s
    drifts = compare(reference, driven(choice, name, signal), period)
    assert len(drifts) == 5
    for drift in drifts:
        assert drift.position_worst_m <= bound_m(choice, name)
        assert drift.yaw_worst_rad <= BOUND_RAD


@pytest.mark.parametrize(("name", "form"), FEW)
def test_c_mujoco_drives_as_the_motion_model_within_the_bound_of_each_robot(name, form):
    assert_within_bounds(PhysicsChoice("mujoco", form), name, "steps")


@pytest.mark.slow
@pytest.mark.parametrize("signal", ["steps", "chirp", "eight"])
@pytest.mark.parametrize("tier", ["mjx", "mujoco"])
@pytest.mark.parametrize(("name", "form"), CASES)
def test_every_tier_of_every_robot_stays_within_its_bound(name, form, tier, signal):
    assert_within_bounds(PhysicsChoice(tier, form), name, signal)


def team_motion(choice, worlds, commands, start, parameters, arena=ARENA, name="gritsbot_x"):
    physics = make_physics(choice, motion_model(load_point(name)), arena, start.yaw.shape[0])
    return run_commands(physics, start, commands, parameters)


@functools.cache
def random_second():
    """Return start, commands for 1 s and parameters of four robots in the Robotarium, eight worlds."""
    spec = load_point("gritsbot_x")
    scenario = make_scenario("navigation", spec, projection_parameters(spec))
    keys = jax.random.split(jax.random.key(5), 8)
    begin = starts_of_keys(scenario, 4, keys)
    start = MotionState(begin.position_world, begin.yaw, jnp.zeros_like(begin.position_world))
    rng = np.random.default_rng(1)
    commands = rng.uniform(-1, 1, (5, 2, 4, 8)) * np.array([0.2, 1.5])[:, None, None]
    parameters = jax.jit(lambda keys: draw_parameters(keys, spec, Channels()))(keys)
    return start, jnp.asarray(np.repeat(commands, 6, axis=0), jnp.float32), parameters


@pytest.mark.parametrize(("form", "bound_m"), [pytest.param("planar", 1e-4, marks=pytest.mark.slow), ("wheels", 1e-3)])
def test_mjx_is_c_mujoco_over_a_second_of_random_commands(form, bound_m):
    start, commands, parameters = random_second()
    found = [
        team_motion(PhysicsChoice(tier, form, "jax"), 8, commands, start, parameters) for tier in ("mjx", "mujoco")
    ]
    apart = np.asarray(found[0].position_world - found[1].position_world)
    moved = np.asarray(found[0].position_world[-1] - start.position_world)
    assert np.abs(moved).max() > 0.05
    assert np.sqrt((apart**2).sum(axis=1)).max() <= bound_m


def facing(gap_m):
    """Return two gritsbots that face each other with so much room between their hulls, one world."""
    radius = load_point("gritsbot_x").body_radius_m
    x = np.float32([-radius - gap_m / 2, radius + gap_m / 2])[None, :, None]
    return MotionState(np.concatenate([x, 0 * x]), np.float32([[0.0], [np.pi]]), np.zeros((2, 2, 1), np.float32))


def head_on(choice):
    """Drive two robots into each other for a second; return positions and contacts of each tick."""
    spec = load_point("gritsbot_x")
    physics = make_physics(choice, motion_model(spec), ARENA, 2)
    parameters = drawn_worlds(spec, 1)
    start = facing(0.05)
    sent = np.broadcast_to(np.float32([0.1, 0.0])[:, None, None], (parameters.delay_weights.shape[0], 2, 2, 1))

    def tick(state, _):
        state = physics.advance(state, sent, parameters)
        return state, (physics.scene(state).robots.position_world, physics.watch(state))

    @jax.jit
    def drive(start):
        return jax.lax.scan(tick, physics.reset(start.position_world, start.yaw, None), None, length=30)[1]

    return jax.tree.map(np.asarray, drive(start))


@pytest.mark.parametrize("form", ["planar", "wheels"])
def test_robots_that_meet_stop_each_other_and_every_step_of_it_is_counted(form):
    """On the kinematic tier they pass through each other; in MuJoCo they do not, in both alike."""
    place, watch = head_on(PhysicsChoice("mujoco", form))
    spec = load_point("gritsbot_x")
    tier = make_tier(form, motion_model(spec), ARENA, 2)
    gap = np.asarray(place[:, 0, 1, 0] - place[:, 0, 0, 0])
    assert gap[-1] == pytest.approx(2 * spec.body_radius_m, abs=0.003)
    contacts = np.asarray(watch.contacts[:, 0])
    assert contacts[0] == 0
    assert contacts[-1] == tier.steps
    assert np.asarray(watch.separation_m)[:, 0] == pytest.approx(gap, abs=0.012)
    through, _ = head_on(PhysicsChoice())
    assert through[-1, 0, 1, 0] - through[-1, 0, 0, 0] < 0.1


def test_mjx_meets_as_c_mujoco_does():
    places = [np.asarray(head_on(PhysicsChoice(tier, "planar", "jax"))[0]) for tier in ("mjx", "mujoco")]
    assert np.abs(places[0] - places[1]).max() < 1e-4


def test_a_wall_stops_a_robot_and_counts():
    spec = load_point("gritsbot_x")
    physics = make_physics(PhysicsChoice("mujoco", "planar"), motion_model(spec), ARENA, 1)
    parameters = drawn_worlds(spec, 1)
    state = jax.jit(physics.reset)(np.float32([[[1.5]], [[0.0]]]), np.zeros((1, 1), np.float32), None)
    sent = np.tile(np.float32([0.2, 0.0])[:, None, None], (parameters.delay_weights.shape[0], 1, 1, 1))
    advance = jax.jit(physics.advance)
    for _ in range(20):
        state = advance(state, sent, parameters)
    scene, watch = jax.jit(lambda state: (physics.scene(state), physics.watch(state)))(state)
    assert np.asarray(scene.robots.position_world)[0, 0, 0] == pytest.approx(1.6 - 0.0675, abs=0.003)
    assert np.asarray(watch.contacts)[0] == physics.tier.steps


def test_what_is_no_number_counts_as_contact():
    physics = make_physics(PhysicsChoice(), motion_model(load_point("gritsbot_x")), ARENA, 2)
    watch = jax.jit(lambda place, yaw: physics.watch(physics.reset(place, yaw, None)))
    assert int(watch(np.full((2, 2, 1), np.nan, np.float32), np.zeros((2, 1), np.float32)).contacts[0]) > 0


def test_the_plant_drives_the_very_same_world():
    """The plant's bookkeeping is its own; forces and model are those of the tier."""
    spec = load_point("gritsbot_x")
    world = MujocoWorld([WorldRobot("r0", spec)], ARENA)
    tier = make_tier("wheels", motion_model(spec), ARENA, 1)
    assert world.step_s == pytest.approx(tier.step_s)
    world.place(0, (0.1, 0.2), 0.3)
    physics = make_physics(PhysicsChoice("mujoco", "wheels"), motion_model(spec), ARENA, 1)
    parameters = drawn_worlds(spec, 1, spread=0.0)
    state = jax.jit(physics.reset)(np.float32([[[0.1]], [[0.2]]]), np.full((1, 1), 0.3, np.float32), None)
    sent = np.tile(np.float32([0.15, 1.0])[:, None, None], (parameters.delay_weights.shape[0], 1, 1, 1))
    advance = jax.jit(physics.advance)
    for _ in range(30):
        state = advance(state, sent, parameters)
        for _ in range(tier.steps):
            world.look()
            world.advance(np.array([[0.15, 1.0, 0.0]]))
    pose, motion = world.pose(0), jax.jit(physics.scene)(state).robots
    assert np.asarray(motion.position_world)[:, 0, 0] == pytest.approx(pose.position_world, abs=2e-5)
    assert float(motion.yaw[0, 0]) == pytest.approx(pose.yaw, abs=2e-4)


def test_a_heading_is_not_wrapped():
    """Three turns in place: the world knows a heading within one turn, the tier counts them."""
    spec = load_point("gritsbot_x")
    physics = make_physics(PhysicsChoice("mujoco", "wheels"), motion_model(spec), None, 1)
    parameters = drawn_worlds(spec, 1, spread=0.0)
    commands = jnp.broadcast_to(jnp.asarray([0.0, 3.5])[:, None, None], (180, 2, 1, 1))
    motion = run_commands(physics, single_start(spec, 1), commands, parameters)
    assert float(motion.yaw[-1, 0, 0]) == pytest.approx(3.5 * (180 * 0.033 - 0.05 - 0.08), rel=0.01)
    assert np.abs(np.diff(np.asarray(motion.yaw[:, 0, 0]))).max() < 0.2


def test_worlds_with_little_friction_slip():
    """Friction is drawn for each world: the same command, with the wheels on ice, gets hardly anywhere."""
    spec = load_point("gritsbot_x")
    parameters = drawn_worlds(spec, 2, spread=0.0)
    scale = jnp.asarray([1.0, 0.01])
    parameters = dataclasses.replace(parameters, friction_scale=scale, grip=scale)
    commands = sent_commands(motion_model(spec), np.tile(np.float32([0.2, 0.0]), (15, 1)))
    for form in ("planar", "wheels"):
        physics = make_physics(PhysicsChoice("mujoco", form), motion_model(spec), None, 1)
        way = np.asarray(run_commands(physics, single_start(spec, 2), commands, parameters).position_world[-1, 0, 0])
        assert way[0] > 0.06
        assert way[1] < 0.5 * way[0]


def test_candidates_of_contact_grow_with_the_robots_and_not_with_their_square():
    from testudo_sim.physics.mjx_stepper import mjx

    model = motion_model(load_point("gritsbot_x"))

    def candidates(size):
        return mjx.make_data(make_tier("wheels", model, ARENA, size).compiled, impl="jax")._impl.contact.dist.shape[0]

    assert candidates(4) == 6 + 4 * 4 + 4 * 4  # pairs, walls, two wheels and two casters each
    assert candidates(32) == 2 * candidates(16)


def test_a_scenario_on_mjx_restarts_by_itself_under_jit_and_scan():
    """Two decisions of one tick; the world whose time is up starts at rest, with other friction, at another place."""
    spec = load_point("gritsbot_x")
    shield, model = projection_parameters(spec), motion_model(spec)
    scenario = dataclasses.replace(make_scenario("navigation", spec, shield), decision_ticks=1, horizon_s=0.07)
    physics = make_physics(PhysicsChoice("mjx", "planar", "jax"), model, scenario.arena, 2)
    environment = Environment(scenario, SimulatedTeam(model, shield, scenario.arena, physics, 2))
    assert environment.horizon == 2
    first = environment.reset(jax.random.split(jax.random.key(0), 3))
    nominal = jnp.full((3, 2, 2), 0.1)

    def step(world, key):
        world, result = environment.step(world, nominal, key)
        return world, (
            result.truncated,
            result.metrics.contacts,
            environment.scene(world).robots.position_world,
            world.team.parameters.friction_scale,
        )

    _, (truncated, contacts, place, friction) = jax.jit(
        lambda world: jax.lax.scan(step, world, jax.random.split(jax.random.key(1), 3))
    )(first)
    assert np.asarray(truncated).all(axis=1).tolist() == [False, True, False]
    assert not np.asarray(contacts).any()
    begin = np.asarray(environment.scene(first).robots.position_world)
    assert np.abs(np.asarray(place[0]) - begin).max() < 0.02
    assert np.abs(np.asarray(place[1]) - begin).max() > 0.1
    assert (np.asarray(friction[0]) == np.asarray(first.team.parameters.friction_scale)).all()
    assert (np.asarray(friction[1]) != np.asarray(friction[0])).all()


def test_what_cannot_be_chosen_is_refused():
    model = motion_model(load_point("gritsbot_x"))
    with pytest.raises(TestudoError, match="--physics: found 'bullet'"):
        make_physics(PhysicsChoice("bullet"), model, ARENA, 2)
    with pytest.raises(TestudoError, match="--form: found 'legs'"):
        make_physics(PhysicsChoice("mjx", "legs"), model, ARENA, 2)
    spec = load_point("gritsbot_x")
    boxes = make_scenario("push_box", spec, projection_parameters(spec)).boxes
    with pytest.raises(TestudoError, match="use --physics mjx"):
        make_physics(PhysicsChoice(), model, ARENA, 2, boxes)
    assert choose_impl("auto") == "jax" or jax.default_backend() == "gpu"


def test_warp_is_refused_where_it_is_not_installed(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(TestudoError, match="mujoco-warp is not installed"):
        choose_impl("warp")
