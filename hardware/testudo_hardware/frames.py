"""Angles, planar rotations and quaternions (x, y, z, w); REP-103: ENU world, FLU body, yaw counter-clockwise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from testudo_hardware.arrays import Array, array_namespace


def wrap_angle(angle: Array) -> Array:
    """Return ``angle`` [rad] wrapped into [-pi, pi)."""
    xp = array_namespace(angle)
    return angle - 2 * math.pi * xp.floor((angle + math.pi) / (2 * math.pi))


def wrapped(angle: float) -> float:
    """Return one plain ``angle`` [rad] wrapped into [-pi, pi]; NaN stays, infinity becomes NaN."""
    return math.remainder(angle, 2 * math.pi) if math.isfinite(angle) else math.nan


def rotate_horizontal(vector: Array, cosine: Array, sine: Array) -> Array:
    """Rotate the first two components of ``vector`` (D, ...) by an angle given as cosine and sine (...).

    A third component, up, is left as it is: body to world for yaw, world to body for -yaw.
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
    """Where a frame stands in its parent frame: shifted, and turned about the common z axis."""

    position: tuple[float, ...]
    """(D,) [m], of the frame's origin in the parent."""
    yaw: float
    """[rad], of the frame in the parent."""

    def then(self, inner: PlanarTransform) -> PlanarTransform:
        """Return where ``inner``, a frame that stands in this one, stands in the parent: map-odom, odom-base."""
        shift = turned(inner.position, self.yaw)
        position = tuple(here + there for here, there in zip(self.position, shift, strict=True))
        return PlanarTransform(position, wrapped(self.yaw + inner.yaw))

    def inverse(self) -> PlanarTransform:
        """Return where the parent stands in this frame."""
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
