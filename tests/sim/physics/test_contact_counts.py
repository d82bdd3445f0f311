"""Contacts and distances, counted by hand."""

from functools import partial

import jax
import numpy as np
import pytest

from testudo_deploy.shield.velocity_projection import Arena
from testudo_sim.physics import scene

pair_distances, least_separation = jax.jit(scene.pair_distances), jax.jit(scene.least_separation)


def count_contacts(worlds, radius_m, arena):
    return jax.jit(partial(scene.count_contacts, radius_m=radius_m, arena=arena))(worlds)


def team(*worlds):
    """Return positions (D, N, E) of worlds that are given robot by robot."""
    return np.transpose(np.array(worlds, np.float32), (2, 1, 0))


def test_the_distances_of_all_pairs():
    distances = pair_distances(team([(0, 0), (3, 4), (0, 1)]))
    assert sorted(distances[:, 0].tolist()) == pytest.approx([1.0, np.sqrt(18), 5.0])


def test_the_least_separation_in_the_plane_and_in_space():
    assert least_separation(team([(0, 0), (3, 4), (0, 1)], [(0, 0), (2, 0), (9, 9)])).tolist() == [1, 2]
    assert least_separation(team([(0, 0, 0), (1, 2, 2)])).tolist() == [3]


def test_a_single_robot_is_infinitely_far_from_others():
    assert np.isinf(least_separation(team([(0, 0)]))).all()
    assert count_contacts(team([(0, 0)]), 0.1, None).tolist() == [0]


def test_pairs_that_overlap_are_counted():
    """Radius 0.1: the first two touch, the third is 0.21 m away from the second."""
    worlds = team([(0, 0), (0.19, 0), (0.4, 0)], [(0, 0), (0.1, 0), (0.05, 0)], [(0, 0), (1, 0), (2, 0)])
    assert count_contacts(worlds, 0.1, None).tolist() == [1, 3, 0]


def test_robots_that_overlap_a_wall_are_counted_once_each():
    arena = Arena((-1.0, -2.0), (1.0, 2.0))
    worlds = team([(0.95, 1.95), (0, 0)], [(-0.91, 0), (0, -1.91)], [(0.89, 1.89), (-0.89, -1.89)])
    assert count_contacts(worlds, 0.1, arena).tolist() == [1, 2, 0]


def test_floor_and_ceiling_count_in_space():
    arena = Arena((-1.0, -1.0, 0.0), (1.0, 1.0, 2.0))
    assert count_contacts(team([(0, 0, 0.05), (0, 0, 1.0)], [(0, 0, 1.95), (0, 0, 1)]), 0.1, arena).tolist() == [1, 1]
