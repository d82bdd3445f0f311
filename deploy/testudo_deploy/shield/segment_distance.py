"""Distances of points and segments, in the plane and in space; arrays (D, ...), any batch, one body.

The clamped closed form for two segments is that of Ericson, Real-Time Collision Detection (2005), 5.1.9.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from testudo_hardware.arrays import Array, array_namespace, is_numpy
from testudo_hardware.motion.motion_state import length, sum_terms

_TINY = 1e-12


def dot(first: Array, second: Array) -> Array:
    """Return the scalar product (...) of vectors (D, ...)."""
    return sum_terms([first[d, ...] * second[d, ...] for d in range(first.shape[0])])


def squeezed(vector: Array, height_ratio: float, axis: int = 0) -> Array:
    """Return vectors with the component along ``axis`` that is their height over ``height_ratio``.

    The one place in which the shield counts heights less: between robots all distances, of control points, tubes and
    segments, are those of squeezed vectors (docs/shield.md, "Drones"). Vectors in the plane, and a ratio of 1, stay.
    """
    if vector.shape[axis] == 2 or height_ratio == 1:
        return vector
    if is_numpy(vector):  # one robot: one call in place of a few
        return vector * _shares(height_ratio, vector.ndim - axis, vector.dtype)
    flat, high = ((slice(None),) * axis + (part, ...) for part in (slice(0, 2), slice(2, 3)))
    return array_namespace(vector).concat([vector[flat], vector[high] / height_ratio], axis=axis)


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
    return xp.min(length(w[:, None, ...] + s * u[:, None, ...] - t * v[:, None, ...]), axis=0)


def clamped_fraction(value: Array) -> Array:
    """Return the value within 0 and 1; a third of the time that `clip` takes in NumPy."""
    xp = array_namespace(value)
    return xp.minimum(xp.maximum(value, 0.0), 1.0)
