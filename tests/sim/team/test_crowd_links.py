"""Robots of a crowd hear their nearest peers: the same shield as with a table of everybody, and links that follow."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from testudo_deploy.shield.arena import Arena
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.velocity_projection import PeerTable
from testudo_hardware.motion import motion_model
from testudo_hardware.spec import load_robot
from testudo_sim.physics.kinematic_tier import KinematicPhysics
from testudo_sim.physics.neighbour_cells import CROWD, PEER_SLOTS
from testudo_sim.physics.world_parameters import Channels, draw_parameters
from testudo_sim.team import crowd_links
from testudo_sim.team.crowd_links import SLACK_M, find_links, heard_in_crowd, heard_range_m, of_peers
from testudo_sim.team.team_tick import SimulatedTeam, start, tick

WORLDS, TICKS = 2, 30
SPEC = load_robot("gritsbot_x")
SHIELD = projection_parameters(SPEC)


def team_of(size):
    model, arena = motion_model(SPEC), Arena((-3.0, -3.0), (3.0, 3.0))
    channels = Channels(message_loss=(0.0, 0.0))
    return SimulatedTeam(model, SHIELD, arena, KinematicPhysics(model, arena), size, channels)


def grid(size, spacing_m=0.45):
    side = int(np.ceil(np.sqrt(size)))
    places = np.stack(np.meshgrid(np.arange(side), np.arange(side)), axis=0).reshape(2, -1)[:, :size] * spacing_m
    places = places - places.mean(axis=1, keepdims=True)
    return np.repeat(places[..., None], WORLDS, axis=2).astype(np.float32)


def driven(size):
    """Return the places (T, 2, N, E) of robots that all drive to the middle."""
    team, place = team_of(size), grid(size)
    yaw = np.random.default_rng(0).uniform(-3, 3, (size, WORLDS)).astype(np.float32)

    def step(state, key):
        here = team.physics.scene(state.physics).robots.position_world
        state, result = tick(team, state, -0.5 * here, key)
        return state, (here, result.status)

    @jax.jit
    def run(place, yaw):
        parameters = draw_parameters(jax.random.split(jax.random.key(0), WORLDS), SPEC, team.channels)
        begin = start(team, place, yaw, parameters)
        return jax.lax.scan(step, begin, jax.random.split(jax.random.key(1), TICKS))

    end, (places, status) = run(place, yaw)
    return end, places, status


def test_a_crowd_drives_as_with_a_table_of_everybody(monkeypatch):
    """Of as many robots as a table of a crowd holds, in a square of 2.25 m: no row of a farther peer binds."""
    cells, places, status = driven(CROWD)
    monkeypatch.setattr(crowd_links, "CROWD", CROWD + 1)
    pairs, expected, _ = driven(CROWD)
    assert cells.links is not None
    assert pairs.links is None
    assert (np.asarray(status) == 1).any()  # the shield is at work
    np.testing.assert_allclose(places, expected, atol=2e-5)


def test_a_robot_of_a_large_crowd_has_slots_for_its_nearest_peers():
    size = 100
    state, _, _ = driven(size)
    assert state.table.age_s.shape == (PEER_SLOTS, size, WORLDS)
    now = np.asarray(state.announced)[0, :2]
    moved = np.linalg.norm(np.asarray(state.links.found_at_world) - now, axis=0)
    assert moved.max() <= SLACK_M
    apart = np.linalg.norm(now[:, :, None] - now[:, None], axis=0)
    index, valid = np.asarray(state.links.peers.index), np.asarray(state.links.peers.valid)
    for world in range(WORLDS):
        for robot in range(size):
            known = set(index[:, robot, world][valid[:, robot, world]].tolist())
            farthest = np.sort(apart[robot, :, world])[PEER_SLOTS]
            # who is nearer by more than both have moved
            near = np.flatnonzero(apart[robot, :, world] < min(farthest, heard_range_m(SHIELD)) - 4 * SLACK_M)
            assert set(near.tolist()) - {robot} <= known
    assert np.asarray(state.links.peers.left_out).max() > 0  # told, not silent


def line(offset_m):
    """Robots on a line, 0.5 m apart, of which robot 0 is moved along it."""
    place = np.zeros((2, 40, 1), np.float32)
    place[0, :, 0] = 0.5 * np.arange(40)
    place[0, 0, 0] += offset_m
    return place


@jax.jit
def linked(place):
    """Return the links of robots at these places, and the place of the peer in each slot."""
    links = find_links(SHIELD, place)
    return links, of_peers(links, place)


@jax.jit
def heard(links, table, place, due, age_s):
    """Return links and table after a tick of which every message is lost."""
    arrived = jnp.zeros(links.peers.index.shape, bool)
    return heard_in_crowd(SHIELD, links, table, place, due, arrived, age_s, 0.5)


@pytest.fixture(scope="module")
def after_a_move():
    """Robot 0 moves past robots 1 and 2; every message of that tick is lost."""
    before, place = line(0.0), line(1.2)
    links, known = linked(before)
    index = np.asarray(links.peers.index, np.float32)
    table = PeerTable(known, np.stack([index, -index]), index, links.peers.valid)
    due = np.concatenate([place, 7 + 0 * place])
    found = heard(links, table, place, due, np.full(index.shape, 0.25, np.float32))
    return jax.tree.map(np.asarray, (links, place, found))


def test_a_peer_that_stays_near_keeps_its_entry_and_ages(after_a_move):
    old, _, (links, table) = after_a_move
    slots = np.asarray(links.peers.valid)[:, 0, 0]
    known = np.asarray(old.peers.index)[np.asarray(old.peers.valid)[:, 0, 0], 0, 0]
    for slot in np.flatnonzero(slots):
        peer = int(links.peers.index[slot, 0, 0])
        if peer in known:
            assert float(table.age_s[slot, 0, 0]) == peer + 0.5
            assert table.control_velocity_world[:, slot, 0, 0].tolist() == [peer, -peer]
            assert table.control_point_world[:, slot, 0, 0].tolist() == [0.5 * peer, 0]


def test_a_peer_that_comes_near_begins_with_the_message_that_is_due(after_a_move):
    old, place, (links, table) = after_a_move
    known = np.asarray(old.peers.index)[np.asarray(old.peers.valid)[:, 0, 0], 0, 0]
    slots = [k for k in np.flatnonzero(links.peers.valid[:, 0, 0]) if int(links.peers.index[k, 0, 0]) not in known]
    assert slots
    for slot in slots:
        peer = int(links.peers.index[slot, 0, 0])
        assert float(table.age_s[slot, 0, 0]) == 0.25
        assert table.control_velocity_world[:, slot, 0, 0].tolist() == [7, 7]
        assert table.control_point_world[:, slot, 0, 0].tolist() == place[:, peer, 0].tolist()


def test_a_learned_message_stays_with_its_peer_in_another_slot():
    before, place = line(0.0), line(1.2)
    links, points = jax.tree.map(np.asarray, linked(before))
    index = links.peers.index.astype(np.float32)
    table = PeerTable(points, 0 * points, index, links.peers.valid, message=index[None] / 40)
    due = np.concatenate([place, 0 * place, 0 * place[:1] - 1])
    after, found = jax.tree.map(np.asarray, heard(links, table, place, due, 0 * index))
    known = np.asarray(links.peers.index)[np.asarray(links.peers.valid)[:, 0, 0], 0, 0]
    for slot in np.flatnonzero(after.peers.valid[:, 0, 0]):
        peer = int(after.peers.index[slot, 0, 0])
        assert float(found.message[0, slot, 0, 0]) == pytest.approx(peer / 40 if peer in known else -1)


def test_an_empty_slot_is_not_valid(after_a_move):
    _, _, (links, table) = after_a_move
    assert (table.valid == links.peers.valid).all()
    assert not np.asarray(table.valid).all()


def test_a_control_point_that_is_not_finite_is_in_every_table():
    place = line(0.0)
    place[0, 5, 0] = np.nan
    links, _ = linked(place)
    holds = np.any((np.asarray(links.peers.index) == 5) & np.asarray(links.peers.valid), axis=0)[:, 0]
    assert holds.sum() == 39
