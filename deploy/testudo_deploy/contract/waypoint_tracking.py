"""The tracking law between a way-point that a policy chose and the velocity that the shield checks.

The velocity of the control point is proportional to its distance from the way-point, and limited in length. At the gain
`GAIN_PER_S` this is the law v = 0.8 e cos(a), omega = 3 e sin(a) of the Robotarium suite (arXiv 2505.06771), with e and
a distance and bearing of the way-point, stated for the control point: it moves along the robot's heading as that law
moves the robot, and turns it faster, since the control point is only centimetres ahead of the axle.

The law runs at every control tick, on the robot and in simulation alike; the policy chooses a way-point at its
decisions only.
"""

from __future__ import annotations

from dataclasses import dataclass

from testudo_hardware.arrays import Array, array_namespace

GAIN_PER_S = 0.8


@dataclass(frozen=True)
class WaypointTracking:
    """The law with its numbers, as the contract of a policy states them."""

    gain_per_s: float
    speed_limit_m_s: float

    def velocity_world(self, waypoint_world: Array, point_world: Array) -> Array:
        """Return the velocity (D, ...) [m/s] towards a way-point (D, ...) [m] of a control point (D, ...) [m]."""
        xp = array_namespace(point_world)
        wanted = self.gain_per_s * (waypoint_world - point_world)
        speed = xp.sqrt(xp.sum(wanted**2, axis=0, keepdims=True))
        return wanted * (self.speed_limit_m_s / xp.maximum(speed, self.speed_limit_m_s + 0 * speed))

    def waypoint_world(self, velocity_world: Array, point_world: Array) -> Array:
        """Return the way-point (D, ...) [m] under which the law gives a velocity (D, ...) within the limit."""
        return point_world + velocity_world / self.gain_per_s
