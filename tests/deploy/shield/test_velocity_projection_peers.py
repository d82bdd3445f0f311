"""The neighbour table: what was heard is taken, what was not grows older, nobody is dropped."""

from dataclasses import replace

import array_api_strict
import jax.numpy as jnp
import numpy as np
import pytest

from testudo_deploy.shield.velocity_projection import PeerTable, ShieldStatus, extrapolated, update_peer_table


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
