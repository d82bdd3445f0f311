"""What a policy does not see in training: its share, drawn anew, and never the nearest two."""

import jax
import jax.numpy as jnp
import numpy as np

from testudo_policies.networks.entity_drop_out import with_drop_out, without_surplus

ROBOTS, SLOTS = 500, 5


def signals():
    """Return neighbours and marks at distances 1 to 5 m, farthest first, and parts that are always there."""
    place = jnp.tile(jnp.array([[5.0, 0], [4, 0], [3, 0], [2, 0], [1, 0]]), (ROBOTS, 1, 1))
    return {
        "control_point_world": jnp.zeros((ROBOTS, 2)),
        "neighbour_position_world": place,
        "neighbour_valid": jnp.ones((ROBOTS, SLOTS)).at[:, 4].set(0.0),  # the nearest is not there
        "mark_position_world": place,
        "mark_valid": jnp.ones((ROBOTS, SLOTS, 1)),
        "zone_position_world": place,
    }


def test_a_share_is_left_out_anew_each_time_and_the_nearest_two_never():
    drop = jax.jit(lambda key: with_drop_out(signals(), 0.4, key))
    found, again = drop(jax.random.key(0)), drop(jax.random.key(1))
    assert set(found) == set(signals())
    shares = np.mean(found["neighbour_valid"], axis=0)
    assert shares[2:].tolist() == [1, 1, 0]  # two of those that are there; what is not there stays so
    np.testing.assert_allclose(shares[:2], 0.6, atol=0.08)
    marks = np.mean(found["mark_valid"][..., 0], axis=0)
    assert marks[3:].tolist() == [1, 1]
    np.testing.assert_allclose(marks[:3], 0.6, atol=0.08)
    assert np.mean(found["mark_valid"] != again["mark_valid"]) > 0.2
    assert np.mean(found["mark_valid"][:, 0, 0] != found["neighbour_valid"][:, 0]) > 0.3  # drawn apart
    np.testing.assert_array_equal(found["mark_position_world"], signals()["mark_position_world"])


def test_of_more_than_the_most_the_nearest_two_are_seen_and_each_other_one_as_often_in_any_order():
    rng = np.random.default_rng(0)
    count, slots, most = 2000, 8, 4
    place = rng.uniform(-2, 2, (count, slots, 2)).astype(np.float32)
    valid = np.ones((count, slots), np.float32)
    valid[:, 5] = 0.0
    given = {
        "control_point_world": rng.uniform(-0.2, 0.2, (count, 2)).astype(np.float32),
        "neighbour_position_world": place,
        "neighbour_valid": valid,
        "neighbour_age": rng.uniform(0, 0.2, (count, slots)).astype(np.float32),
    }
    seen = np.asarray(jax.jit(lambda signals: without_surplus(signals, most))(given)["neighbour_valid"])
    away = np.linalg.norm(place - given["control_point_world"][:, None], axis=-1)
    order = np.argsort(np.where(valid > 0, away, np.inf), axis=-1)
    shares = np.take_along_axis(seen, order, axis=-1).mean(axis=0)
    assert shares[:2].tolist() == [1, 1]
    np.testing.assert_allclose(shares[2:7], (most - 2) / 5, atol=0.05)
    assert shares[7] == 0  # who is not there stays so
    assert (seen.sum(axis=-1) == most).mean() > 0.98  # the rest: equal chances
    turned = {name: x[:, ::-1] if name.startswith("neighbour") else x for name, x in given.items()}
    np.testing.assert_array_equal(without_surplus(turned, most)["neighbour_valid"][:, ::-1], seen)
    fewer = {name: x[:, :most] if name.startswith("neighbour") else x for name, x in given.items()}
    np.testing.assert_array_equal(without_surplus(fewer, most)["neighbour_valid"], valid[:, :most])
