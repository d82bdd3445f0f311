"""ORCA against numbers by hand, and a team that it keeps apart in place of the shield."""

import jax
import numpy as np

from testudo_policies.planners import orca as module
from testudo_policies.planners.orca import AvoidanceScene


def scene(peer, peer_velocity=(0.0, 0.0), velocity=(0.0, 0.0)):
    """Return a robot in the origin that keeps 0.5 m from one peer."""
    return AvoidanceScene(
        position_world=np.zeros((2, 1)),
        velocity_world=np.array(velocity)[:, None],
        peer_position_world=np.array(peer)[:, None, None],
        peer_velocity_world=np.array(peer_velocity)[:, None, None],
        separation_m=0.5,
        speed_m_s=1.0,
        period_s=0.05,
    )


def column(*values):
    return np.float32(values)[:, None]


def orca(scene, nominal_world, static=None):
    """Compute as one program: each operation for itself would be one to compile."""
    return np.asarray(jax.jit(lambda nominal: module.orca(scene, nominal, static))(nominal_world))


def test_orca_takes_half_of_the_way_to_the_cone():
    """Head-on at 1 m/s each over 3 m: sine of the cone's half-angle 1/6; the nearest point of its right leg to the
    relative velocity (2, 0) is (1.9444, -0.3287), so that each changes by (-0.0278, -0.1643)."""
    velocity = orca(scene((3.0, 0.0), (-1.0, 0.0), (1.0, 0.0)), column(1.0, 0.0))
    np.testing.assert_allclose(velocity[:, 0], (0.97222, -0.16434), atol=1e-4)


def test_orca_ignores_separating_peers():
    velocity = orca(scene((1.0, 0.0), (1.0, 0.0), (-1.0, 0.0)), column(-1.0, 0.0))
    np.testing.assert_allclose(velocity[:, 0], (-1.0, 0.0))


def test_orca_separates_overlapping_robots_within_a_tick():
    """0.1 m too close: the relative velocity must be 0.1 m / 0.05 s, of which each takes 1 m/s."""
    velocity = orca(scene((0.4, 0.0)), column(0.0, 0.0))
    np.testing.assert_allclose(velocity[:, 0], (-1.0, 0.0), atol=1e-4)


def test_a_wall_takes_the_speed_towards_it_and_leaves_that_along_it():
    """At most 0.2 m/s towards a wall on the right; the peer is far away."""
    wall = (np.array([[1.0], [0.0]])[:, :, None], np.array([[0.2]]))
    velocity = orca(scene((-90.0, 0.0)), column(0.8, 0.3), wall)
    np.testing.assert_allclose(velocity[:, 0], (0.2, 0.3), atol=1e-5)
