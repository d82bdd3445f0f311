"""The projection against quadprog, degenerate problems included, in double and single precision."""

import array_api_strict
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import quadprog
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linprog

from testudo_deploy.shield.geometry import LONGEST, project_onto_halfspaces

CASES = [(2, 1), (2, 4), (2, 9), (2, 16), (3, 1), (3, 5), (3, 14)]
COUNT = 600


def random_rows(rng, dimension, rows, count):
    """Return target (D, n), normals (D, K, n) of lengths 0.5 to 2, bounds (K, n) at zero or above."""
    normals = rng.standard_normal((dimension, rows, count))
    normals *= rng.uniform(0.5, 2, (rows, count)) / np.linalg.norm(normals, axis=0)
    bounds = rng.uniform(0, 1, (rows, count)) * (rng.uniform(size=(rows, count)) > 0.3)
    return rng.uniform(-2, 2, (dimension, count)), normals, bounds


def spoil(rng, normals, bounds):
    """Make half of the problems degenerate: duplicate, opposite, parallel and zero rows."""
    rows = normals.shape[1]
    for n in range(0, normals.shape[2], 2):
        source, copy = rng.integers(rows, size=2)
        factor = [1.0, -1.0, 0.5, 0.0][(n // 2) % 4]
        normals[:, copy, n] = factor * normals[:, source, n]
        bounds[copy, n] = abs(factor) * bounds[source, n]


def reference(target, normals, bounds):
    """Return quadprog's solution (D,) of a problem that zero solves."""
    used = np.linalg.norm(normals, axis=0) > 0  # it refuses zero rows
    if not used.any():
        return target
    # at corners where many rows meet it can fail: then the rows are moved apart by rounding size
    for apart in (0.0, 1e-11, 1e-10, 1e-9):
        moved = bounds[used] + apart * np.arange(used.sum())
        try:
            return quadprog.solve_qp(np.eye(len(target)), target.copy(), -normals[:, used].copy(), -moved)[0]
        except ValueError:
            continue
    raise AssertionError("quadprog fails")


def references(problem):
    target, normals, bounds = problem
    return np.stack([reference(target[:, n], normals[:, :, n], bounds[:, n]) for n in range(target.shape[1])], axis=1)


def excess(problem, point):
    """Return by how much each point breaks its worst row."""
    _, normals, bounds = problem
    return ((normals * point[:, None]).sum(axis=0) - bounds).max(axis=0)


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}d-{case[1]}rows")
def problem(request):
    dimension, rows = request.param
    rng = np.random.default_rng(dimension * 100 + rows)
    target, normals, bounds = random_rows(rng, dimension, rows, COUNT)
    spoil(rng, normals, bounds)
    return target, normals, bounds


def test_double_precision_agrees_with_quadprog(problem):
    point, found = project_onto_halfspaces(*problem)
    assert found.all()
    assert np.abs(point - references(problem)).max() <= 1e-6
    assert excess(problem, point).max() <= 1e-9


def test_single_precision_under_jax_agrees_with_quadprog(problem):
    """Also everywhere as near to the target, within 5e-5; a corner of almost parallel rows may shift along them."""
    point, found = jax.jit(project_onto_halfspaces)(*(jnp.asarray(values, jnp.float32) for values in problem))
    assert np.asarray(found).all()
    point, expected = np.asarray(point, float), references(problem)
    assert np.mean(np.abs(point - expected).max(axis=0) <= 1e-4) >= 0.99
    assert excess(problem, point).max() <= 1e-5
    far, least = (np.linalg.norm(x - problem[0], axis=0) for x in (point, expected))
    assert (far - least).max() <= 5e-5


def test_repeated_rows_do_not_move_the_point_in_single_precision():
    """Regression: the rounding of a repeated row clipped the foot, so that the point was 4 m/s off."""
    rng = np.random.default_rng(2)
    target, normals, bounds = random_rows(rng, 2, 3, 2000)
    normals, bounds = normals[:, [0, 1, 2, 0, 1]], bounds[[0, 1, 2, 0, 1]]
    factor = np.array([1, 1, 1, 0.7, 1.3])[:, None]
    problem = target, factor * normals, factor * bounds
    once, _ = project_onto_halfspaces(target, normals[:, :3], bounds[:3])
    point, found = jax.jit(project_onto_halfspaces)(*(jnp.asarray(values, jnp.float32) for values in problem))
    assert np.asarray(found).all()
    assert np.mean(np.abs(np.asarray(point) - once).max(axis=0) <= 1e-4) >= 0.99
    far, least = (np.linalg.norm(np.asarray(x) - target, axis=0) for x in (point, once))
    assert (far - least).max() <= 1e-5


def test_every_array_library_gives_the_same(problem):
    expected, _ = project_onto_halfspaces(*problem)
    strict = tuple(array_api_strict.asarray(values) for values in problem)
    with jax.enable_x64(True):
        double = tuple(jnp.asarray(values) for values in problem)
        for point, found in (project_onto_halfspaces(*strict), jax.jit(project_onto_halfspaces)(*double)):
            assert np.asarray(found).all()
            assert np.asarray(point) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("dimension", [2, 3])
def test_a_batch_gives_what_its_problems_give(dimension):
    rng = np.random.default_rng(7)
    target, normals, bounds = random_rows(rng, dimension, 6, 30)
    whole, _ = project_onto_halfspaces(target, normals, bounds)
    for n in range(30):
        alone, found = project_onto_halfspaces(target[:, n], normals[:, :, n], bounds[:, n])
        assert found
        assert alone == pytest.approx(whole[:, n], abs=1e-12)


@pytest.mark.parametrize("dimension", [2, 3])
def test_a_target_inside_is_returned_bit_for_bit(dimension):
    rng = np.random.default_rng(8)
    target, normals, bounds = random_rows(rng, dimension, 5, 300)
    bounds = (normals * target[:, None]).sum(axis=0) + rng.uniform(0, 1, bounds.shape)
    point, found = project_onto_halfspaces(target, normals, bounds)
    assert found.all()
    assert (point == target).all()


@pytest.mark.parametrize("dimension", [2, 3])
def test_a_corner_at_zero_is_found(dimension):
    """All bounds are zero and the target is in the polar cone: the answer is the origin itself."""
    normals = np.concatenate([np.eye(dimension), -np.eye(dimension), np.ones((dimension, 2))], axis=1)
    target = np.full(dimension, 0.7)
    for dtype, tolerance in ((np.float64, 1e-12), (np.float32, 1e-6)):
        point, found = project_onto_halfspaces(
            *(x.astype(dtype) for x in (target, normals, np.zeros(2 * dimension + 2)))
        )
        assert found
        assert point == pytest.approx(np.zeros(dimension), abs=tolerance)


@pytest.mark.parametrize("dimension", [2, 3])
def test_zero_rows_are_void(dimension):
    target = np.arange(1.0, dimension + 1)
    point, found = project_onto_halfspaces(target, np.zeros((dimension, 4)), np.zeros(4))
    assert found
    assert (point == target).all()


@pytest.mark.parametrize("dimension", [2, 3])
def test_contradicting_rows_are_not_found_and_give_zero(dimension):
    """x <= -0.1 and x >= 0.1, among rows that are satisfied."""
    first = np.eye(dimension)[:, :1]
    others = np.random.default_rng(9).standard_normal((dimension, 5))
    normals = np.concatenate([first, others, -first], axis=1)
    bounds = np.array([-0.1, 3, 3, 3, 3, 3, -0.1])
    point, found = project_onto_halfspaces(np.full(dimension, 0.3), normals, bounds)
    assert not found
    assert (point == 0).all()


@pytest.mark.parametrize(("dimension", "rows"), [(2, 5), (2, 9), (3, 6), (3, 10)])
def test_found_says_whether_there_is_a_solution(dimension, rows):
    """Bounds below zero, as retreats ask for; a linear programme says how deep inside one can be."""
    rng = np.random.default_rng(10)
    count = 150
    target, normals, bounds = random_rows(rng, dimension, rows, count)
    bounds -= rng.uniform(0, 1, bounds.shape)
    point, found = project_onto_halfspaces(target, normals, bounds)

    def depths(reach):
        return np.array(
            [
                linprog(
                    [*np.zeros(dimension), -1],
                    A_ub=np.column_stack([normals[:, :, n].T, np.ones(rows)]),
                    b_ub=bounds[:, n],
                    bounds=[(-reach, reach)] * dimension + [(None, 1)],
                ).x[-1]
                for n in range(count)
            ]
        )

    depth = depths(np.inf)
    in_domain = (depth < 0) | (depths(0.4 * LONGEST) > 0)
    clear = (np.abs(depth) > 1e-5) & in_domain
    assert in_domain.mean() > 0.9
    assert (found == (depth > 0))[clear].all()
    assert 0.05 < found.mean() < 0.95
    assert excess((target, normals, bounds), point)[found].max() <= 1e-5
    assert (point[:, ~found] == 0).all()


NUMBERS = st.floats(-2, 2).filter(lambda x: x == 0 or abs(x) > 1e-2)


@pytest.mark.parametrize("dimension", [2, 3])
@given(data=st.data())
def test_the_point_keeps_every_row_and_none_is_nearer(dimension, data):
    """The optimality conditions on problems that hypothesis makes as awkward as it can."""
    rows = data.draw(st.integers(1, 7))
    target = data.draw(arrays(float, dimension, elements=NUMBERS))
    normals = data.draw(arrays(float, (dimension, rows), elements=NUMBERS))
    bounds = data.draw(arrays(float, rows, elements=st.sampled_from([0.0, 0.0, 0.1, 0.5, 1.0])))
    point, found = project_onto_halfspaces(target, normals, bounds)
    assert found
    assert (normals.T @ point - bounds).max() <= 1e-5
    # variational inequality: no feasible point lies nearer; zero and shrunk points are feasible
    for other in (np.zeros(dimension), 0.5 * point):
        assert (target - point) @ (other - point) <= 1e-4
    assert np.linalg.norm(point - target) <= np.linalg.norm(target) + 1e-5


@pytest.mark.parametrize("dimension", [2, 3])
@pytest.mark.parametrize("where", ["target", "normals", "bounds"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_never_passes_for_inside(dimension, where, bad):
    """The target must not come back as if it had been checked."""
    rng = np.random.default_rng(11)
    target, normals, bounds = (x[..., 0] for x in random_rows(rng, dimension, 4, 1))
    target = normals[:, 0] * 5
    values = {"target": target, "normals": normals, "bounds": bounds}
    values[where] = np.where(np.arange(values[where].size).reshape(values[where].shape) == 0, bad, values[where])
    if where == "bounds" and bad == np.inf:
        return  # a row without a bound
    with np.errstate(all="ignore"):
        point, found = project_onto_halfspaces(**values)
    assert not found or not np.array_equal(point, target)


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("dimension", [2, 3])
@pytest.mark.parametrize("where", ["target", "normals", "bounds"])
def test_with_nan_no_solution_is_found(dimension, where, batch):
    rng = np.random.default_rng(0)
    normals = rng.standard_normal((dimension, 4, *batch))
    values = {
        "target": 5 * normals[:, 0],
        "normals": normals / np.linalg.norm(normals, axis=0),
        "bounds": np.full((4, *batch), 0.1),
    }
    values[where][(0,) * (values[where].ndim - len(batch))] = np.nan
    with np.errstate(all="ignore"):
        point, found = project_onto_halfspaces(**values)
    assert not np.any(found)
    assert np.all(point == 0)


@pytest.mark.parametrize("dimension", [2, 3])
def test_at_any_scale_the_nearest_point_is_found_or_none(dimension):
    """Rows of lengths 1e-10 to 1e6, targets of 1e-6 to 1e6: one problem, and in a batch.

    Before, with everything times 1e3, 55 of 200 points that counted as found were far from the nearest, and 162 with
    rows of length 1e-9.
    """
    rng, found_any = np.random.default_rng(7), 0
    for _ in range(300):
        length, size = 10 ** rng.uniform(-10, 6, 6), 10 ** rng.uniform(-6, 6)
        normals = rng.standard_normal((dimension, 6))
        normals *= length / np.linalg.norm(normals, axis=0)
        bounds = size * length * rng.uniform(0.02, 1, 6)
        target = size * rng.uniform(-2, 2, dimension)
        unit = normals / length
        expected = size * quadprog.solve_qp(np.eye(dimension), target / size, -unit, -bounds / length / size)[0]
        one, many = (target, normals, bounds), (target[:, None], normals[:, :, None], bounds[:, None])
        for point, found in (project_onto_halfspaces(*one), project_onto_halfspaces(*many)):
            if np.all(found):
                assert np.abs(np.ravel(point) - expected).max() <= 1e-9 * max(size, 1.0)
                found_any += 1
            else:
                assert not np.any(point)
                assert max(np.linalg.norm(target), np.linalg.norm(expected)) > LONGEST
    assert found_any > 200
