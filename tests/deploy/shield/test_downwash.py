"""Drones keep upright ellipsoids free: heights count 1/c in rows, tubes, lanes and starts, and nowhere twice.

The effect of a command on the distance with scaled heights is computed in the world, from positions and velocities.
Without scaling, as negative control, the same shield lets a drone into the downwash of another.
"""

from dataclasses import replace

import numpy as np
import pytest
import quadprog

from testudo_deploy.shield.geometry import z_scaled
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.reservations import PeerReservations, conflicts
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_deploy.shield.velocity_projection import PeerTable, pair_rows, project_velocity
from testudo_hardware.motion import MotionState, motion_model
from testudo_hardware.spec import load_robot


def braking(spec):
    """Return the drone as one that brakes by itself when its radio is silent."""
    said = replace(spec.silence["silence.onboard_brake"], value=1.0, low=1.0, high=1.0)
    return replace(spec, silence={**spec.silence, "silence.onboard_brake": said})


SPEC = braking(load_robot("crazyflie_2x"))
MODEL, MARGINS, SPACE = motion_model(SPEC), projection_parameters(SPEC), stop_tube_parameters(SPEC)
C = SPEC.height_ratio


def table(points, velocities=None, age_s=0.0):
    points = np.asarray(points, float).T
    count = points.shape[1]
    velocities = np.zeros_like(points) if velocities is None else np.asarray(velocities, float).T
    return PeerTable(points, velocities, np.full(count, age_s), np.ones(count, bool))


def stopped(place):
    return MODEL.stopping_point(MotionState(np.asarray(place, float), np.array(0.0), np.zeros(3)))


def test_the_ellipsoid_is_that_of_the_file_and_robots_on_the_ground_keep_balls():
    assert pytest.approx(2.5) == C == MARGINS.height_ratio == SPACE.height_ratio
    assert SPEC.keep_radius_m == 0.12
    assert MARGINS.terms[0].value_m == pytest.approx(2 * 0.12)
    for name in ("gritsbot_x", "robomaster_s1"):
        ground = load_robot(name)
        assert ground.height_ratio == projection_parameters(ground).height_ratio == 1.0
        assert ground.keep_radius_m == ground.body_radius_m


def test_z_scaling_changes_the_height_and_not_the_plane():
    assert z_scaled(np.array([1.0, 2.0, 3.0]), 2.0).tolist() == [1.0, 2.0, 1.5]
    assert z_scaled(np.ones((2, 3, 4)), 4.0, 1)[:, 2].tolist() == [[0.25] * 4] * 2
    flat = np.ones((2, 5))
    assert z_scaled(flat, 4.0) is flat


def test_no_command_closes_a_scaled_gap_by_more_than_its_share():
    """From random places and wishes: d/dt of the distance with scaled heights, by differences in the world."""
    rng = np.random.default_rng(0)
    rate = MARGINS.gap_share / (2 * MARGINS.hold_s)
    bound_somewhere = 0
    for _ in range(300):
        way = rng.standard_normal(3)
        own = np.zeros(3)
        peer = way / np.linalg.norm(z_scaled(way, C)) * MARGINS.separation_m * rng.uniform(1.0, 1.8)
        wish = rng.uniform(-1, 1, 3)
        result = project_velocity(MODEL, MARGINS, None, stopped(own), table([peer]), wish)
        after = own + 1e-6 * result.control_velocity_world
        before_m, after_m = (np.linalg.norm(z_scaled(peer - place, C)) for place in (own, after))
        assert (before_m - after_m) / 1e-6 <= rate * (before_m - MARGINS.separation_m) + 1e-4
        bound_somewhere += result.change_m_s > 1e-3
    assert bound_somewhere > 100


def test_the_command_is_the_nearest_one_in_the_world_not_in_scaled_heights():
    """Rows are written for the velocity itself: quadprog with the rows S n gives the same."""
    rng = np.random.default_rng(1)
    for _ in range(100):
        ways = rng.standard_normal((2, 3))
        peers = ways / np.linalg.norm(z_scaled(ways.T, C), axis=0)[:, None] * MARGINS.separation_m * 1.2
        wish = rng.standard_normal(3)
        wish *= 0.25 / np.linalg.norm(wish)  # from rest no more is in the ball of accelerations
        found = project_velocity(MODEL, MARGINS, None, stopped(np.zeros(3)), table(peers), wish).control_velocity_world
        normals = z_scaled((z_scaled(peers.T, C) / np.linalg.norm(z_scaled(peers.T, C), axis=0)), C)
        most = MARGINS.gap_share / (2 * MARGINS.hold_s) * 0.2 * MARGINS.separation_m
        expected = quadprog.solve_qp(np.eye(3), wish, -normals, np.full(2, -most))[0]
        assert found == pytest.approx(expected, abs=1e-6)


def test_below_another_drone_there_is_no_way_where_beside_it_there_is():
    away = 1.3 * MARGINS.separation_m
    down, along = np.array([0.0, 0.0, -1.0]), np.array([1.0, 0.0, 0.0])
    beside = project_velocity(MODEL, MARGINS, None, stopped([0, 0, 0]), table([away * along]), along)
    above = project_velocity(MODEL, MARGINS, None, stopped([0, 0, 0]), table([away * down]), down)
    assert beside.control_velocity_world[0] > 0.2
    assert above.control_velocity_world[2] > 0.05, "it is in the ellipsoid already: it retreats"
    free = project_velocity(MODEL, MARGINS, None, stopped([0, 0, 0]), table([C * away * down]), down)
    assert free.control_velocity_world[2] < -0.2
    level = replace(MARGINS, height_ratio=1.0)
    control = project_velocity(MODEL, level, None, stopped([0, 0, 0]), table([away * down]), down)
    assert control.control_velocity_world[2] < -0.2, "negative control: heights that count in full let it in"


def test_a_retreat_is_no_faster_up_and_down_than_along():
    """The row of a peer below is short; its bound must not ask for more speed than there is."""
    for way in ([1.0, 0, 0], [0, 0, 1.0], [0.3, 0, 0.9]):
        close = np.array(way) / np.linalg.norm(z_scaled(np.array(way), C)) * 0.5 * MARGINS.separation_m
        result = project_velocity(MODEL, MARGINS, None, stopped([0, 0, 0]), table([close]), np.zeros(3))
        speed = np.linalg.norm(result.control_velocity_world)
        assert 0.05 < speed <= 0.3 * SPEC.speed_limit_m_s + 1e-6
        assert result.control_velocity_world @ close < 0


def test_rows_are_finite_right_above_and_at_the_very_place():
    for place in ([0, 0, 1.0], [0, 0, 0], [1e-9, 0, 0]):
        (rows, bounds), _, doubt = pair_rows(MARGINS, stopped([0, 0, 0]), table([place]))
        assert np.isfinite(rows).all()
        assert np.isfinite(bounds).all()
        assert np.isfinite(doubt.share).all()


def lane(start, end):
    return np.array([start, end], float)[:, :, None]


@pytest.mark.parametrize(("height_m", "is_clear"), [(1.01 * C, True), (0.99 * C, False), (1.01, False)])
def test_lanes_are_apart_by_their_scaled_distance(height_m, is_clear):
    ours = lane([-1, 0, 0], [1, 0, 0])
    high = lane([0, -1, height_m * SPACE.clearance_m], [0, 1, height_m * SPACE.clearance_m])
    no = np.zeros(1, bool)
    peers = PeerReservations(high, high, np.zeros(1), no, ~no, ~no)
    hits = conflicts(ours, peers, SPACE.clearance_m, SPACE.height_ratio)
    assert [bool(hit[0, 0]) for hit in hits] == [not is_clear] * 2
