"""What a policy does not see in training: its share, drawn anew, and never the nearest two."""

import jax
import jax.numpy as jnp
import numpy as np

from testudo_policies.networks.entity_drop_out import with_drop_out

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
