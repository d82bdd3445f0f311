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
    scale = xp.where(void, 0 * square, excess / xp.where(void, 1 + square, square))
    foot_x, foot_y = target[0, ...] - scale * ax, target[1, ...] - scale * ay
    # row j (first axis) cuts line k (second axis), which runs through its foot along (-ay, ax)
    slope = ay[:, None, ...] * ax[None, ...] - ax[:, None, ...] * ay[None, ...]
    # a row that repeats row k leaves room and slope of rounding size, either sign: it must not clip the foot
    loose = bounds + _ROUNDINGS * float(xp.finfo(bounds.dtype).eps)
    room = loose[:, None, ...] - ax[:, None, ...] * foot_x[None, ...] - ay[:, None, ...] * foot_y[None, ...]
    parallel = xp.abs(slope) < _PARALLEL
    along = room / xp.where(parallel, xp.ones_like(slope), slope)
    high = xp.min(xp.where(slope >= _PARALLEL, along, _HUGE + 0 * along), axis=0)
    low = xp.max(xp.where(slope <= -_PARALLEL, along, -_HUGE + 0 * along), axis=0)
    blocked = xp.any(parallel & (room < -_SLACK), axis=0)
    inside = xp.all(excess <= _SLACK, axis=0)
    feasible = (low <= high + _SLACK) & ~blocked & ~void
    shift = xp.minimum(xp.maximum(low, 0 * low), high)
    candidates = xp.stack([foot_x - shift * ay, foot_y + shift * ax])
    return _choose(target, candidates, feasible, inside, xp)


def _nearest_in_space(target: Array, normals: Array, bounds: Array) -> tuple[Array, Array]:
    xp = array_namespace(target)
    excess = sum_terms([normals[d, ...] * target[d, None, ...] for d in range(3)]) - bounds
    square = sum_terms([normals[d, ...] ** 2 for d in range(3)])
    void = square < _PARALLEL**2
    length = xp.sqrt(xp.where(void, 1 + square, square))
    unit = normals / length[None, ...]
    foot = target[:, None, ...] - (xp.where(void, 0 * excess, excess) / length)[None, ...] * unit
    first, second = _plane_basis(unit)
    # every row j (axis 1) seen in plane k (axis 2), with coordinates centred on the foot
    def in_plane(vector: Array) -> Array:
        return sum_terms([normals[d, :, None, ...] * vector[d, None, ...] for d in range(3)])
    planar = xp.stack([in_plane(first), in_plane(second)])
    room = bounds[:, None, ...] - in_plane(foot)
    own = xp.eye(bounds.shape[0], dtype=bounds.dtype)
    own = xp.reshape(own, own.shape + (1,) * (bounds.ndim - 1)) > 0
    planar, room = xp.where(own[None, ...], 0 * planar, planar), xp.where(own, 0 * room, room)
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
    cost = sum_terms([(candidates[d, ...] - target[d, ...]) ** 2 for d in range(target.shape[0])])
    cost = xp.where(feasible, cost, _HUGE + 0 * cost)
    best = xp.min(cost, axis=0)
    # the first candidate of the least cost: a sum over the one-hot choice is faster than a gather
    index = xp.argmin(cost, axis=0)
    rows = xp.reshape(xp.arange(cost.shape[0]), (cost.shape[0],) + (1,) * index.ndim)
    chosen = xp.sum(xp.where((rows == index)[None, ...], candidates, 0 * candidates), axis=1)
    found = inside | (best < _HUGE)
    point = xp.where(inside, target, chosen)
    return xp.where(found, point, 0 * point), found
