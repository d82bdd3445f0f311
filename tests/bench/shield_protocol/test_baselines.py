"""ORCA, buffered Voronoi cells and barrier certificates: two robots, computed by hand."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from testudo_bench.shield_protocol.baselines import BaselineScene, barrier_certificate, buffered_voronoi, orca


def scene(peer, peer_velocity=(0.0, 0.0), velocity=(0.0, 0.0), goal=(2.0, 0.1)):
    """Return a robot in the origin that keeps 0.5 m from one peer."""
    column = [jnp.array(values)[:, None] for values in (velocity, goal)]
    return BaselineScene(
        position_world=jnp.zeros((2, 1)),
        velocity_world=column[0],
        peer_position_world=jnp.array(peer)[:, None, None],
        peer_velocity_world=jnp.array(peer_velocity)[:, None, None],
        goal_world=column[1],
        separation_m=0.5,
        speed_m_s=1.0,
        period_s=0.05,
    )


def column(*values):
    return jnp.array(values)[:, None]


def test_certificate_takes_half_of_alpha_h():
    """h = 0.36 - 0.25 = 0.11; -2 * 0.6 * u >= -10 * 0.11 / 2 leaves u = 0.4583 towards the peer, and all across."""
    velocity = barrier_certificate(scene((0.6, 0.0)), column(0.8, 0.3))
    np.testing.assert_allclose(velocity[:, 0], (0.45833, 0.3), atol=1e-4)


def test_certificate_leaves_alone_what_is_far():
    np.testing.assert_allclose(barrier_certificate(scene((2.0, 0.0)), column(0.8, 0.3))[:, 0], (0.8, 0.3))


def test_voronoi_goes_to_the_point_of_its_cell_nearest_to_the_goal():
    """The cell ends at 0.5 - 0.25 m; its point nearest to (2, 0.1) is (0.25, 0.1), approached with 1.5 /s."""
    velocity = buffered_voronoi(scene((1.0, 0.0)))
    np.testing.assert_allclose(velocity[:, 0], (0.375, 0.15), atol=1e-5)


def test_orca_takes_half_of_the_way_to_the_cone():
    """Head-on at 1 m/s each over 3 m: sine of the cone's half-angle 1/6; the nearest point of its right leg to the
    relative velocity (2, 0) is (1.9444, -0.3287), so that each changes by (-0.0278, -0.1643)."""
    velocity = orca(scene((3.0, 0.0), (-1.0, 0.0), (1.0, 0.0)), column(1.0, 0.0))
    np.testing.assert_allclose(velocity[:, 0], (0.97222, -0.16434), atol=1e-4)


def test_orca_leaves_alone_who_parts():
    velocity = orca(scene((1.0, 0.0), (1.0, 0.0), (-1.0, 0.0)), column(-1.0, 0.0))
    np.testing.assert_allclose(velocity[:, 0], (-1.0, 0.0))


def test_orca_parts_within_a_tick_who_overlaps():
    """0.1 m too close: the relative velocity must be 0.1 m / 0.05 s, of which each takes 1 m/s."""
    velocity = orca(scene((0.4, 0.0)), column(0.0, 0.0))
    np.testing.assert_allclose(velocity[:, 0], (-1.0, 0.0), atol=1e-4)


@pytest.mark.parametrize(
    "rule", [orca, lambda s, wanted: buffered_voronoi(s), barrier_certificate], ids=["orca", "voronoi", "certificate"]
)
def test_bodies_that_obey_at_once_keep_their_distance(rule):
    """What the methods promise for their own model, a body that moves as commanded."""
    place = np.array([[-1.0, 1.0], [0.0, 0.02]])
    goal, moved = -place, np.zeros((2, 2))
    least = np.inf
    for _ in range(120):
        peers = place[:, ::-1]
        seen = dataclasses.replace(
            scene((1.0, 0.0)),
            position_world=jnp.array(place),
            velocity_world=jnp.array(moved),
            peer_position_world=jnp.array(peers)[:, None],
            peer_velocity_world=jnp.array(moved[:, ::-1])[:, None],
            goal_world=jnp.array(goal),
        )
        offset = goal - place
        distance = np.linalg.norm(offset, axis=0)
        wanted = offset * np.minimum(1.0, 1.5 * distance) / (distance + 1e-6)
        moved = np.asarray(rule(seen, jnp.array(wanted)))
        place = place + 0.05 * moved
        least = min(least, np.linalg.norm(place[:, 0] - place[:, 1]))
    assert least > 0.49
