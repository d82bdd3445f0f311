"""The wake of a drone: the published model where it was flown, bounded where it was not."""

import math

import numpy as np
import pytest

from testudo_hardware.motion.propellers import MOST_N, downwash

RADIUS = 0.07


def below(depth, beside=0.0):
    """Return the force on a drone so far below and beside another."""
    return downwash(np.array([[0.0, beside], [0.0, 0.0], [2.0, 2.0 - depth]]), RADIUS)


@pytest.mark.parametrize(("depth", "beside"), [(1.2, 0.0), (1.5, 0.1), (2.0, 0.4)])
def test_it_is_the_published_model(depth, beside):
    strength = 2267.18 * (0.0231348 / (4 * depth)) ** 2
    width = 0.16 * depth - 0.11
    assert below(depth, beside)[2, 1] == pytest.approx(-strength * math.exp(-0.5 * (beside / width) ** 2))


def test_the_upper_one_feels_nothing_and_nothing_acts_to_the_side():
    force = below(1.0, 0.05)
    assert not force[:, 0].any()
    assert not force[:2].any()


def test_near_the_rotors_it_is_bounded():
    for depth in (1e-6, 0.01, 0.1, 0.3, 0.5, 0.7):
        assert -MOST_N <= below(depth)[2, 1] < -0.9 * MOST_N
    assert below(0.3, 0.3)[2, 1] > -0.01 * MOST_N


def test_wakes_add_up_and_worlds_are_apart(asarray):
    rng = np.random.default_rng(0)
    place = rng.uniform(-0.3, 0.3, (3, 5, 6)) + np.array([0.0, 0.0, 3.0])[:, None, None]
    together = np.asarray(downwash(asarray(place), RADIUS))
    for world in range(6):
        for i in range(5):
            pairs = [downwash(place[:, [j, i], world], RADIUS)[2, 1] for j in range(5) if j != i]
            assert together[2, i, world] == pytest.approx(sum(pairs), abs=1e-12)
