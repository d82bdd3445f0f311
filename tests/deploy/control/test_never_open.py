"""No input opens the shield: whatever entry is spoilt, what leaves `Shield.step` is finite and within the limits.

- An entry of the own state, of the nominal command or of the measured place that is not finite: the brake, BRAKED.
- An entry of a peer's slot that is not finite: zero or a finite command; a place or an age, the brake.
- A slot that was never heard counts for nothing in layer 1.
- Numbers that are finite and huge: a finite command within the limits.
"""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples

from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.reservations import PeerReservations, ShieldInputs, reserved_at_rest
from testudo_deploy.shield.shield import Shield
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_deploy.shield.velocity_projection import Arena, PeerTable, ShieldStatus
from testudo_hardware.motion import MotionState, motion_model
from testudo_hardware.spec import load_robot

PEERS = 3
ROBOTS = ("gritsbot_x", "crazyflie_2x")
BAD = (np.nan, np.inf, -np.inf)
HUGE = (1e30, -1e30, 1e12)


def scene(name):
    """Return a shield and the arrays that a tick gives it, by name."""
    spec = load_robot(name)
    size = spec.dimension
    parameters = projection_parameters(spec)
    half = 8 * parameters.separation_m
    shield = Shield(motion_model(spec), parameters, stop_tube_parameters(spec), Arena((-half,) * size, (half,) * size))
    places = 3 * parameters.separation_m * np.eye(size, PEERS) + 2 * parameters.separation_m * (np.arange(PEERS) == 2)
    lanes = np.stack([places, places])
    return shield, {
        "nominal": np.full(size, 0.1),
        "measured": np.zeros(size),
        "position": np.zeros(size),
        "yaw": np.array(0.3),
        "velocity": np.full(size, 0.02),
        "point": places,
        "announced_velocity": np.zeros((size, PEERS)),
        "age": np.full(PEERS, 0.05),
        "valid": np.ones(PEERS, bool),
        "peer_owned": lanes,
        "peer_announced": lanes.copy(),
        "acknowledged": np.full(PEERS, 3.0),
        "own_lane": reserved_at_rest(np.zeros(size)).owned_world,
    }


def step(shield, values):
    state = MotionState(values["position"], values["yaw"], values["velocity"])
    table = PeerTable(
        values["point"], values["announced_velocity"], values["age"], values["valid"], np.zeros(PEERS, bool)
    )
    peers = PeerReservations(
        values["peer_owned"],
        values["peer_announced"],
        values["acknowledged"],
        np.zeros(PEERS, bool),
        np.arange(PEERS) > 0,
        np.ones(PEERS, bool),
    )
    own = dataclasses.replace(reserved_at_rest(np.zeros(len(values["nominal"]))), owned_world=values["own_lane"])
    with np.errstate(all="ignore"):
        sight = ShieldInputs(values["measured"], state, shield.model.stopping_point(state), table, peers)
        return shield.step(sight, own, values["nominal"], np.array(5.0))[0]


def spoilt(values, where, index, bad):
    changed = np.array(values[where], float)
    changed.flat[index % changed.size] = bad
    return {**values, where: changed}


def within_limits(shield, result):
    command = result.command
    return (
        np.isfinite(command).all()
        and np.isfinite(result.control_velocity_world).all()
        and np.isfinite(result.change_m_s)
        and np.allclose(shield.model.limit_command(command), command, atol=1e-3)
    )


def is_brake(result):
    return (
        (result.command == 0).all()
        and (result.control_velocity_world == 0).all()
        and int(result.status) == ShieldStatus.BRAKED
    )


@pytest.mark.parametrize("name", ROBOTS)
def test_without_a_fault_the_robot_moves(name):
    shield, values = scene(name)
    result = step(shield, values)
    assert within_limits(shield, result)
    assert int(result.status) != ShieldStatus.BRAKED


@pytest.mark.parametrize("where", ["nominal", "measured", "position", "yaw", "velocity"])
@pytest.mark.parametrize("name", ROBOTS)
@settings(max_examples=examples(20))
@given(index=st.integers(0, 5), bad=st.sampled_from(BAD))
def test_an_own_state_or_wish_that_is_not_finite_is_the_brake(name, where, index, bad):
    shield, values = scene(name)
    result = step(shield, spoilt(values, where, index, bad))
    assert within_limits(shield, result)
    assert is_brake(result)


@pytest.mark.parametrize("where", ["point", "age"])
@pytest.mark.parametrize("name", ROBOTS)
@settings(max_examples=examples(25))
@given(index=st.integers(0, 8), bad=st.sampled_from(BAD))
def test_a_peer_whose_place_or_age_is_not_finite_stops_the_robot(name, where, index, bad):
    shield, values = scene(name)
    result = step(shield, spoilt(values, where, index, bad))
    assert within_limits(shield, result)
    if bad != -np.inf or where == "point":
        assert (result.command == 0).all()


ANY = ("nominal", "measured", "position", "yaw", "velocity", "point", "announced_velocity", "age", "peer_owned",
       "peer_announced", "acknowledged", "own_lane")  # fmt: skip


@pytest.mark.parametrize("name", ROBOTS)
@settings(max_examples=examples(150))
@given(data=st.data())
def test_no_entries_however_bad_give_a_command_beyond_the_limits(name, data):
    shield, values = scene(name)
    for _ in range(data.draw(st.integers(1, 4))):
        where = data.draw(st.sampled_from(ANY))
        values = spoilt(values, where, data.draw(st.integers(0, 20)), data.draw(st.sampled_from(BAD + HUGE)))
    result = step(shield, values)
    assert within_limits(shield, result)
    if int(result.status) == ShieldStatus.BRAKED:
        assert (result.command == 0).all()


@pytest.mark.parametrize("name", ROBOTS)
@settings(max_examples=examples(40))
@given(slot=st.integers(0, PEERS - 1), lane=st.sampled_from(["peer_owned", "peer_announced"]),
       index=st.integers(0, 1), bad=st.sampled_from(BAD))  # fmt: skip
def test_a_peers_lane_that_is_not_finite_grants_nothing(name, slot, lane, index, bad):
    """What is not a number is a conflict: no announcement is made or taken beside it."""
    shield, values = scene(name)
    lanes = np.array(values[lane])
    lanes[index, 0, slot] = bad
    assert within_limits(shield, step(shield, {**values, lane: lanes}))
