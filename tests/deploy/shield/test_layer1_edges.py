"""Layer 1 at its edges: a gap of zero, and no row at all."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples

from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.velocity_projection import (
    PeerTable,
    ShieldStatus,
    pair_rows,
    project_velocity,
    reachable_peer_positions,
)
from testudo_hardware.motion import MotionState, motion_model
from testudo_hardware.spec import load_robot, robot_files

ROBOTS = sorted(robot_files())


@pytest.mark.parametrize("name", ROBOTS)
def test_a_gap_of_rounding_size_below_zero_changes_nothing(name):
    """Regression: where two bases stand nose to nose the gap is zero; a rounding below, and the way beside was shut.

    With a fresh message a peer is known well enough to be passed at speed, on both sides of that place.
    """
    spec = load_robot(name)
    model, parameters, size = motion_model(spec), projection_parameters(spec), spec.dimension
    stop = model.stopping_point(MotionState(np.zeros(size), np.array(0.0), np.zeros(size)))
    age = np.array([2 * spec.control_period_s])  # for one of which the peer does what it announced: it stands
    away = parameters.separation_m + parameters.direction_factor * parameters.peer_speed_m_s * spec.control_period_s
    across = np.zeros(size)
    across[1] = 0.5 * spec.control_point_speed_m_s
    found = []
    for beyond in (-1e-6, -1e-9, 1e-9, 1e-6):
        place = (stop.position_world + (away + beyond) * np.eye(size)[0])[:, None]
        table = PeerTable(place, 0 * place, age, np.array([True]))
        assert np.sign(pair_rows(parameters, stop, table)[0][1][0]) == np.sign(beyond)
        found.append(project_velocity(model, parameters, None, stop, table, across).control_velocity_world)
    assert np.array(found) == pytest.approx(np.tile(found[-1], (4, 1)), abs=1e-4)
    assert np.linalg.norm(found[0]) > 0.2 * np.linalg.norm(across)


@pytest.mark.parametrize("name", ROBOTS)
@pytest.mark.parametrize("bad", [False, True])
def test_a_robot_alone_in_the_open_drives_as_it_likes(name, bad):
    """Regression: without peers, walls and limits there is no row at all, and the projection found no index."""
    spec = load_robot(name)
    model, parameters, size = motion_model(spec), projection_parameters(spec), spec.dimension
    stop = model.stopping_point(MotionState(np.zeros(size), np.array(0.0), np.zeros(size)))
    place = np.zeros((size, 0))
    table = PeerTable(place, place, np.zeros(0), np.zeros(0, bool))
    nominal = np.zeros(size)
    nominal[0] = np.nan if bad else 0.05
    result = project_velocity(model, parameters, None, stop, table, nominal)
    assert result.status == (ShieldStatus.BRAKED if bad else ShieldStatus.PASSED)
    assert result.control_velocity_world == pytest.approx(np.zeros(size) if bad else nominal)


@pytest.mark.parametrize("name", ROBOTS)
def test_a_control_loop_without_peers_and_arena_drives(name, make_loop):
    """Regression: a robot alone braked for ever, with an internal error."""
    rig = make_loop(name, peers=())
    rig.loop._shield = dataclasses.replace(rig.loop._shield, arena=None)
    rig.tick(hears=False)  # one whose tube is longer than its segment at rest asks for another one first
    record = rig.tick(hears=False)
    assert (record.status, record.reason) == ("passed", "")
    assert record.shielded_world == pytest.approx([0.05] * rig.spec.dimension)


@settings(max_examples=examples(200))
@given(seed=st.integers(0, 10**6), true_share=st.floats(0, 1))
def test_a_peer_is_inside_the_ball_in_which_it_can_be(seed, true_share):
    """It does what it announced for its tick, then anything; the age that is known is no less than the true one."""
    rng = np.random.default_rng(seed)
    spec = load_robot("robomaster_s1")
    parameters = projection_parameters(spec)
    top, period = parameters.peer_speed_m_s, parameters.peer_period_s
    age_s = rng.uniform(0, 8) * period
    way = np.zeros(2)
    announced = velocity = top * rng.uniform() * direction(rng)
    left_s, true_s = true_share * age_s, true_share * age_s
    next_s = min(period, true_s)
    while left_s > 0:
        way = way + velocity * min(next_s, left_s)
        left_s, next_s, velocity = left_s - next_s, rng.uniform(0.1, 1) * period, top * direction(rng)
    table = PeerTable(np.zeros((2, 1)), announced[:, None], np.array([age_s]), np.array([True]))
    middle, radius = reachable_peer_positions(parameters, table)
    assert np.linalg.norm(way - middle[:, 0]) <= radius[0] + 1e-9


def direction(rng):
    angle = rng.uniform(0, 2 * np.pi)
    return np.array([np.cos(angle), np.sin(angle)])


def test_an_untrusted_body_can_be_anywhere_at_once():
    parameters = projection_parameters(load_robot("robomaster_s1"))
    table = PeerTable(np.zeros((2, 1)), np.ones((2, 1)), np.array([0.02]), np.array([True]), np.array([True]))
    middle, radius = reachable_peer_positions(parameters, table)
    assert (middle == 0).all()
    assert radius == pytest.approx(parameters.peer_speed_m_s * (0.02 + parameters.hold_s))
    # what it may seem to reserve restricts it in no way; a trusted one, the control, it does
    reserving = dataclasses.replace(table, farthest_m=np.array([0.01]))
    assert reachable_peer_positions(parameters, reserving)[1] == radius
    trusted = dataclasses.replace(reserving, untrusted=None, age_s=np.array([0.5]))
    assert reachable_peer_positions(parameters, trusted)[1] < 0.1
