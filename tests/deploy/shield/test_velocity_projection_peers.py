"""The neighbour table: what was heard is taken, what was not grows older, nobody is dropped."""

from dataclasses import replace

import array_api_strict
import jax.numpy as jnp
import numpy as np
import pytest

from testudo_deploy.shield.arena import nearest_rows
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.velocity_projection import (
    PeerTable,
    ShieldStatus,
    extrapolated,
    pair_rows,
    update_peer_table,
)
from testudo_hardware.motion import MotionState, motion_model
from testudo_hardware.spec import load_robot


def table_of(point, velocity, age, valid):
    return PeerTable(*(np.array(x) for x in (point, velocity, age, valid)))


@pytest.fixture
def known():
    return table_of([[1.0, 2.0], [3.0, 4.0]], [[0.1, 0.2], [0.0, -0.1]], [0.05, 0.5], [True, False])


@pytest.fixture
def heard():
    return table_of([[7.0, 8.0], [9.0, 6.0]], [[0.3, 0.4], [0.5, 0.6]], [0.02, 0.03], [False, True])


def test_a_heard_slot_is_taken_and_the_others_age(known, heard):
    after = update_peer_table(known, heard, 0.033)
    assert after.control_point_world.tolist() == [[1.0, 8.0], [3.0, 6.0]]
    assert after.control_velocity_world.tolist() == [[0.1, 0.4], [0.0, 0.6]]
    assert after.age_s == pytest.approx([0.083, 0.03])
    assert after.valid.tolist() == [True, True]


def test_a_peer_that_falls_silent_is_never_dropped(known, heard):
    silent = PeerTable(heard.control_point_world, heard.control_velocity_world, heard.age_s, np.zeros(2, bool))
    table = known
    for _ in range(1000):
        table = update_peer_table(table, silent, 0.01)
    assert table.valid.tolist() == [True, False]
    assert table.control_point_world.tolist() == known.control_point_world.tolist()
    assert table.age_s == pytest.approx([10.05, 10.5])


def test_the_point_is_extrapolated_for_the_hold_and_then_rests(known):
    """Slot 0 is 0.05 s old: moved for 0.05 s; slot 1 is 0.5 s old: moved for the hold, 0.133 s."""
    expected = [[1.0 + 0.05 * 0.1, 2.0 + 0.133 * 0.2], [3.0, 4.0 - 0.133 * 0.1]]
    assert extrapolated(known, 0.133) == pytest.approx(np.array(expected))


@pytest.mark.parametrize("asarray", [jnp.asarray, array_api_strict.asarray])
def test_every_array_library_gives_the_same(known, heard, asarray):
    expected = update_peer_table(known, heard, 0.033)
    got = update_peer_table(
        *(PeerTable(*map(asarray, list(vars(table).values())[:4])) for table in (known, heard)), 0.033
    )
    for ours, theirs in zip(list(vars(expected).values())[:4], list(vars(got).values())[:4], strict=True):
        assert np.asarray(theirs) == pytest.approx(ours, rel=1e-6)
    assert np.asarray(extrapolated(got, 0.1)) == pytest.approx(extrapolated(expected, 0.1), rel=1e-6)


def test_a_batch_of_worlds_is_kept_like_each_of_them(known, heard):
    def many(table):
        return PeerTable(*(np.stack([x, x], axis=-1) for x in list(vars(table).values())[:4]))

    alone, together = update_peer_table(known, heard, 0.1), update_peer_table(many(known), many(heard), 0.1)
    for one, both in zip(list(vars(alone).values())[:4], list(vars(together).values())[:4], strict=True):
        assert (both[..., 0] == one).all()
        assert (both[..., 1] == one).all()


@pytest.mark.parametrize("name", ["gritsbot_x", "crazyflie_2x"])
def test_a_message_from_the_future_brakes(make_scene, name):
    scene = make_scene(name, peers=3, count=5)
    age_s = scene.table.age_s.copy()
    age_s[1, 2] = -0.01
    status = scene.but(table=replace(scene.table, age_s=age_s)).shield().status
    assert np.flatnonzero(status == int(ShieldStatus.BRAKED)).tolist() == [2]


def test_of_peers_and_obstacles_that_are_equally_near_the_first_slots_have_rows():
    """Regression: NumPy's own order of equal values depends on the processor, and so did the command of a robot."""
    spec = load_robot("robomaster_s1")
    stop = motion_model(spec).stopping_point(MotionState(np.zeros(2), np.array(0.0), np.zeros(2)))
    near = np.array([(x, y) for x in (-4, -3, 3, 4) for y in (-4, -3, 3, 4) if abs(x) != abs(y)], float)
    ring = np.concatenate([2 * near[:4], near, 2 * near[4:]]).T  # eight peers at 10 m, eight at 5 m
    nearest = [4, 5, 6, 7, 8, 9, 10, 11]
    for places in (ring, ring[:, ::-1], np.concatenate([ring, ring[:, 3:7]], axis=1)):
        count = places.shape[1]
        table = PeerTable(places, 0 * places, np.full(count, 0.02), np.ones(count, bool))
        (normals, _), _, _ = pair_rows(projection_parameters(spec), stop, table)
        np.testing.assert_allclose(normals, places[:, nearest] / 5, atol=1e-9)
        (found, _), _ = nearest_rows((places, np.hypot(*places)))
        np.testing.assert_array_equal(found, places[:, nearest])
