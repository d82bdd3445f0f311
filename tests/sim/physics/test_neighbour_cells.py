"""Sorted cells give what a comparison of all pairs gives: who is near, who touches, how close the closest two are."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.effort import examples

from testudo_sim.physics import close_pairs, scene
from testudo_sim.physics.close_pairs import closest_distance, touching_pairs
from testudo_sim.physics.neighbour_cells import CROWD, nearest_peers
from testudo_sim.physics.scene import count_contacts, least_separation, pair_distances

SIZE, WORLDS, RANGE_M, CONTACT_M = 40, 2, 1.5, 0.2
# of the peers' cells, which are half of the range wide, and of the contacts' cells
BORDERS_M = tuple(k * width for k in range(-9, 10) for width in (1.01 * RANGE_M / 2, 1.01 * CONTACT_M))
SPECIAL = st.sampled_from([*BORDERS_M, 0.0, -0.0, RANGE_M, -CONTACT_M, 1e6, -3e4, 1e-7])
BROKEN = st.sampled_from([np.nan, np.inf, -np.inf])
FAST = settings(max_examples=examples(30), deadline=None)


def distances(position):
    """Return the distances (N, N, E) of all robots, computed as pairs are; infinite of a robot to itself."""
    found = compiled_distances(position)
    return np.where(np.eye(position.shape[1], dtype=bool)[..., None], np.inf, found)


compiled_distances = jax.jit(
    lambda position: jnp.sqrt(jnp.sum((position[:, :, None] - position[:, None]) ** 2, axis=0))
)


@st.composite
def teams(draw, dimension, broken=False):
    """Positions (D, N, E): scattered in a box of any size, and some at borders of cells, in one place or broken."""
    scale, seed = draw(st.sampled_from([0.1, 1.0, 4.0, 60.0, 2e4])), draw(st.integers(0, 2**31))
    position = np.random.default_rng(seed).uniform(-scale, scale, (dimension, SIZE, WORLDS)).astype(np.float32)
    places = st.tuples(st.integers(0, SIZE - 1), st.integers(0, WORLDS - 1), st.lists(SPECIAL, min_size=3, max_size=3))
    for robot, world, place in draw(st.lists(places, max_size=20)):
        position[:, robot, world] = place[:dimension]
    for robot, other in draw(st.lists(st.tuples(*[st.integers(0, SIZE - 1)] * 2), max_size=8)):
        position[:, robot] = position[:, other]
    if broken:
        for robot, value in draw(st.lists(st.tuples(st.integers(0, SIZE - 1), BROKEN), min_size=1, max_size=3)):
            position[draw(st.integers(0, dimension - 1)), robot, 0] = value
    return jnp.asarray(position)


def same_as_all_pairs(position):
    pairs = pair_distances(position)
    assert touching(position).tolist() == jnp.sum(~(pairs >= CONTACT_M), axis=0).tolist()
    np.testing.assert_array_equal(closest(position), jnp.min(pairs, axis=0))


touching = jax.jit(lambda position: touching_pairs(position, CONTACT_M))
closest = jax.jit(closest_distance)
peers_of = jax.jit(lambda position: nearest_peers(position, RANGE_M, 12))


def same_nearest(position):
    found, apart = peers_of(position), distances(position)
    apart = np.where(np.eye(SIZE, dtype=bool)[..., None] | np.isfinite(apart), apart, 0.0)
    wanted = np.sort(np.where(apart <= RANGE_M, apart, np.inf), axis=0)
    slots = found.index.shape[0]
    held = np.take_along_axis(apart, np.asarray(found.index), axis=0)
    np.testing.assert_array_equal(np.where(found.valid, held, np.inf), wanted[:slots])
    np.testing.assert_array_equal(found.left_out, np.sum(np.isfinite(wanted[slots:]), axis=(0, 1)))
    for world in range(WORLDS):  # no peer has two slots
        for robot in range(SIZE):
            held_by = np.asarray(found.index)[np.asarray(found.valid)[:, robot, world], robot, world]
            assert len(set(held_by.tolist())) == len(held_by)


@FAST
@given(teams(2))
@example(jnp.zeros((2, SIZE, WORLDS)))
def test_contacts_and_the_closest_pair_in_the_plane_are_those_of_all_pairs(position):
    same_as_all_pairs(position)


@FAST
@given(teams(3))
@example(jnp.ones((3, SIZE, WORLDS)))
def test_contacts_and_the_closest_pair_in_space_are_those_of_all_pairs(position):
    same_as_all_pairs(position)


@FAST
@given(teams(2, broken=True))
def test_a_position_that_is_not_finite_counts_as_it_does_among_all_pairs(position):
    same_as_all_pairs(position)


@FAST
@given(teams(2))
@example(jnp.zeros((2, SIZE, WORLDS)))
def test_the_nearest_peers_in_the_plane_are_those_of_all_pairs(position):
    same_nearest(position)


@FAST
@given(teams(3))
def test_the_nearest_peers_in_space_are_those_of_all_pairs(position):
    same_nearest(position)


@FAST
@given(teams(2, broken=True))
def test_a_peer_that_is_not_finite_is_never_taken_for_absent(position):
    found = peers_of(position)
    same_nearest(position)
    broken = ~np.all(np.isfinite(position), axis=0)[:, 0]
    holds = np.any(broken[np.asarray(found.index)[..., 0]] & np.asarray(found.valid)[..., 0], axis=0)
    assert holds[~broken].all()


def test_peers_without_a_slot_are_counted_and_the_nearest_kept():
    """A robot in the middle of a ring of 39 and one at 0.1 m, with 12 slots."""
    angle = np.linspace(0, 2 * np.pi, SIZE - 2, endpoint=False)
    ring = np.stack([np.cos(angle), np.sin(angle)])
    position = np.concatenate([[[0.0], [0.0]], [[0.1], [0.0]], ring], axis=1)[..., None]
    position = position.astype(np.float32)
    found = jax.jit(lambda place: nearest_peers(place, 1.2, 12))(position)
    assert found.index[0, 0, 0] == 1
    in_range = np.sum(distances(position) <= 1.2, axis=1)
    assert int(found.left_out[0]) == np.sum(np.maximum(in_range - 12, 0)) > 0


@pytest.mark.parametrize("size", [CROWD - 1, CROWD])
def test_only_crowds_are_searched_by_cells(size, monkeypatch):
    """Below, the arrays of all pairs are used; the figures are the same."""
    called = []
    for name in ("touching_pairs", "closest_distance"):
        whole = getattr(close_pairs, name)
        monkeypatch.setattr(scene, name, lambda *given, whole=whole: called.append(whole) or whole(*given))
    position = jnp.asarray(np.random.default_rng(1).uniform(-1, 1, (2, size, 3)), jnp.float32)
    pairs = np.asarray(jax.jit(pair_distances)(position))
    contacts, least = jax.jit(lambda place: (count_contacts(place, 0.1, None), least_separation(place)))(position)
    assert contacts.tolist() == np.sum(pairs < 0.2, axis=0).tolist()
    assert least.tolist() == np.min(pairs, axis=0).tolist()
    assert len(called) == (2 if size >= CROWD else 0)


def test_robots_that_crowd_into_few_cells_are_found_without_all_pairs(monkeypatch):
    """A cluster far denser than the box around all: the least distance needs smaller cells, not all pairs."""
    monkeypatch.setattr(close_pairs, "_over_shifts", lambda worlds, *_: jnp.full(worlds.shape[-1], -1.0))
    grid = np.stack(np.meshgrid(np.arange(20), np.arange(20)), axis=0).reshape(2, -1) * 0.3
    position = np.concatenate([grid, [[500.0], [500.0]]], axis=1)[..., None]
    # a program of its own, with the replaced function in it
    least = jax.jit(partial(closest_distance))(position.astype(np.float32))
    assert float(least[0]) == pytest.approx(0.3, abs=1e-5)


def test_no_array_of_a_crowd_grows_with_the_square_of_its_robots():
    """Of the largest array in the search, with 4 times the robots."""

    def largest(size):
        position = jax.ShapeDtypeStruct((2, size, 1), jnp.float32)

        def search(x):
            return nearest_peers(x, RANGE_M), touching_pairs(x, CONTACT_M), closest_distance(x)

        return max(_sizes(jax.make_jaxpr(search)(position).jaxpr))

    assert largest(1024) <= 4.1 * largest(256)


def _sizes(program):
    """Yield the sizes of all arrays of a program and of the programs in it."""
    for equation in program.eqns:
        yield from (int(np.prod(out.aval.shape)) for out in equation.outvars)
        for value in jax.tree.leaves(tuple(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
            if hasattr(value, "eqns"):
                yield from _sizes(value)
