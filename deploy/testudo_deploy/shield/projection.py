"""Exact projection of a vector onto half-spaces ``a . x <= b`` in the plane and in space.

The nearest point lies inside, or on one boundary: for each row the foot of the vector on its line is
clipped to the interval that the other rows leave, and the cheapest candidate wins; O(K^2) tensor
operations, no iteration. In space each plane reduces to the planar problem.
"""

from __future__ import annotations

from typing import Any

from testudo_hardware.arrays import Array, array_namespace
from testudo_hardware.motion.state import sum_terms

_HUGE = 1e6
_PARALLEL = 1e-7
_ROUNDINGS = 8
_SLACK = 1e-6
"""Tolerance of feasibility [same unit as b]; corners at which several rows meet need it in float32."""


def project(target: Array, normals: Array, bounds: Array) -> tuple[Array, Array]:
    """Return the point nearest to ``target`` with ``normals . x <= bounds``.

    Args:
        target: (D, ...), D is 2 or 3.
        normals: (D, K, ...); a zero normal makes its row void.
        bounds: (K, ...).

    Returns:
        The point (D, ...) and whether one was found (...); where not, the point is zero.
    """
    solve = _nearest_in_plane if target.shape[0] == 2 else _nearest_in_space
    return solve(target, normals, bounds)


def _nearest_in_plane(target: Array, normals: Array, bounds: Array) -> tuple[Array, Array]:
    xp = array_namespace(target)
    ax, ay = normals[0, ...], normals[1, ...]
    excess = ax * target[0, ...] + ay * target[1, ...] - bounds
    square = ax * ax + ay * ay
    void = square < _PARALLEL**2
    scale = xp.where(void, 0.0, excess / xp.where(void, 1.0, square))
    foot_x, foot_y = target[0, ...] - scale * ax, target[1, ...] - scale * ay
    high = xp.full_like(foot_x, _HUGE)
    low = -high
    blocked = void
    # a row that repeats row k leaves room and slope of rounding size, either sign: it must not clip the foot
    loose = bounds + _ROUNDINGS * float(xp.finfo(bounds.dtype).eps)
    for rows in _parts(normals):
        # row j (first axis) cuts line k (second axis), which runs through its foot along (-ay, ax)
        bx, by, bound = ax[rows, None, ...], ay[rows, None, ...], loose[rows, None, ...]
        slope = by * ax[None, ...] - bx * ay[None, ...]
        room = bound - bx * foot_x[None, ...] - by * foot_y[None, ...]
        parallel = xp.abs(slope) < _PARALLEL
        along = room / xp.where(parallel, 1.0, slope)
        cuts_high = xp.min(xp.where(slope >= _PARALLEL, along, _HUGE), axis=0)
        cuts_low = xp.max(xp.where(slope <= -_PARALLEL, along, -_HUGE), axis=0)
        high, low = xp.minimum(high, cuts_high), xp.maximum(low, cuts_low)
        blocked = blocked | xp.any(parallel & (room < -_SLACK), axis=0)
    inside = xp.all(excess <= _SLACK, axis=0)
    feasible = (low <= high + _SLACK) & ~blocked
    shift = xp.minimum(xp.maximum(low, xp.zeros_like(low)), high)
    candidates = xp.stack([foot_x - shift * ay, foot_y + shift * ax])
    return _choose(target, candidates, feasible, inside, xp)


def _parts(normals: Array) -> list[slice]:
    """Return the rows in the parts that are worked on at once.

    All at once costs a single robot the fewest calls; one by one keeps the arrays of a large batch in the
    cache (measured with XLA on two cores, 10 rows: three times faster).
    """
    count = normals.shape[1]
    return [slice(0, count)] if normals.ndim == 2 else [slice(k, k + 1) for k in range(count)]


def _nearest_in_space(target: Array, normals: Array, bounds: Array) -> tuple[Array, Array]:
    xp = array_namespace(target)
    excess = sum_terms([normals[d, ...] * target[d, None, ...] for d in range(3)]) - bounds
    square = sum_terms([normals[d, ...] ** 2 for d in range(3)])
    void = square < _PARALLEL**2
    length = xp.sqrt(xp.where(void, 1.0, square))
    unit = normals / length[None, ...]
    foot = target[:, None, ...] - (xp.where(void, 0.0, excess) / length)[None, ...] * unit
    first, second = _plane_basis(unit)
    # every row j (axis 1) seen in plane k (axis 2), with coordinates centred on the foot
    def in_plane(vector: Array) -> Array:
        return sum_terms([normals[d, :, None, ...] * vector[d, None, ...] for d in range(3)])
    planar = xp.stack([in_plane(first), in_plane(second)])
    room = bounds[:, None, ...] - in_plane(foot)
    own = xp.eye(bounds.shape[0], dtype=bounds.dtype)
    own = xp.reshape(own, own.shape + (1,) * (bounds.ndim - 1)) > 0
    planar, room = xp.where(own[None, ...], 0.0, planar), xp.where(own, 0.0, room)
    point, found = _nearest_in_plane(0 * planar[:, 0, ...], planar, room)
    candidates = foot + point[0, None, ...] * first + point[1, None, ...] * second
    return _choose(target, candidates, found & ~void, xp.all(excess <= _SLACK, axis=0), xp)


def _plane_basis(unit: Array) -> tuple[Array, Array]:
    """Return two unit vectors (3, ...) across ``unit`` (3, ...); Duff et al., JCGT 2017."""
    xp = array_namespace(unit)
    x, y, z = unit[0, ...], unit[1, ...], unit[2, ...]
    sign = xp.where(z >= 0, xp.ones_like(z), -xp.ones_like(z))
    a = -1 / (sign + z)
    b = x * y * a
    return (xp.stack([1 + sign * x * x * a, sign * b, -sign * x]),
            xp.stack([b, sign + y * y * a, -y]))


def _choose(target: Array, candidates: Array, feasible: Array, inside: Array, xp: Any
            ) -> tuple[Array, Array]:
    """Return the target where it is inside, else the nearest feasible candidate (D, K, ...), else 0."""
    cost = sum_terms([(candidates[d, ...] - target[d, None, ...]) ** 2 for d in range(target.shape[0])])
    # `0 * x` and not a plain zero: with it XLA solves the problem once, and not again for each use of the
    # result (measured: whole environments step 1.7 times faster)
    cost = xp.where(feasible, cost, _HUGE + 0 * cost)
    best, chosen = _HUGE + 0 * cost[0, ...], 0 * target
    for rows in _parts(candidates):
        part_cost, part = cost[rows, ...], candidates[:, rows, ...]
        if part.shape[1] == 1:
            least, point = part_cost[0, ...], part[:, 0, ...]
        else:
            # the first of the least cost: a sum over the one-hot choice works for any batch
            least, index = xp.min(part_cost, axis=0), xp.argmin(part_cost, axis=0)
            place = xp.reshape(xp.arange(part.shape[1]), (part.shape[1],) + (1,) * index.ndim)
            point = xp.sum(xp.where((place == index)[None, ...], part, 0 * part), axis=1)
        better = least < best
        best, chosen = xp.where(better, least, best), xp.where(better[None, ...], point, chosen)
    found = inside | (best < _HUGE)
    point = xp.where(inside[None, ...], target, chosen)
    return xp.where(found[None, ...], point, 0 * point), found
