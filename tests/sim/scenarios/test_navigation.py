"""`navigation`: starts and goals are far enough apart, and every reward term is what it says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.sim.scenarios.compiled import starts_of_keys

from testudo_deploy.shield.arena import Ball, Block, Capsule, clearance
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import MotionState
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import load_robot, robot_files
from testudo_sim.physics.scene import Scene
from testudo_sim.scenarios.goal_scenario import GoalTask
from testudo_sim.scenarios.scenario import make_scenario

pytestmark = pytest.mark.usefixtures("quick")

ROBOTS = sorted(robot_files())
FEW = [pytest.param(name, marks=pytest.mark.slow) if name.startswith("cf") else name for name in ROBOTS]
"""In the full run all."""
WORLDS = 300


def scenario_of(name):
    spec = load_robot(name)
    return make_scenario("navigation", spec, projection_parameters(spec))


def starts_of(scenario, size):
    keys = jax.random.split(jax.random.key(3), WORLDS)
    return starts_of_keys(scenario, size, keys)


def least_distance(points):
    """Return the least distance of two robots over all worlds, points (D, N, E)."""
    offset = np.asarray(points)[:, :, None] - np.asarray(points)[:, None]
    distance = np.linalg.norm(offset, axis=0) + 1e3 * np.eye(points.shape[1])[..., None]
    return distance.min()


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("size", [4, 8])
def test_starts_and_goals_are_the_separation_and_a_tenth_apart(name, size):
    scenario = scenario_of(name)
    begin = starts_of(scenario, size)
    spacing = projection_parameters(load_robot(name)).separation_m + 0.1
    assert scenario.spacing_m >= spacing - 1e-9
    assert least_distance(begin.position_world) >= spacing - 1e-5
    assert least_distance(begin.task.goal_world) >= spacing - 1e-5


@pytest.mark.parametrize("name", ROBOTS)
def test_starts_and_goals_are_where_the_shield_lets_a_robot_be(name):
    """Farther from every wall than margin and look-ahead, whatever the yaw, but for a small retreat."""
    scenario, spec = scenario_of(name), load_robot(name)
    begin, margin = starts_of(scenario, 4), projection_parameters(spec).wall_m
    ahead = spec.look_ahead_m if spec.kind == DIFFERENTIAL_DRIVE else 0
    low, high = (np.array(x)[:, None, None] for x in (scenario.arena.low_world, scenario.arena.high_world))
    for points in (begin.position_world, begin.task.goal_world):
        room = min(float((points - low).min()), float((high - points).min()))
        assert room > margin + ahead - 0.01


@pytest.mark.parametrize("name", ROBOTS)
def test_starts_differ_and_a_key_gives_the_same_start_again(name):
    scenario = scenario_of(name)
    begin, again = starts_of(scenario, 4), starts_of(scenario, 4)
    for one, two in zip(jax.tree.leaves(begin), jax.tree.leaves(again), strict=True):
        assert (one == two).all()
    assert len(np.unique(np.asarray(begin.position_world[0, 0]))) > WORLDS // 2
    assert not (begin.position_world == begin.task.goal_world).all(axis=0).any()
    if load_robot(name).dimension == 2:
        assert np.ptp(np.asarray(begin.yaw)) > 6


@pytest.mark.parametrize("name", FEW)
def test_eight_robots_fit_into_every_arena(name):
    # shapes alone: whether a team fits is known without a draw, and a draw of another size is compiled anew
    begin = jax.eval_shape(lambda key: scenario_of(name).start(key, 8), jax.random.key(3))
    assert begin.position_world.shape[1] == begin.task.goal_world.shape[1] == 8


def test_the_arena_of_the_gritsbot_is_the_robotarium():
    arena = scenario_of("gritsbot_x").arena
    assert (arena.low_world, arena.high_world) == ((-1.6, -1.0), (1.6, 1.0))


def test_a_team_that_does_not_fit_is_refused_with_the_number_that_does():
    scenario = scenario_of("gritsbot_x")
    with pytest.raises(TestudoError, match=r"navigation: 99 robots do not fit: \d+ cells"):
        scenario.start(jax.random.key(0), 99)


def test_an_unknown_scenario_is_refused_with_the_known_ones():
    spec = load_robot("gritsbot_x")
    with pytest.raises(TestudoError, match=r"scenario 'chess' is not known; known are .*navigation"):
        make_scenario("chess", spec, projection_parameters(spec))


KEYS = jax.random.split(jax.random.key(0), 1)


def standing(positions):
    """Return the scene of robots at rest at (N, D), one world."""
    position = jnp.asarray(np.array(positions, float).T[..., None])
    return Scene(MotionState(position, jnp.zeros(position.shape[1:]), jnp.zeros_like(position)))


def test_rewards_computed_by_hand():
    """Two robots; tolerance 0.1 m, speed 0.2 m/s, decision 0.33 s, so 0.066 m is full progress.

    The first moves from 0.5 m to 0.467 m of its goal: progress 0.033/0.066 = 0.5, still waiting.
    The second moves from 0.15 m to 0.084 m: progress 1, there. Not both are there: no success.
    """
    scenario = scenario_of("gritsbot_x")
    task = GoalTask(jnp.zeros((2, 2, 1)) + jnp.asarray([[[0.0], [1.0]], [[0.0], [0.0]]]))
    before, after = standing([(0.5, 0), (1.15, 0)]), standing([(0.467, 0), (1.084, 0)])
    step = scenario.advance(task, before, after, KEYS)
    terms = step.terms
    assert set(terms) == {"progress", "waiting", "success"}
    assert terms["progress"][:, 0] == pytest.approx(np.array([0.5, 1.0]), rel=1e-4)
    assert terms["waiting"][:, 0] == pytest.approx(np.array([-0.05, 0.0]))
    assert terms["success"][:, 0].tolist() == [0, 0]
    assert not step.success[0]
    there = scenario.advance(task, after, standing([(0.0, 0.099), (1.0, 0.0)]), KEYS)
    assert there.success[0]
    assert there.terms["success"][:, 0].tolist() == [5, 5]
    assert not scenario.advance(task, after, standing([(0.0, 0.101), (1.0, 0.0)]), KEYS).success[0]


def test_going_away_costs_what_coming_back_earns():
    scenario = scenario_of("gritsbot_x")
    task = GoalTask(jnp.zeros((2, 1, 1)))
    near, far = standing([(0.3, 0.4)]), standing([(0.6, 0.8)])
    there, back = (scenario.advance(task, *way, KEYS).terms["progress"] for way in ((near, far), (far, near)))
    assert float(there[0, 0]) == pytest.approx(-float(back[0, 0])) == pytest.approx(-0.5 / 0.066, rel=1e-4)


def test_the_goal_is_the_only_signal_that_the_scenario_adds():
    for name in ("gritsbot_x", "crazyflie_2x"):
        scenario = scenario_of(name)
        (signal,) = scenario.task_signals
        assert (signal.name, signal.shape, signal.unit) == ("goal_world", (load_robot(name).dimension,), "m")
        assert set(scenario.signals(GoalTask(jnp.zeros((2, 1, 1))), None)) == {"goal_world"}


OBSTACLES = {
    2: (Ball((0.3, 0.2), 0.15), Block((-0.6, -0.2), (0.2, 0.1), 0.5), Capsule((0.9, -0.4), (0.9, 0.1), 0.05)),
    3: (Ball((0.3, 0.2, 0.9), 0.3), Block((-0.6, -0.2, 0.5), (0.2, 0.1, 0.5), 0.5)),
}


@pytest.mark.parametrize("name", ["gritsbot_x", "crazyflie_2x"])
def test_starts_and_goals_keep_off_obstacles(name):
    """Farther than margin and look-ahead; without the option the same draw is in them."""
    spec, shield = load_robot(name), projection_parameters(load_robot(name))
    found = OBSTACLES[spec.dimension]
    scenario = make_scenario("navigation", spec, shield, found)
    assert scenario.arena.obstacles == found
    assert scenario.for_training().arena.obstacles == found
    ahead = spec.look_ahead_m if spec.kind == DIFFERENTIAL_DRIVE else 0

    def room(begin):
        points = (np.asarray(begin.position_world), np.asarray(begin.task.goal_world))
        return min(float(clearance(obstacle, places)[0].min()) for obstacle in found for places in points)

    assert room(starts_of(scenario, 4)) > shield.wall_m + ahead
    assert room(starts_of(scenario_of(name), 4)) < 0.05


def test_a_team_that_no_longer_fits_between_obstacles_is_refused():
    spec = load_robot("gritsbot_x")
    scenario = make_scenario("navigation", spec, projection_parameters(spec), (Ball((0.0, 0.0), 1.2),))
    with pytest.raises(TestudoError, match="robots do not fit"):
        scenario.start(jax.random.key(0), 8)


def test_a_scenario_that_takes_no_obstacles_says_so():
    spec = load_robot("gritsbot_x")
    with pytest.raises(TestudoError, match=r"--obstacles: found 1 of them, scenario 'push_box' takes none"):
        make_scenario("push_box", spec, projection_parameters(spec), (Ball((0.0, 0.0), 0.1),))
