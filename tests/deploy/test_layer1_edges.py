"""Layer 1 at its edges: a gap of zero, and no row at all."""

import dataclasses

import numpy as np
import pytest

from testudo_deploy.neighbours import NeighbourTable
from testudo_deploy.shield.layer1 import ShieldStatus, pair_rows, shield_layer1
from testudo_deploy.shield.margins import shield_parameters
from testudo_hardware.motion import MotionState, motion_model
from testudo_hardware.spec import load_robot, robot_files

ROBOTS = sorted(robot_files())


@pytest.mark.parametrize("name", ROBOTS)
def test_a_gap_of_rounding_size_below_zero_changes_nothing(name):
    """Regression: where two bases stand nose to nose the gap is zero; a rounding below, and the way beside was shut.

    With a fresh message a peer is known well enough to be passed at speed, on both sides of that place.
    """
    spec = load_robot(name)
    model, parameters, size = motion_model(spec), shield_parameters(spec), spec.dimension
    stop = model.stopping_point(MotionState(np.zeros(size), np.array(0.0), np.zeros(size)))
    age = np.array([2 * spec.control_period_s])  # for one of which the peer does what it announced: it stands
    away = parameters.separation_m + parameters.direction_factor * parameters.peer_speed_m_s * spec.control_period_s
    across = np.zeros(size)
    across[1] = 0.5 * spec.control_point_speed_m_s
    found = []
    for beyond in (-1e-6, -1e-9, 1e-9, 1e-6):
        place = (stop.position_world + (away + beyond) * np.eye(size)[0])[:, None]
        table = NeighbourTable(place, 0 * place, age, np.array([True]))
        assert np.sign(pair_rows(parameters, stop, table)[0][1][0]) == np.sign(beyond)
        found.append(shield_layer1(model, parameters, None, stop, table, across).control_velocity_world)
    assert np.array(found) == pytest.approx(np.tile(found[-1], (4, 1)), abs=1e-4)
    assert np.linalg.norm(found[0]) > 0.2 * np.linalg.norm(across)


@pytest.mark.parametrize("name", ROBOTS)
@pytest.mark.parametrize("bad", [False, True])
def test_a_robot_alone_in_the_open_drives_as_it_likes(name, bad):
    """Regression: without peers, walls and limits there is no row at all, and the projection found no index."""
    spec = load_robot(name)
    model, parameters, size = motion_model(spec), shield_parameters(spec), spec.dimension
    stop = model.stopping_point(MotionState(np.zeros(size), np.array(0.0), np.zeros(size)))
    place = np.zeros((size, 0))
    table = NeighbourTable(place, place, np.zeros(0), np.zeros(0, bool))
    nominal = np.zeros(size)
    nominal[0] = np.nan if bad else 0.05
    result = shield_layer1(model, parameters, None, stop, table, nominal)
    assert result.status == (ShieldStatus.BRAKED if bad else ShieldStatus.PASSED)
    assert result.control_velocity_world == pytest.approx(np.zeros(size) if bad else nominal)


@pytest.mark.parametrize("name", ROBOTS)
def test_a_control_loop_without_peers_and_arena_drives(name, make_loop):
    """Regression: a robot alone braked for ever, with an internal error."""
    rig = make_loop(name, peers=())
    rig.loop._shield = dataclasses.replace(rig.loop._shield, arena=None)
    record = rig.tick(hears=False)
    assert (record.status, record.reason) == ("passed", "")
    assert record.shielded_world == pytest.approx([0.05] * rig.spec.dimension)
