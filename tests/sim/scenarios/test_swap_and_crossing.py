"""`swap` and `crossing`: starts and goals are far enough apart in every direction, and are what the names say."""

from functools import cache

import jax
import numpy as np
import pytest
from tests.sim.scenarios.compiled import starts_of_keys

from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_sim.scenarios.goal_scenario import spacing_m
from testudo_sim.scenarios.scenario import make_scenario

pytestmark = pytest.mark.usefixtures("quick")

ROBOTS = ("gritsbot_x", "robomaster_s1", "crazyflie_2x")
NAMES = ("swap", "crossing")
WORLDS = 1000


def scenario_of(name, robot):
    spec = load_robot(robot)
    return make_scenario(name, spec, projection_parameters(spec))


@cache
def starts_of(name, robot, size, training=False):
    scenario = scenario_of(name, robot)
    scenario = scenario.for_training() if training else scenario
    keys = jax.random.split(jax.random.key(3), WORLDS)
    begin = starts_of_keys(scenario, size, keys)
    return np.asarray(begin.position_world), np.asarray(begin.task.goal_world), np.asarray(begin.yaw)


def least_distance(points, up):
    """Return the least distance of two robots over all worlds, points (D, N, E), heights counted as ``1 / up``."""
    scale = np.array([1, 1, 1 / up][: len(points)])[:, None, None]
    offset = (scale * points)[:, :, None] - (scale * points)[:, None]
    distance = np.linalg.norm(offset, axis=0) + 1e3 * np.eye(points.shape[1])[..., None]
    return distance.min()


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("robot", ROBOTS)
@pytest.mark.parametrize("name", NAMES)
def test_starts_and_goals_keep_the_distance_and_are_in_the_arena(name, robot, size):
    scenario, shield = scenario_of(name, robot), projection_parameters(load_robot(robot))
    starts, goals, _ = starts_of(name, robot, size)
    low, high = (np.array(x)[:, None, None] for x in (scenario.arena.low_world, scenario.arena.high_world))
    for points in (starts, goals):
        assert least_distance(points, shield.height_ratio) >= spacing_m(shield) - 1e-5
        assert min((points - low).min(), (high - points).min()) > shield.wall_m


@pytest.mark.parametrize("robot", ROBOTS)
def test_robots_swap_with_the_one_opposite(robot):
    starts, goals, _ = starts_of("swap", robot, 4)
    assert np.allclose(goals, starts[:, [2, 3, 0, 1]], atol=1e-5)
    centre = starts.mean(axis=1, keepdims=True)
    assert np.allclose(starts + goals, 2 * centre, atol=1e-5)


def test_an_odd_team_takes_each_others_places():
    starts, goals, _ = starts_of("swap", "gritsbot_x", 5)
    assert np.allclose(goals, starts[:, [2, 3, 4, 0, 1]], atol=1e-5)
    assert (np.linalg.norm(goals - starts, axis=0) > spacing_m(projection_parameters(load_robot("gritsbot_x")))).all()


def test_rings_in_space_lie_flat_lean_and_stand_upright():
    """Flat: all at one height. Upright: some pair is above one another, its way across a tenth of its way up."""
    starts, _, _ = starts_of("swap", "crazyflie_2x", 2)
    across = np.linalg.norm(starts[:2, 0] - starts[:2, 1], axis=0)
    upward = np.abs(starts[2, 0] - starts[2, 1])
    assert 0.35 < (upward < 1e-6).mean() < 0.45
    assert 0.002 < (across < 0.1 * upward).mean() < 0.2
    assert ((upward > 0.1 * across) & (across > 0.1 * upward)).mean() > 0.2
    assert np.ptp(starts[2]) > 0.5


@pytest.mark.parametrize("robot", ROBOTS)
def test_streams_cross_and_keep_their_formation(robot):
    """Seen from above every robot goes the same way along one of two directions, 60 to 120 degrees apart."""
    starts, goals, _ = starts_of("crossing", robot, 4)
    way = (goals - starts)[:2]
    length = np.linalg.norm(way, axis=0)
    assert np.allclose(length, length[0, 0], rtol=1e-4)
    cosine = np.abs(np.einsum("dne,dme->nme", way / length, way / length))
    same = cosine > 1 - 1e-4
    assert (same.sum(axis=1) == 2).all()
    assert cosine[~same].max() <= 0.5 + 1e-4


def test_a_stream_in_space_climbs_or_sinks_and_the_other_does_not():
    starts, goals, _ = starts_of("crossing", "crazyflie_2x", 4)
    climb = np.sort(np.abs(goals - starts)[2], axis=0)
    assert climb[:2].max() < 1e-5
    assert np.allclose(climb[2], climb[3], atol=1e-5)
    assert climb[3].max() > 0.3


@pytest.mark.parametrize("name", NAMES)
def test_starts_differ_and_what_flies_looks_along_x(name):
    places, _, yaw = starts_of(name, "crazyflie_2x", 4)
    assert len(np.unique(places[0, 0])) > WORLDS / 2
    assert not yaw.any()
    assert np.ptp(starts_of(name, "gritsbot_x", 4)[2]) > 6


def test_half_of_the_teams_that_learn_are_on_their_way():
    """On a ring in the plane the way left is the angle between start and goal, of 180 degrees at the beginning."""
    scenario = scenario_of("swap", "gritsbot_x")
    starts, goals, _ = starts_of("swap", "gritsbot_x", 4, training=True)
    centre = goals.mean(axis=1, keepdims=True)
    (x, y), (u, v) = starts - centre, goals - centre
    left = np.arctan2(x * v - y * u, x * u + y * v) % (2 * np.pi)
    assert np.allclose(left, left[:1], atol=1e-3)
    assert 0.4 < (left[0] < np.pi - 0.01).mean() < 0.6
    assert left.min() > 0.05 * np.pi
    assert least_distance(starts, 1.0) >= scenario.spacing_m - 1e-5
    assert scenario.for_training().horizon_s < scenario.horizon_s


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("swap", "20 robots do not fit on a ring of .* 14 do"),
        ("crossing", "20 robots do not fit into two streams of 4 places"),
    ],
)
def test_a_team_that_does_not_fit_is_refused(name, text):
    with pytest.raises(TestudoError, match=text):
        scenario_of(name, "gritsbot_x").start(jax.random.key(0), 20)


@pytest.mark.parametrize(("name", "size"), [("swap", 14), ("crossing", 8)])
def test_the_largest_team_fits(name, size):
    starts, goals, _ = starts_of(name, "gritsbot_x", size)
    assert min(least_distance(starts, 1.0), least_distance(goals, 1.0)) >= 0.45 - 1e-5
