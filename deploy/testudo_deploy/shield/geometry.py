"""Geometry in the plane and in space: distances of points and segments, and exact projection onto half-spaces.

Arrays (D, ...), any batch, one body. The clamped closed form for two segments is that of Ericson, Real-Time Collision
Detection (2005), 5.1.9.
"""

import functools
from typing import Any

import numpy as np

from testudo_hardware.arrays import Array, all_of, array_namespace, is_numpy, known_false, max_of, min_of, stacked
from testudo_hardware.motion.motion_state import length, sum_terms

_HUGE = 1e6
_STEEP = 1e9  # cost per unit by which a candidate breaks a row: far above all distances
LONGEST = 20.0  # a target or result that is longer is outside of the domain
_VOID = 1e-15  # normals shorter than this are zero
_DOUBLE_PARALLEL, _DOUBLE_SLACK = 1e-9, 1e-9
_SINGLE_PARALLEL, _SINGLE_SLACK = 2e-6, 8e-6
"""Sine below which rows of length one are parallel; by how much the result may break a row [same unit as b]."""
_ROUNDINGS = 8
_SURE = 3  # a candidate that breaks a row by no more than so many roundings keeps it
_TINY = 1e-12
_STEEP_SHARE = 0.5  # a velocity is steep if its horizontal part is less than this share of its vertical part


def dot(first: Array, second: Array) -> Array:
    """Return the scalar product (...) of vectors (D, ...)."""
    product = first * second
    return sum_terms([product[d, ...] for d in range(product.shape[0])])


def left_of(ahead: Array, offset: Array) -> Array:
    """Return how far to the left of directions (D, ...) offsets (D, K, ...) are (K, ...), seen from above."""
    return ahead[0, None, ...] * offset[1, ...] - ahead[1, None, ...] * offset[0, ...]


def turned_right(vector: Array, angle_rad: Array) -> Array:
    """Return vectors (D, ...) turned to the right by an angle (...), about the vertical; steep ones out of it.

    One that goes up turns to y, one that goes down against it: two that meet head-on do not turn to the same side.
    """
    if known_false(angle_rad != 0):
        return vector
    xp = array_namespace(vector)
    cosine, sine = xp.cos(angle_rad), xp.sin(angle_rad)
    x, y = vector[0, ...], vector[1, ...]
    if vector.shape[0] == 2:
        return stacked(cosine * x + sine * y, cosine * y - sine * x)
    z = vector[2, ...]
    steep = x * x + y * y < _STEEP_SHARE**2 * z * z
    return xp.where(
        steep,
        stacked(x + 0 * sine, cosine * y + sine * z, cosine * z - sine * y),
        stacked(cosine * x + sine * y, cosine * y - sine * x, z + 0 * sine),
    )


def z_scaled(vector: Array, height_ratio: float, axis: int = 0) -> Array:
    """Return vectors with the component along ``axis`` that is their height over ``height_ratio``.

    The one place in which the shield counts heights less: between robots all distances, of control points, tubes and
    segments, are those of scaled vectors (docs/shield.md, "Drones"). Vectors in the plane, and a ratio of 1, stay.
    """
    if vector.shape[axis] == 2 or height_ratio == 1:
        return vector
    if is_numpy(vector):  # one robot: one call in place of a few
        return vector * _shares(height_ratio, vector.ndim - axis, vector.dtype)
    flat, high = ((slice(None),) * axis + (part, ...) for part in (slice(0, 2), slice(2, 3)))
    # by the same product as above: a quotient may have another last bit
    return array_namespace(vector).concat([vector[flat], vector[high] * (1 / height_ratio)], axis=axis)


@functools.cache
def _shares(height_ratio: float, axes: int, dtype: Any) -> np.ndarray:
    """Return what each component counts, with as many axes as from the component on."""
    return np.array([1.0, 1.0, 1 / height_ratio], dtype).reshape((3,) + (1,) * (axes - 1))


def point_distance(point: Array, start: Array, end: Array) -> Array:
    """Return the distance (...) of points (D, ...) to the segments from ``start`` to ``end`` (D, ...) [m]."""
    along = end - start
    offset = point - start
    share = fraction_along(offset, along)
    return length(offset - share * along)


def fraction_along(offset: Array, along: Array) -> Array:
    """Return where on a segment (0 its start, 1 its end) the point nearest to ``start + offset`` lies (...)."""
    return clamped_fraction(dot(offset, along) / (dot(along, along) + _TINY))


def segment_distance(start: Array, end: Array, other_start: Array, other_end: Array) -> Array:
    """Return the least distance (...) of two segments (D, ...) [m]; a segment may be a point."""
    xp = array_namespace(start)
    u, v, w = end - start, other_end - other_start, start - other_start
    a, b, c, d, e = dot(u, u), dot(u, v), dot(v, v), dot(u, w), dot(v, w)
    determinant = a * c - b * b
    skew = determinant > _TINY * (1 + a * c)
    first = xp.where(skew, clamped_fraction((b * e - c * d) / xp.where(skew, determinant, 1.0)), 0.0)
    zero = xp.zeros_like(first)[None, ...]
    one = zero + 1.0
    # places on the one segment, the nearest on the other to each: from inside, and from the ends. For parallel
    # segments, and rounding of a small determinant, an end of one is among the nearest points.
    t = clamped_fraction((b * xp.concat([first[None, ...], zero, one]) + e) / (c + _TINY))
    s = clamped_fraction((b * xp.concat([t[:1, ...], zero, one]) - d) / (a + _TINY))
    s, t = xp.concat([s, zero, one]), xp.concat([t[:1, ...], zero, one, t[1:, ...]])
    return min_of(length(w[:, None, ...] + s * u[:, None, ...] - t * v[:, None, ...]), axis=0)


def clamped_fraction(value: Array) -> Array:
    """Return the value within 0 and 1; a third of the time that `clip` takes in NumPy."""
    xp = array_namespace(value)
    return xp.minimum(xp.maximum(value, 0.0), 1.0)


def project_onto_halfspaces(target: Array, normals: Array, bounds: Array) -> tuple[Array, Array]:
    """Return the point nearest to ``target`` with ``normals . x <= bounds``.

    The nearest point lies inside, or on one boundary: for each row the foot of the vector on its line is clipped to the
    interval that other rows leave; O(K^2) tensor operations, no iteration. For one problem these are all other rows,
    and the cheapest point that keeps every row wins: few calls. In a batch they are the rows before it, and the rows
    are taken in turn. In space each plane reduces to the planar problem. A point counts as found only if it keeps every
    row, which is computed at the end.

    Rows are divided by the length of their normals, and kept within 8e-6 in single and 1e-9 in double precision. These
    tolerances hold at the order of one: where the target or the nearest point is longer than `LONGEST`, none is found.

    Args:
        target: (D, ...), D is 2 or 3.
        normals: (D, K, ...); a zero normal makes its row void, and a contradiction if its bound is negative.
        bounds: (K, ...).

    Returns:
        The point (D, ...) and whether one was found (...); where not, the point is zero.
    """
    xp = array_namespace(target)
    if bounds.shape[0] == 0:  # a robot alone in the open
        return target, all_of(xp.abs(target) < xp.inf, axis=0)
    # all rows together need the fewest calls for a single robot; row by row, a large batch stays in the cache
    together = normals.ndim == 2
    normals, bounds = _of_unit_length(normals, bounds)
    solve = _nearest_in_plane if target.shape[0] == 2 else _nearest_in_space
    asked = (normals, bounds)
    if together and is_numpy(target):
        if (_excess(normals, bounds, target) <= _limits(bounds)[2]).all():
            return target, np.True_
        asked = _within_reach(target, normals, bounds)
    point = solve(target, *asked, together)
    found = all_of(_excess(normals, bounds, point) <= _limits(bounds)[1], axis=0)  # False where not a number
    found = found & (xp.maximum(dot(target, target), dot(point, point)) <= LONGEST**2)
    return xp.where(found[None, ...], point, 0.0), found


def _of_unit_length(normals: Array, bounds: Array) -> tuple[Array, Array]:
    """Return the rows with normals of length one; void ones stay."""
    xp = array_namespace(bounds)
    square = dot(normals, normals)
    share = 1 / xp.sqrt(xp.where(square > _VOID**2, square, 1.0))
    return normals * share[None, ...], bounds * share


def _within_reach(target: Array, normals: Array, bounds: Array) -> tuple[Array, Array]:
    """Return the rows of one problem that can bind.

    Where zero keeps all rows, the nearest point is no longer than the target: the rows that lie further away do not
    bind. What is not a number stays, to be found at the end.
    """
    if not bounds.min() >= 0:
        return normals, bounds
    reach = np.sqrt(dot(target, target) * dot(normals, normals))
    near = ~(bounds > reach)
    return normals[:, near], bounds[near]


def _limits(bounds: Array) -> tuple[float, float, float]:
    """Return the sine of parallel rows, the slack of the result, and the size of rounding."""
    return _limits_of(array_namespace(bounds), bounds.dtype)


@functools.cache
def _limits_of(xp: Any, dtype: Any) -> tuple[float, float, float]:
    eps = float(xp.finfo(dtype).eps)
    if eps > 1e-10:
        return _SINGLE_PARALLEL, _SINGLE_SLACK, _ROUNDINGS * eps
    return _DOUBLE_PARALLEL, _DOUBLE_SLACK, _ROUNDINGS * eps


def _excess(normals: Array, bounds: Array, point: Array) -> Array:
    """Return by how much a point (D, ...) breaks each row (K, ...)."""
    return sum_terms([normals[d, ...] * point[d, None, ...] for d in range(point.shape[0])]) - bounds


def _nearest_in_plane(target: Array, normals: Array, bounds: Array, together: bool) -> Array:
    """Return the nearest point (2, ...); anything where there is none."""
    xp = array_namespace(target)
    ax, ay = normals[0, ...], normals[1, ...]
    square = ax * ax + ay * ay
    square = xp.where(square > _VOID**2, square, 1.0)
    scale = bounds / square
    # lines are counted from the point nearest to zero: where rows meet in zero, standing still comes out exactly
    foot_x, foot_y = scale * ax, scale * ay
    along = ax * target[1, None, ...] - ay * target[0, None, ...]
    place = _nearest_on_lines(normals, stacked(foot_x, foot_y), along, bounds, square, together)
    return _choose(target, stacked(foot_x - place * ay, foot_y + place * ax), normals, bounds, together)


def _nearest_on_lines(
    normals: Array, foot: Array, wanted: Array, bounds: Array, square: Array, together: bool
) -> Array:
    """Return where on line k, which runs through its foot along (-ay, ax), the nearest point to the target is (K, ...).

    Together, within all rows; else within the rows before row k. Anything where these leave no interval.
    ``wanted`` is the place of the target, times ``square``: the squared lengths of the normals, one where a row is
    void.
    """
    xp = array_namespace(foot)
    parallel = _limits(bounds)[0]  # a row that repeats row k leaves room and slope of rounding size, either sign
    ax, ay = normals[0, ...], normals[1, ...]

    def cut(bx: Array, by: Array, bound: Array) -> tuple[Array, Array]:
        slope = by * ax[None, ...] - bx * ay[None, ...]
        room = bound - bx * foot[0, None, ...] - by * foot[1, None, ...]
        return slope, room / xp.where(xp.abs(slope) > parallel, slope, 1.0)

    if together:
        slope, along = cut(ax[:, None, ...], ay[:, None, ...], bounds[:, None, ...])
        high = min_of(xp.where(slope > parallel, along, _HUGE), axis=0)
        low = max_of(xp.where(slope < -parallel, along, -_HUGE), axis=0)
        return xp.minimum(xp.maximum(low, wanted / square), high)
    # one number carries both ends: where there is an interval, clipping at each end in turn finds its nearest point
    # (measured with XLA, 8 rows: five times faster than both ends and their validity). It is scaled until the end:
    # XLA keeps what ends in a division, and else works out all of it again for each row (16 rows: 20 times slower)
    shift = wanted
    line = xp.reshape(xp.arange(bounds.shape[0]), (bounds.shape[0],) + (1,) * (bounds.ndim - 1))
    for j in range(bounds.shape[0] - 1):
        slope, along = (x[0, ...] for x in cut(*(x[j : j + 1, None, ...] for x in (ax, ay, bounds))))
        along = along * square
        shift = xp.where(
            (slope > parallel) & (line > j),
            xp.minimum(shift, along),
            xp.where((slope < -parallel) & (line > j), xp.maximum(shift, along), shift),
        )
    return shift / square


def _nearest_in_space(target: Array, normals: Array, bounds: Array, together: bool) -> Array:
    """Return the nearest point (3, ...) for normals of length one; anything where there is none."""
    xp = array_namespace(target)
    foot = bounds[None, ...] * normals
    first, second = _plane_basis(normals)

    # every row j (axis 1) seen in plane k (axis 2), with coordinates centred on its point nearest to zero
    def in_plane(vector: Array) -> Array:
        return sum_terms([normals[d, :, None, ...] * vector[d, None, ...] for d in range(3)])

    planar = stacked(in_plane(first), in_plane(second))
    room = bounds[:, None, ...] - in_plane(foot)
    row = xp.arange(bounds.shape[0])
    off = row[:, None] == row[None, :] if together else row[:, None] >= row[None, :]
    off = xp.reshape(off, off.shape + (1,) * (bounds.ndim - 1))
    planar, room = xp.where(off[None, ...], 0.0, planar), xp.where(off, 0.0, room)
    wanted = stacked(*(sum_terms([axis[d, ...] * target[d, None, ...] for d in range(3)]) for axis in (first, second)))
    point = _nearest_in_plane(wanted, planar, room, together)
    points = foot + point[0, None, ...] * first + point[1, None, ...] * second
    return _choose(target, points, normals, bounds, together)


def _plane_basis(unit: Array) -> tuple[Array, Array]:
    """Return two unit vectors (3, ...) across ``unit`` (3, ...); Duff et al., JCGT 2017."""
    xp = array_namespace(unit)
    x, y, z = unit[0, ...], unit[1, ...], unit[2, ...]
    sign = xp.where(z >= 0, xp.ones_like(z), -xp.ones_like(z))
    a = -1 / (sign + z)
    b = x * y * a
    return stacked(1 + sign * x * x * a, sign * b, -sign * x), stacked(b, sign + y * y * a, -y)


def _choose(target: Array, points: Array, normals: Array, bounds: Array, together: bool) -> Array:
    """Return the target (D, ...) where it is inside, else the candidate (D, K, ...) that is the nearest point.

    Together, the cheapest that keeps every row; costs tell apart what lies further apart than the root of the
    rounding. One by one, Seidel's incremental form: where the point so far breaks row k, the nearest one is on it.
    """
    xp = array_namespace(target)
    rounding, count = _limits(bounds)[2], bounds.shape[0]
    if not together:
        point = target
        for k in range(count):
            value = sum_terms([normals[d, k, ...] * point[d, ...] for d in range(target.shape[0])])
            broken = value - bounds[k, ...] > rounding
            point = xp.where(broken[None, ...], points[:, k, ...], point)
        return point
    worst = max_of(_excess(normals[:, :, None, ...], bounds[:, None, ...], points), axis=0)
    cost = sum_terms([(points[d, ...] - target[d, None, ...]) ** 2 for d in range(target.shape[0])])
    # where rounding leaves none that keeps all, the one that breaks them least
    cost = xp.where(worst <= _SURE * rounding, cost, _HUGE + _STEEP * worst)
    inside = all_of(_excess(normals, bounds, target) <= rounding, axis=0)
    # a sum over the one-hot choice works for any batch
    index = xp.argmin(cost, axis=0)
    place = xp.reshape(xp.arange(count), (count,) + (1,) * index.ndim)
    chosen = xp.sum(xp.where((place == index)[None, ...], points, 0.0), axis=1)
    return xp.where(inside[None, ...], target, chosen)
