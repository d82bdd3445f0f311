"""Rotations in space as unit quaternions (x, y, z, w), component first: body to world, right-handed."""

from __future__ import annotations

from testudo_hardware.arrays import Array, array_namespace, stacked

_SMALL = 1e-8
"""Squared half angle [rad²] below which the series of sin(x)/x is exact to rounding."""


def multiply(left: Array, right: Array) -> Array:
    """Return the Hamilton product (4, ...): first ``right``, then ``left``."""
    ax, ay, az, aw = (left[k, ...] for k in range(4))
    bx, by, bz, bw = (right[k, ...] for k in range(4))
    return stacked(aw * bx + ax * bw + ay * bz - az * by, aw * by - ax * bz + ay * bw + az * bx,
                   aw * bz + ax * by - ay * bx + az * bw, aw * bw - ax * bx - ay * by - az * bz)


def conjugate(quaternion_xyzw: Array) -> Array:
    """Return the inverse rotation (4, ...) of unit quaternions."""
    return stacked(-quaternion_xyzw[0, ...], -quaternion_xyzw[1, ...], -quaternion_xyzw[2, ...],
                   quaternion_xyzw[3, ...])


def normalised(quaternion: Array) -> Array:
    """Return quaternions (4, ...) of length 1."""
    xp = array_namespace(quaternion)
    return quaternion / xp.sqrt(xp.sum(quaternion**2, axis=0))


def rotate(quaternion_xyzw: Array, vector: Array) -> Array:
    """Return vectors (3, ...) turned by unit quaternions (4, ...): v + 2 u x (u x v + w v)."""
    x, y, z, w = (quaternion_xyzw[k, ...] for k in range(4))
    a, b, c = (vector[k, ...] for k in range(3))
    inner_x, inner_y, inner_z = y * c - z * b + w * a, z * a - x * c + w * b, x * b - y * a + w * c
    return stacked(a + 2 * (y * inner_z - z * inner_y), b + 2 * (z * inner_x - x * inner_z),
                   c + 2 * (x * inner_y - y * inner_x))


def rotate_back(quaternion_xyzw: Array, vector: Array) -> Array:
    """Return vectors (3, ...) turned by the inverse of unit quaternions (4, ...): world to body."""
    return rotate(conjugate(quaternion_xyzw), vector)


def body_up(quaternion_xyzw: Array) -> Array:
    """Return the body's z axis in the world (3, ...)."""
    x, y, z, w = (quaternion_xyzw[k, ...] for k in range(4))
    return stacked(2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y))


def from_rotation_vector(rotation: Array) -> Array:
    """Return the quaternion (4, ...) of a rotation vector (3, ...) [rad]: axis times angle."""
    xp = array_namespace(rotation)
    x, y, z = (rotation[k, ...] for k in range(3))
    square = (x * x + y * y + z * z) / 4
    large = square > _SMALL
    half = xp.sqrt(xp.where(large, square, 1.0))
    share = xp.where(large, xp.sin(half) / half, 1 - square / 6) / 2
    return stacked(share * x, share * y, share * z, xp.where(large, xp.cos(half), 1 - square / 2))


def rotation_vector(quaternion_xyzw: Array) -> Array:
    """Return the rotation vector (3, ...) [rad] of unit quaternions, the shorter way round."""
    xp = array_namespace(quaternion_xyzw)
    sign = xp.where(quaternion_xyzw[3, ...] < 0, -1.0, 1.0)
    x, y, z, w = (sign * quaternion_xyzw[k, ...] for k in range(4))
    square = x * x + y * y + z * z
    large = square > _SMALL
    sine = xp.sqrt(xp.where(large, square, 1.0))
    share = 2 * xp.where(large, xp.atan2(sine, w) / sine, 1 + square / 6)
    return stacked(share * x, share * y, share * z)
