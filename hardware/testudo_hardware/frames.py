"""Angles, planar transforms and unit quaternions (x, y, z, w), right-handed.

Frames follow REP-103: ENU world, FLU body, yaw counter-clockwise. Array functions are component first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from testudo_hardware.arrays import Array, array_namespace, stacked


def wrap_angle(angle: Array) -> Array:
    """Return ``angle`` [rad] wrapped into [-pi, pi)."""
    xp = array_namespace(angle)
    return angle - 2 * math.pi * xp.floor((angle + math.pi) / (2 * math.pi))


def wrapped(angle: float) -> float:
    """Return one plain ``angle`` [rad] wrapped into [-pi, pi]; NaN stays, infinity becomes NaN."""
    return math.remainder(angle, 2 * math.pi) if math.isfinite(angle) else math.nan


def rotate_horizontal(vector: Array, cosine: Array, sine: Array) -> Array:
    """Rotate the first two components of ``vector`` (D, ...) by an angle given as cosine and sine (...).

    A third component, up, is unchanged: body to world for yaw, world to body for -yaw.
    """
    xp = array_namespace(vector)
    x, y = vector[0, ...], vector[1, ...]
    rotated = [cosine * x - sine * y, sine * x + cosine * y]
    return xp.stack(rotated + [vector[k, ...] for k in range(2, vector.shape[0])])


def turned(vector: Sequence[float], yaw: float) -> tuple[float, ...]:
    """Return one plain vector (D,) turned by ``yaw`` [rad] about z: body to world for yaw, back for -yaw."""
    x, y, *up = vector
    if not math.isfinite(yaw):
        return (math.nan, math.nan, *up)
    cosine, sine = math.cos(yaw), math.sin(yaw)
    return (cosine * x - sine * y, sine * x + cosine * y, *up)


@dataclass(frozen=True)
class PlanarTransform:
    """Pose of a frame in its parent frame: translation, and rotation about the common z axis."""

    position: tuple[float, ...]  # (D,) [m]: origin of the frame in the parent
    yaw: float  # [rad], of the frame in the parent

    def then(self, inner: PlanarTransform) -> PlanarTransform:
        """Return the pose in the parent of ``inner``, a frame in this one: map-odom, odom-base."""
        shift = turned(inner.position, self.yaw)
        position = tuple(here + there for here, there in zip(self.position, shift, strict=True))
        return PlanarTransform(position, wrapped(self.yaw + inner.yaw))

    def inverse(self) -> PlanarTransform:
        """Return the pose of the parent in this frame."""
        back = turned(self.position, -self.yaw)
        return PlanarTransform(tuple(-value for value in back), wrapped(-self.yaw))


def quaternion_xyzw_from_yaw(yaw: float) -> tuple[float, float, float, float]:
    """Return the quaternion (x, y, z, w) of a turn by ``yaw`` [rad] about the world's z axis."""
    return (0.0, 0.0, math.sin(yaw / 2), math.cos(yaw / 2))


def yaw_from_quaternion_xyzw(x: float, y: float, z: float, w: float) -> float:
    """Return the yaw [rad] of a quaternion (x, y, z, w), whose norm must be 1 within 1e-3.

    Raises:
        ValueError: the norm is off or a component is not finite.
    """
    norm = math.sqrt(x * x + y * y + z * z + w * w)
    if not abs(norm - 1.0) <= 1e-3:  # also true for NaN
        raise ValueError(f"quaternion norm is {norm:.4g}, expected 1 within 1e-3")
    return math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))


_SMALL = 1e-8  # squared half angle [rad²] below which the series of sin(x)/x is exact to rounding


def multiply(left: Array, right: Array) -> Array:
    """Return the Hamilton product (4, ...): first ``right``, then ``left``."""
    ax, ay, az, aw = (left[k, ...] for k in range(4))
    bx, by, bz, bw = (right[k, ...] for k in range(4))
    return stacked(
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
        aw * bw - ax * bx - ay * by - az * bz,
    )


def conjugate(quaternion_xyzw: Array) -> Array:
    """Return the inverse rotation (4, ...) of unit quaternions."""
    return stacked(
        -quaternion_xyzw[0, ...], -quaternion_xyzw[1, ...], -quaternion_xyzw[2, ...], quaternion_xyzw[3, ...]
    )


def normalised(quaternion: Array) -> Array:
    """Return quaternions (4, ...) of length 1."""
    xp = array_namespace(quaternion)
    return quaternion / xp.sqrt(xp.sum(quaternion**2, axis=0))


def rotate(quaternion_xyzw: Array, vector: Array) -> Array:
    """Return vectors (3, ...) turned by unit quaternions (4, ...): v + 2 u x (u x v + w v)."""
    x, y, z, w = (quaternion_xyzw[k, ...] for k in range(4))
    a, b, c = (vector[k, ...] for k in range(3))
    inner_x, inner_y, inner_z = y * c - z * b + w * a, z * a - x * c + w * b, x * b - y * a + w * c
    return stacked(
        a + 2 * (y * inner_z - z * inner_y), b + 2 * (z * inner_x - x * inner_z), c + 2 * (x * inner_y - y * inner_x)
    )


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


def from_angles(angles: Array) -> Array:
    """Return the quaternion (4, ...) of roll, pitch, yaw (3, ...) [rad]: turned about z, then y, then x of the body."""
    xp = array_namespace(angles)
    (sr, sp, sy), (cr, cp, cy) = ([f(angles[k, ...] / 2) for k in range(3)] for f in (xp.sin, xp.cos))
    return stacked(
        sr * cp * cy - cr * sp * sy,
        cr * sp * cy + sr * cp * sy,
        cr * cp * sy - sr * sp * cy,
        cr * cp * cy + sr * sp * sy,
    )


def to_angles(quaternion_xyzw: Array) -> Array:
    """Return roll, pitch and yaw (3, ...) [rad] of unit quaternions; pitch within a quarter turn."""
    xp = array_namespace(quaternion_xyzw)
    x, y, z, w = (quaternion_xyzw[k, ...] for k in range(4))
    sine = 2 * (w * y - x * z)
    sine = xp.where(sine > 1, 1.0, xp.where(sine < -1, -1.0, sine))
    return stacked(xp.atan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y)), xp.asin(sine), heading(quaternion_xyzw))


def heading(quaternion_xyzw: Array) -> Array:
    """Return the yaw (...) [rad] of unit quaternions."""
    xp = array_namespace(quaternion_xyzw)
    x, y, z, w = (quaternion_xyzw[k, ...] for k in range(4))
    return xp.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))


def angle_rates(angles: Array, rates_body: Array) -> Array:
    """Return the rates of roll, pitch, yaw (3, ...) [rad/s] at body rates (3, ...); pitch within a quarter turn."""
    xp = array_namespace(angles)
    sr, cr, cp = xp.sin(angles[0, ...]), xp.cos(angles[0, ...]), xp.cos(angles[1, ...])
    across = (sr * rates_body[1, ...] + cr * rates_body[2, ...]) / cp
    return stacked(
        rates_body[0, ...] + xp.sin(angles[1, ...]) * across, cr * rates_body[1, ...] - sr * rates_body[2, ...], across
    )


def body_rates(angles: Array, rates: Array) -> Array:
    """Return body rates (3, ...) [rad/s] at rates of roll, pitch, yaw (3, ...) [rad/s]: inverse of `angle_rates`."""
    xp = array_namespace(angles)
    sr, cr, cp = xp.sin(angles[0, ...]), xp.cos(angles[0, ...]), xp.cos(angles[1, ...])
    return stacked(
        rates[0, ...] - xp.sin(angles[1, ...]) * rates[2, ...],
        cr * rates[1, ...] + sr * cp * rates[2, ...],
        cr * cp * rates[2, ...] - sr * rates[1, ...],
    )
