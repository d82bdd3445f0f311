"""Distances of points and segments, in the plane and in space; arrays (D, ...), any batch, one body.

The clamped closed form for two segments is that of Ericson, Real-Time Collision Detection (2005), 5.1.9.
"""

from __future__ import annotations

from testudo_hardware.arrays import Array, array_namespace
from testudo_hardware.motion.state import length, sum_terms

_TINY = 1e-12


def dot(first: Array, second: Array) -> Array:
    """Return the scalar product (...) of vectors (D, ...)."""
    return sum_terms([first[d, ...] * second[d, ...] for d in range(first.shape[0])])


def point_distance(point: Array, start: Array, end: Array) -> Array:
    """Return the distance (...) of points (D, ...) to the segments from ``start`` to ``end`` (D, ...) [m]."""
    along = end - start
    offset = point - start
    share = share_along(offset, along)
    return length(offset - share * along)


def share_along(offset: Array, along: Array) -> Array:
    """Return where on a segment (0 its start, 1 its end) the point nearest to ``start + offset`` lies (...)."""
    xp = array_namespace(offset)
    return xp.clip(dot(offset, along) / (dot(along, along) + _TINY), 0.0, 1.0)


def segment_distance(start: Array, end: Array, other_start: Array, other_end: Array) -> Array:
    """Return the least distance (...) of two segments (D, ...) [m]; a segment may be a point."""
    xp = array_namespace(start)
    u, v, w = end - start, other_end - other_start, start - other_start
    a, b, c, d, e = dot(u, u), dot(u, v), dot(v, v), dot(u, w), dot(v, w)
    determinant = a * c - b * b
    skew = determinant > _TINY * (1 + a * c)
    s = xp.where(skew, xp.clip((b * e - c * d) / xp.where(skew, determinant, 1.0), 0.0, 1.0), 0.0)
    t = xp.clip((b * s + e) / (c + _TINY), 0.0, 1.0)
    s = xp.clip((b * t - d) / (a + _TINY), 0.0, 1.0)
    inner = length(w + s * u - t * v)
    # parallel segments, and rounding of a small determinant: an end of one is then among the nearest points
    start, end, other_start, other_end = xp.broadcast_arrays(start, end, other_start, other_end)
    points = xp.stack([start, end, other_start, other_end], axis=1)
    starts = xp.stack([other_start, other_start, start, start], axis=1)
    ends = xp.stack([other_end, other_end, end, end], axis=1)
    return xp.minimum(inner, xp.min(point_distance(points, starts, ends), axis=0))
