"""Distances of points and segments: never above, and hardly below, what sampling both of them finds."""

import array_api_strict
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testudo_deploy.shield.geometry import fraction_along, point_distance, segment_distance

STEPS = 60
SHARES = np.linspace(0, 1, STEPS + 1)
NUMBER = st.floats(-3, 3, width=32)


def places(size, count):
    """Draw ``count`` places of one dimension; many lie on each other, in a line, or nearly so."""
    coarse = st.sampled_from([-1.0, 0.0, 0.5, 1.0, 1.0 + 1e-7])
    return st.lists(
        st.lists(st.one_of(coarse, NUMBER), min_size=size, max_size=size).map(np.array), min_size=count, max_size=count
    )


def between(start, end):
    """Return points on a segment (D, S)."""
    return start[:, None] + SHARES * (end - start)[:, None]


@given(st.sampled_from([2, 3]).flatmap(lambda size: places(size, 3)))
def test_a_point_is_as_far_as_the_nearest_sample_of_the_segment(points):
    point, start, end = points
    sampled = np.linalg.norm(point[:, None] - between(start, end), axis=0).min()
    found = point_distance(point, start, end)
    assert sampled - np.linalg.norm(end - start) / STEPS - 1e-6 <= found <= sampled + 1e-6


@given(st.sampled_from([2, 3]).flatmap(lambda size: places(size, 4)))
def test_two_segments_are_as_far_as_their_nearest_samples(points):
    """Also parallel, crossing, touching ones, and such of no length."""
    start, end, other_start, other_end = points
    one, two = between(start, end), between(other_start, other_end)
    sampled = np.linalg.norm(one[:, :, None] - two[:, None, :], axis=0).min()
    found = segment_distance(start, end, other_start, other_end)
    grid = (np.linalg.norm(end - start) + np.linalg.norm(other_end - other_start)) / STEPS
    assert sampled - grid - 1e-6 <= found <= sampled + 1e-6
    assert segment_distance(other_start, other_end, start, end) == pytest.approx(found, abs=1e-6)
    assert segment_distance(end, start, other_end, other_start) == pytest.approx(found, abs=1e-6)


def test_known_distances():
    o, x, y = np.zeros(2), np.array([1.0, 0.0]), np.array([0.0, 1.0])
    assert segment_distance(-x, x, -y, y) == pytest.approx(0.0, abs=1e-9)  # they cross
    assert segment_distance(o, x, y, x + y) == pytest.approx(1.0)  # parallel
    assert segment_distance(o, x, 3 * x, 5 * x) == pytest.approx(2.0)  # in one line
    assert segment_distance(o, x, 2 * x, 2 * x) == pytest.approx(1.0)  # one is a point
    assert segment_distance(o, o, x + y, x + y) == pytest.approx(np.sqrt(2))  # both are
    assert point_distance(y, o, o) == pytest.approx(1.0)
    assert fraction_along(2 * x, x) == pytest.approx(1.0)
    assert fraction_along(-x, x) == 0.0
    assert fraction_along(x, o) == 0.0  # no direction: the start


def test_nearly_parallel_segments_in_single_precision():
    """On the robot's lanes rounding must stay far below the margins: a tenth of a millimetre at 4 m."""
    rng = np.random.default_rng(0)
    start = rng.uniform(-4, 4, (2, 5000))
    along = rng.uniform(-2, 2, (2, 5000))
    tilt = along + rng.choice([0, 1e-7, 1e-4, 1e-2], 5000) * rng.standard_normal((2, 5000))
    other = start + rng.uniform(-1, 1, (2, 5000))
    exact = segment_distance(start, start + along, other, other + tilt)
    single = segment_distance(*(np.float32(x) for x in (start, start + along, other, other + tilt)))
    assert np.abs(single - exact).max() < 1e-4


@pytest.mark.parametrize("asarray", [jnp.asarray, array_api_strict.asarray])
def test_all_libraries_agree(asarray):
    rng = np.random.default_rng(1)
    ends = rng.uniform(-1, 1, (4, 3, 200))
    ends[1, :, :20] = ends[0, :, :20]  # of no length
    for function, count in ((segment_distance, 4), (point_distance, 3)):
        expected = function(*ends[:count])
        found = np.asarray(function(*(asarray(x) for x in ends[:count])))
        assert found == pytest.approx(expected, abs=1e-5)


def test_batches_broadcast():
    """Lanes of one robot (D, 1) against those of many (D, K)."""
    one, many = np.zeros((2, 1)), np.arange(10.0).reshape(2, 5)
    distance = segment_distance(one, one + 1, many, many)
    assert distance.shape == (5,)
    assert distance[3] == segment_distance(one[:, 0], one[:, 0] + 1, many[:, 3], many[:, 3])


@pytest.mark.parametrize("where", range(4))
def test_what_is_no_number_is_no_distance(where):
    """So that the comparison ``distance >= clearance`` fails, which the gate takes for a conflict."""
    ends = [np.zeros(2), np.ones(2), np.array([3.0, 0.0]), np.array([4.0, 0.0])]
    ends[where] = np.array([np.nan, 0.0])
    assert not segment_distance(*ends) >= 0
