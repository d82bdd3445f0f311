"""Obstacles: distances against samples, rows that hold all through a hold, tubes that may not pass through."""

import math
from dataclasses import replace

import array_api_strict
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.deploy.fine_motion import STEP_S
from tests.deploy.fine_motion import drawn as drawn_motion
from tests.deploy.lone_drive import Drive

from testudo_deploy.shield.arena import (
    OBSTACLE_ROWS,
    Arena,
    Ball,
    Block,
    Capsule,
    check_obstacle,
    clearance,
    clearances,
    groups_of,
    hull_clearance,
    hull_clearances,
    nearest_rows,
    obstacle_rows,
    read_obstacles,
    segment_clearance,
    segment_clearances,
    wall_rows,
)
from testudo_deploy.shield.geometry import project_onto_halfspaces
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.stop_tube import stop_tube
from testudo_deploy.shield.stop_tube_check import within_walls
from testudo_deploy.shield.velocity_projection import project_velocity
from testudo_hardware.arrays import array_namespace
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import MotionState, StoppingPoint, motion_model
from testudo_hardware.motion.motion_model import actuator_command, effective_command
from testudo_hardware.spec import load_robot

STEPS = 40
SHARES = np.linspace(0, 1, STEPS + 1)
NUMBER = st.floats(-2, 2, width=32)
SIZE = st.floats(0.0625, 1, width=32)


def places(size, count):
    """Draw ``count`` places (D,); many lie on each other, in a line with a face, or nearly so."""
    coarse = st.sampled_from([-1.0, 0.0, 0.5, 1.0, 1.0 + 1e-7])
    return st.lists(
        st.lists(st.one_of(coarse, NUMBER), min_size=size, max_size=size).map(np.array), min_size=count, max_size=count
    )


def obstacles(size):
    """Draw obstacles of one dimension."""
    place = st.tuples(*[NUMBER] * size)
    return st.one_of(
        st.builds(Ball, place, SIZE),
        st.builds(Capsule, place, place, SIZE),
        st.builds(Block, place, st.tuples(*[SIZE] * size), st.sampled_from([0.0, math.pi / 2, 0.4, -2.0])),
    )


def drawn(count):
    """Draw an obstacle and ``count`` places of its dimension."""
    return st.sampled_from([2, 3]).flatmap(lambda size: st.tuples(obstacles(size), places(size, count)))


def inside_of(obstacle, points):
    """Return whether points (D, S) are in an obstacle, by its definition."""
    if isinstance(obstacle, Ball):
        return np.linalg.norm(points - np.array(obstacle.centre_world)[:, None], axis=0) <= obstacle.radius_m
    if isinstance(obstacle, Capsule):
        core = (
            np.array(obstacle.start_world)[:, None]
            + np.linspace(0, 1, 400) * (np.array(obstacle.end_world) - obstacle.start_world)[:, None]
        )
        return np.linalg.norm(points[:, :, None] - core[:, None], axis=0).min(axis=1) <= obstacle.radius_m
    offset = points - np.array(obstacle.centre_world)[:, None]
    ahead, left = (
        np.array([math.cos(obstacle.yaw), math.sin(obstacle.yaw)]),
        np.array([-math.sin(obstacle.yaw), math.cos(obstacle.yaw)]),
    )
    local = np.stack([ahead @ offset[:2], left @ offset[:2], *offset[2:]])
    # a point on the edge of a turned block is off it by rounding
    return np.all(np.abs(local) <= np.array(obstacle.half_size_m)[:, None] + 1e-9, axis=0)


@given(drawn(1))
def test_the_ball_of_the_distance_is_free_and_its_nearest_point_is_on_the_surface(pair):
    """Together: the distance is that of the nearest point, and the direction leads there."""
    obstacle, (point,) = pair
    distance, outward = clearance(obstacle, point)
    assert (distance <= 1e-6) == bool(inside_of(obstacle, point[:, None])[0]) or abs(distance) < 1e-4
    if distance > 1e-4:
        rng = np.random.default_rng(0)
        rays = rng.standard_normal((len(point), 300))
        near = point[:, None] + 0.999 * (distance - 1e-4) * rays / np.linalg.norm(rays, axis=0)
        assert not inside_of(obstacle, near).any()
        assert np.linalg.norm(outward) == pytest.approx(1, abs=1e-4)
        beyond = point - (distance + 2e-3) * outward
        assert inside_of(obstacle, beyond[:, None]).all()


@given(drawn(2))
def test_a_segment_is_as_far_as_its_nearest_sample(pair):
    obstacle, (start, end) = pair
    sampled = clearance(obstacle, start[:, None] + SHARES * (end - start)[:, None])[0].min()
    found = segment_clearance(obstacle, start, end)
    grid = np.linalg.norm(end - start) / STEPS
    assert segment_clearance(obstacle, end, start) == pytest.approx(found, abs=1e-5) or max(found, sampled) < 1e-5
    if sampled > grid:
        assert sampled - grid - 1e-6 <= found <= sampled + 1e-6
    else:  # they may meet
        assert found <= sampled + 1e-5 or found <= 1e-5


@given(drawn(5))
def test_a_hull_is_never_nearer_than_its_bound(pair):
    """And the bound is that of the points, where one of them is the hull's nearest."""
    obstacle, points = pair
    points = np.stack(points, axis=1)
    found = hull_clearance(obstacle, points)
    weights = np.random.default_rng(1).dirichlet(np.full(5, 0.4), 500).T
    assert found <= max(clearance(obstacle, points @ weights)[0].min(), 0.0) + 1e-5
    assert found <= max(clearance(obstacle, points)[0].min(), 0.0) + 1e-5
    assert (
        hull_clearance(obstacle, points[:, :1]) == pytest.approx(clearance(obstacle, points[:, 0])[0], abs=1e-5)
        or found < 1e-4
    )


def test_the_bound_of_a_hull_is_close_for_what_robots_drive():
    """Slender hulls at all angles beside each kind: the bound is rarely more than 5 mm below the truth."""
    rng = np.random.default_rng(0)
    for obstacle in (Ball((0.0, 0.0), 0.2), Capsule((-0.3, 0.0), (0.3, 0.1), 0.1), Block((0.0, 0.0), (0.3, 0.2), 0.5)):
        start, along = rng.uniform(-1, 1, (2, 1, 2000)), rng.uniform(-0.3, 0.3, (2, 1, 2000))
        points = start + along * np.linspace(0, 1, 9)[:, None] + rng.uniform(-0.01, 0.01, (2, 9, 2000))
        truth = np.min(
            [segment_clearance(obstacle, points[:, i], points[:, j]) for i in range(9) for j in range(i)], axis=0
        )
        bound = hull_clearance(obstacle, points)
        free = truth > 0.02
        assert np.all(bound <= np.maximum(truth, 0) + 1e-7)
        assert np.quantile((truth - bound)[free], 0.95) < 0.005


def test_known_distances():
    box, origin = Block((1.0, 0.0, 0.0), (0.5, 0.25, 1.0), math.pi / 2), np.zeros(3)
    assert clearance(box, origin)[0] == pytest.approx(0.75)  # turned, its width lies along x
    assert clearance(box, origin)[1] == pytest.approx([-1, 0, 0])
    assert clearance(box, np.array([1.1, 0.0, 0.0]))[0] == pytest.approx(-0.15)
    assert clearance(box, np.array([1.1, 0.0, 0.0]))[1] == pytest.approx([1, 0, 0])
    assert segment_clearance(box, np.array([0.0, 2.0, 0.0]), np.array([2.0, 2.0, 0.0])) == pytest.approx(1.5)
    assert segment_clearance(box, origin, np.array([2.0, 0.0, 0.0])) <= 1e-9  # through it
    ball = Ball((1.0, 0.0), 0.25)
    assert segment_clearance(ball, np.zeros(2), np.zeros(2)) == pytest.approx(0.75)
    far_points = np.array([[0.0, 2.0], [0.1, 0.1]])  # both far away, the ball between them
    assert hull_clearance(ball, far_points) < 0.0 < clearance(ball, far_points)[0].min()


def _segments_apart(obstacle):
    """Return how far segments between points are; where they meet, rounding says how far below zero."""

    def apart(x):
        found = segment_clearance(obstacle, x[:, 1:, :], x[:, :-1, :])
        return array_namespace(x).maximum(found, 0 * found)

    return apart


@pytest.mark.parametrize(
    "obstacle", [Ball((0.3, 0.1), 0.2), Capsule((0.0, 0.0), (0.5, 0.2), 0.1), Block((0.2, 0.1), (0.3, 0.1), 0.3)]
)
def test_every_array_library_finds_the_same(obstacle):
    points = np.random.default_rng(0).uniform(-1, 1, (2, 7, 3))
    functions = (
        lambda x: clearance(obstacle, x)[0],
        lambda x: clearance(obstacle, x)[1],
        _segments_apart(obstacle),
        lambda x: hull_clearance(obstacle, x),
    )
    for function in functions:
        expected = function(points)
        assert np.asarray(function(array_api_strict.asarray(points))) == pytest.approx(expected)
        assert np.asarray(jax.jit(function)(jnp.asarray(points))) == pytest.approx(expected, abs=1e-5)


def resting(q):
    """Return a stopping point at q of a robot that follows its command at once."""
    one = np.eye(len(q))
    return StoppingPoint(q, np.zeros(()), one, one, np.zeros(len(q)), np.zeros(len(q)))


@given(drawn(2), st.floats(0, 1))
def test_a_row_holds_all_through_the_hold(pair, moment):
    """Any velocity that the row allows keeps the margin, and the share of the gap, at every moment of the hold."""
    obstacle, (q, wish) = pair
    parameters = projection_parameters(load_robot("gritsbot_x" if len(q) == 2 else "crazyflie_2x"))
    gap = clearance(obstacle, q)[0] - parameters.wall_m
    assume(gap > 0)
    arena = Arena((-9.0,) * len(q), (9.0,) * len(q), (obstacle,))
    velocity, _ = project_onto_halfspaces(3 * wish, *obstacle_rows(parameters, arena, resting(q)))
    later = clearance(obstacle, q + moment * parameters.hold_s * velocity)[0] - parameters.wall_m
    assert later >= (1 - parameters.gap_share * moment) * gap - 1e-5


@pytest.mark.parametrize("size", [2, 3])
def test_many_obstacles_at_once_are_as_one_by_one(size):
    """Distances, directions, segments and hulls of a map, in the order of kinds, with an axis for the obstacles."""
    rng = np.random.default_rng(size)
    places, some = rng.uniform(-1, 1, (6, size)), rng.uniform(0.1, 0.3, (6, size))
    found = (
        *(Ball(tuple(at), 0.2) for at in places[:2]),
        Capsule(tuple(places[2]), tuple(places[3]), 0.1),
        *(Block(tuple(at), tuple(half), 0.4) for at, half in zip(places[4:], some[4:], strict=True)),
    )
    groups, points = groups_of(found[::-1]), rng.uniform(-1, 1, (size, 7, 3))
    ordered = [*found[:2][::-1], found[2], *found[3:][::-1]]
    ends = (points[:, 1:], points[:, :-1])
    distance, away = clearances(groups, points)
    assert distance == pytest.approx(np.stack([clearance(one, points)[0] for one in ordered]))
    assert away == pytest.approx(np.stack([clearance(one, points)[1] for one in ordered], axis=1))
    one_by_one = np.stack([segment_clearance(one, *ends) for one in ordered])
    assert segment_clearances(groups, *ends) == pytest.approx(one_by_one)
    assert hull_clearances(groups, points) == pytest.approx(np.stack([hull_clearance(one, points) for one in ordered]))


@given(st.integers(0, 2**31))
def test_the_nearest_rows_and_the_speed_for_the_others_keep_every_row(seed):
    """And a bound that is not a number leaves no speed that is one, so that the shield brakes."""
    rng = np.random.default_rng(seed)
    count = 3 * OBSTACLE_ROWS
    normals, bounds = rng.standard_normal((2, count)), rng.uniform(0, 0.3, count)
    normals /= np.linalg.norm(normals, axis=0)
    rows, speed = nearest_rows((normals, bounds))
    assert rows[1].shape == (OBSTACLE_ROWS,)
    assert speed >= rows[1].max()
    velocity, found = project_onto_halfspaces(rng.standard_normal(2), *rows)
    velocity = velocity * min(1.0, speed / np.linalg.norm(velocity)) if velocity.any() else velocity
    assert found
    assert (velocity @ normals <= bounds + 1e-8).all()
    assert np.isnan(nearest_rows((normals, np.where(np.arange(count) == seed % count, np.nan, bounds)))[1])
    assert nearest_rows((normals, bounds - 1))[1] == 0
    assert nearest_rows((normals[:, :OBSTACLE_ROWS], bounds[:OBSTACLE_ROWS]))[1] is None


def test_a_robot_among_many_obstacles_is_as_free_as_among_the_near_ones(make_scene):
    """Far obstacles change no command; and one that is not finite brakes, wherever it is in the list."""
    scene = make_scene(peers=1, count=1, arena=False)
    model, parameters, table = scene.model, scene.parameters, scene.but(table=scene.table).table
    table.control_point_world[:] = 9.0
    stop = model.stopping_point(MotionState(np.zeros((2, 1)), np.zeros(1), np.zeros((2, 1))))
    near = tuple(Ball((0.3 * math.cos(k), 0.3 * math.sin(k)), 0.01) for k in range(0, 6, 2))
    far = tuple(Ball((x, 3.0), 0.1) for x in np.linspace(-3, 3, 20))

    def command(*obstacles):
        arena = Arena((-9.0,) * 2, (9.0,) * 2, obstacles)
        return project_velocity(model, parameters, arena, stop, table, np.full((2, 1), 0.2))

    assert command(*far, *near).control_velocity_world == pytest.approx(command(*near).control_velocity_world)
    assert (command(*far, *near).control_velocity_world != 0).any()
    assert not command(*far, Ball((math.nan, 3.0), 0.1), *near).command.any()


def test_a_robot_that_is_too_near_retreats(make_scene):
    scene = make_scene(peers=1, count=1, arena=False)
    spec, model, parameters = scene.model.spec, scene.model, scene.parameters
    state = MotionState(np.zeros((2, 1)), np.zeros(1), np.zeros((2, 1)))
    stop = model.stopping_point(state)
    ball = Ball((0.2 + spec.look_ahead_m + parameters.wall_m - 0.02, 0.0), 0.2)
    table = scene.but(table=scene.table).table
    table.control_point_world[:] = 9.0
    result = project_velocity(model, parameters, Arena((-9.0,) * 2, (9.0,) * 2, (ball,)), stop, table, np.zeros((2, 1)))
    assert result.control_velocity_world[0, 0] < -0.01


@pytest.mark.parametrize(("robot", "wide"), [("gritsbot_x", 0.05), ("crazyflie_2x", 0.05)])
def test_a_tube_through_an_obstacle_is_refused(robot, wide):
    """Also where every point of the tube is clear: a thin obstacle between the points."""
    spec = load_robot(robot)
    model, size = motion_model(spec), spec.dimension
    velocity = np.zeros(size)
    velocity[0] = spec.speed_limit_m_s
    state = MotionState(np.zeros(size), np.zeros(()), velocity)
    command = actuator_command(model, model.stopping_point(state), velocity)
    tube = stop_tube(model, np.zeros(size), state, effective_command(model, command), 5)[:, :, None]
    middle = np.zeros(size)
    middle[0] = tube[0].max() / 2
    beside = (middle[0], 0.5, *middle[2:])
    for make in (
        lambda at: Ball(tuple(at), 1e-3),
        lambda at: Block(tuple(at), (1e-3,) * size, 0.2),
        lambda at: Capsule(tuple(at), tuple(at), 1e-3),
    ):
        low, high = (-9.0,) * size, (9.0,) * size
        assert not within_walls(tube, Arena(low, high, (make(middle),)), 1e-3).any()
        assert not within_walls(tube, Arena(low, high, (make(middle),)), wide).any()
        assert within_walls(tube, Arena(low, high, (make(beside),)), wide).all()
        assert within_walls(tube, Arena(low, high), wide).all()
    assert not within_walls(tube * np.nan, Arena(low, high, (Ball((5.0,) * size, 0.1),)), wide).any()


@pytest.mark.parametrize(
    ("obstacle", "what"),
    [
        (Ball((0.0, 0.0, 0.0), 0.1), r"here\.centre_world: found \(0.0, 0.0, 0.0\), expected 2 numbers"),
        (Ball((0.0, 0.0), 0.0), r"here\.radius_m: found 0.0, expected above 0"),
        (Capsule((0.0, 0.0), (0.0, math.nan), 0.1), r"here\.end_world: found .*, expected finite numbers"),
        (Block((0.0, 0.0), (0.1, -0.1), 0.0), r"here\.half_size_m: found \(0.1, -0.1\), expected above 0"),
        (Block((0.0, 0.0), (0.1, 0.1), math.inf), r"here\.yaw: found inf, expected finite numbers"),
    ],
)
def test_what_is_no_obstacle_is_refused(obstacle, what):
    with pytest.raises(TestudoError, match=what):
        check_obstacle(obstacle, 2, "here")


def test_a_list_of_obstacles_is_read_and_refused_by_its_entry():
    text = '[{"kind": "ball", "centre_world": [0.5, 0], "radius_m": 0.2}]'
    assert read_obstacles(text, 2, "--obstacles") == (Ball((0.5, 0.0), 0.2),)
    assert read_obstacles("", 2, "--obstacles") == ()
    for bad, what in (
        ("[", "--obstacles: not JSON"),
        ("{}", "--obstacles: found {}, expected a list"),
        (text.replace("ball", "cone"), r"--obstacles\[0\].kind: found 'cone', expected one of ball, ca"),
        (text.replace("0.2", "0"), r"--obstacles\[0\].radius_m: found 0.0, expected above 0"),
    ):
        with pytest.raises(TestudoError, match=what):
            read_obstacles(bad, 2, "--obstacles")
    with pytest.raises(TestudoError, match=r"--obstacles\[0\].centre_world: found \(0.5, 0.0\), expected 3 numbers"):
        read_obstacles(text, 3, "--obstacles")


def driven_at(name, obstacle, seed, *, known=True, gate_only=False):
    """Return the least clearance [m] of a robot that is driven at an obstacle at full speed."""
    spec, rng = load_robot(name), np.random.default_rng(seed)
    size = spec.dimension
    arena = Arena((-9.0,) * size, (9.0,) * size, (obstacle,) if known else ())
    drive = Drive(spec, drawn_motion(spec, rng, ends=True), rng, gate_only=gate_only, arena=arena)
    middle = np.array(obstacle.centre_world)
    least = np.inf
    for _ in range(int((1.5 + 0.8 / spec.speed_limit_m_s) / spec.control_period_s)):
        drive.see(STEP_S * rng.integers(0, int(spec.pose_max_age_s / STEP_S) - 1))
        wanted = middle - drive.place + 0.02 * rng.standard_normal(size)
        drive.tick(spec.control_point_speed_m_s * wanted / np.linalg.norm(wanted))
        places, _ = drive.move(STEP_S * round(spec.control_period_s / STEP_S))
        least = min(least, clearance(obstacle, np.array(places).T)[0].min())
    return least


@pytest.mark.parametrize("name", ["gritsbot_x", "robomaster_s1", "crazyflie_2x"])
@pytest.mark.parametrize("gate_only", [False, True])
def test_a_robot_driven_at_an_obstacle_does_not_touch_it(name, gate_only):
    """With motion at the ends of the intervals, late and noisy poses; and if it does not know of it, it does."""
    spec = load_robot(name)
    size = spec.dimension
    away = spec.body_radius_m + 0.5 + 0.6 * spec.speed_limit_m_s
    ball, box = ((x * away, y * away, 0.1)[:size] for x, y in ((0.98, 0.2), (-0.7, 0.7)))
    for seed, obstacle in enumerate((Ball(ball, 0.3), Block(box, (0.3,) * size, 0.4))):
        least = driven_at(name, obstacle, seed, gate_only=gate_only)
        assert least > spec.body_radius_m
        assert least < 3 * spec.body_radius_m + 0.2  # it went there
    if not gate_only:
        assert driven_at(name, obstacle, seed, known=False) < spec.body_radius_m


def test_a_control_point_at_the_margin_of_a_wall_comes_no_nearer(make_scene):
    scene = make_scene(peers=0, count=1)
    stop = scene.model.stopping_point(scene.state)
    low, high = (np.array(corner)[:, None] for corner in (scene.arena.low_world, scene.arena.high_world))
    for place, rows in ((high - scene.parameters.wall_m, slice(0, 2)), (low + scene.parameters.wall_m, slice(2, 4))):
        _, bounds = wall_rows(scene.parameters, scene.arena, replace(stop, position_world=place))
        assert bounds[rows] == pytest.approx(np.zeros((2, 1)), abs=1e-12)
