"""Ways lead to the goal, clear of all obstacles and hardly longer than they must be; ranges are those of the shapes."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from testudo_deploy.shield.arena import Arena, Ball, Block, Capsule, clearance, clearances
from testudo_hardware.errors import TestudoError
from testudo_sim.maps.named_maps import map_obstacles
from testudo_sim.maps.ranges import nearest_points, ray_ranges
from testudo_sim.maps.ways import ways_on

CELLS, DRIVE_M, REST_M = 21, 0.16, 0.19
SIDE_M = 12.4
SQUARE = Arena((-SIDE_M / 2,) * 2, (SIDE_M / 2,) * 2)


def map_of(name):
    return Arena(SQUARE.low_world, SQUARE.high_world, map_obstacles(name, SIDE_M))


@pytest.mark.parametrize(
    "name",
    ["camar_labmaze_40", *(pytest.param(name, marks=pytest.mark.slow) for name in ("camar_random_grid_60", "maze"))],
)
def test_a_point_that_follows_the_ways_arrives_and_keeps_its_distance(name):
    """Straight from each cell, in steps of a decision; what is left becomes less all the way."""
    arena = map_of(name)
    ways = ways_on(arena, CELLS, DRIVE_M, REST_M)
    cells = ways.nodes_world[ways.goals].T
    rng = np.random.default_rng(0)
    place, goal = (jnp.asarray(cells[:, rng.integers(0, cells.shape[1], 60)]) for _ in range(2))

    @jax.jit
    def moved(place):
        target, left = ways.towards(place, goal)
        way = target - place
        length = jnp.sqrt(jnp.sum(way**2, axis=0)) + 1e-9
        return place + way / length * jnp.minimum(0.06, length), left

    least, before = np.inf, np.inf
    for _ in range(700):
        place, left = moved(place)
        least = min(least, clearances(arena.groups, np.asarray(place))[0].min())
        assert (left <= before + 1e-3).all()
        before = left
    assert np.abs(np.asarray(place - goal)).max() < 0.01
    assert least > DRIVE_M - 0.01


def test_in_the_open_the_way_ends_at_the_goal_and_is_hardly_longer_than_a_straight_line():
    ways = ways_on(SQUARE, CELLS, DRIVE_M, REST_M)
    place, goal = jnp.array([[0.0], [0.0]]), jnp.array([[0.1], [0.04]])
    towards = jax.jit(ways.towards)
    target, left = towards(place, goal)
    assert target == pytest.approx(goal)
    assert left == pytest.approx(math.hypot(0.1, 0.04), rel=1e-4)
    far = jnp.array([[5.9], [3.0]])
    assert float(towards(place, far)[1][0]) == pytest.approx(math.hypot(5.9, 3.0), rel=0.085)
    assert len(ways.goals) == CELLS**2


def test_goals_are_in_one_part_and_a_map_without_a_free_cell_is_refused():
    wall = Block((1.5, 0.0), (0.2, 7.0), 0.0)
    ways = ways_on(Arena(SQUARE.low_world, SQUARE.high_world, (wall,)), CELLS, DRIVE_M, REST_M)
    assert ways.nodes_world[ways.goals][:, 0].max() < 1.3  # the larger part, west of the wall
    with pytest.raises(TestudoError, match="found no cell that is free"):
        ways_on(Arena(SQUARE.low_world, SQUARE.high_world, (Ball((0.0, 0.0), 20.0),)), CELLS, DRIVE_M, REST_M)


SHAPES = (Ball((2.0, 0.3), 0.5), Capsule((-2.0, -1.0), (-1.0, 1.5), 0.2), Block((0.5, -2.0), (0.7, 0.2), 0.6))
ARENA = Arena((-4.0, -3.0), (4.0, 3.0), SHAPES)


def test_ranges_are_where_marching_along_the_ray_meets_something():
    """Sphere tracing with the distances that the shield uses; and at most the limit."""
    ranges = jax.jit(lambda places, yaw: ray_ranges(ARENA, places, yaw, 8, 3.0))
    rng = np.random.default_rng(0)
    places = rng.uniform(-2.9, 2.9, (2, 40))
    places = places[:, clearances(ARENA.groups, places)[0].min(axis=0) > 0.05][..., None]
    yaw = rng.uniform(-3, 3, places.shape[1:])
    found = np.asarray(ranges(places, yaw))
    turn = yaw + 2 * math.pi / 8 * np.arange(8)[:, None, None]
    along, reach = np.stack([np.cos(turn), np.sin(turn)]), np.zeros_like(turn)
    for _ in range(400):
        at = places[:, None] + reach * along
        room = clearances(ARENA.groups, at)[0].min(axis=0)
        walls = np.minimum(4.0 - np.abs(at[0]), 3.0 - np.abs(at[1]))
        reach = reach + np.maximum(np.minimum(room, walls), 0.0)
    assert found == pytest.approx(np.minimum(reach, 3.0), abs=2e-3)
    inside = ranges(np.broadcast_to(np.array([[2.0], [0.3]])[..., None], places.shape), yaw)
    assert (np.asarray(inside) == 0).all()


def test_nearest_points_lie_on_the_nearest_obstacles_and_far_ones_do_not_count():
    place = np.array([[1.2], [0.0]], np.float32)[..., None]
    points, near = map(np.asarray, jax.jit(lambda place: nearest_points(ARENA, place, 4, 2.0))(place))
    assert near[:, 0, 0].tolist() == [1, 1, 0, 0]
    for point, shape in ((points[:, 0, 0, 0], SHAPES[0]), (points[:, 1, 0, 0], SHAPES[2])):
        assert clearance(shape, np.asarray(point))[0] == pytest.approx(0, abs=1e-5)
        apart = np.linalg.norm(np.asarray(point) - [1.2, 0.0])
        assert apart == pytest.approx(float(clearance(shape, np.array([1.2, 0.0]))[0]), abs=1e-5)
    assert (points[:, 2:, 0, 0] == place[:, 0]).all()
    assert not nearest_points(Arena((-1.0,) * 2, (1.0,) * 2), place, 2, 2.0)[1].any()
