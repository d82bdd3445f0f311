"""Force laws of the actuators: from velocity commands to forces in every MuJoCo world.

One implementation for NumPy (the plant) and JAX (the tiers). Arrays are component-first: (channel, robot, ...batch).
Each law reproduces the first-order lag of the robot file exactly at the physics step, within the acceleration limit.
"""

from dataclasses import dataclass
from typing import Any

from testudo_hardware.arrays import Array, array_namespace
from testudo_hardware.motion.motion_state import TINY, length, shorten, sum_terms
from testudo_hardware.motion.rotor_drone import GRAVITY_M_S2


def discrete_gain(velocity_lag_s: Array, step_s: float) -> Array:
    """Return the rate [1/s] (...) at which an explicit step follows a first-order lag [s] (...) exactly."""
    xp = array_namespace(velocity_lag_s)
    return -xp.expm1(-step_s / velocity_lag_s) / step_s


def wheel_forces(target: Array, rate: Array, gain: Array, inertia: Array, limit: Array) -> Array:
    """Return the forces (2, n, ...) of the motors for speed [N] and turn rate [N m] of wheeled robots.

    Args:
        target: commanded forward speed [m/s] and turn rate [rad/s] (2, n, ...).
        rate: measured at the wheels (2, n, ...).
        gain: `discrete_gain` (...).
        inertia: effective inertia of each motor, [kg] and [kg m^2] (2, n, 1...).
        limit: largest acceleration, [m/s^2] and [rad/s^2] (2, n, 1...).
    """
    return inertia * _clip(gain * (target - rate), limit)


def planar_forces(target: Array, yaw: Array, velocity: Array, gain: Array, body: "PlanarBody", grip: Array) -> Array:
    """Return the forces (3, n, ...) along x, y [N] and about z [N m] of discs with the motion of wheeled robots.

    Forward speed and turn rate follow their targets; lateral forces are limited by the grip of the wheels. The
    velocity turns with the body, so that a free disc follows the arc of the motion model exactly.

    Args:
        target: commanded forward speed [m/s] and turn rate [rad/s] (2, n, ...).
        yaw: heading (n, ...) [rad].
        velocity: world velocity x, y [m/s] and turn rate [rad/s] (3, n, ...).
        gain: `discrete_gain` (...).
        body: masses and limits.
        grip: friction of the wheels on the floor (...).
    """
    xp = array_namespace(target)
    step = body.step_s
    cos, sin = xp.cos(yaw), xp.sin(yaw)
    forward = cos * velocity[0, ...] + sin * velocity[1, ...]
    aside = cos * velocity[1, ...] - sin * velocity[0, ...]
    turn = _clip(gain * (target[1, ...] - velocity[2, ...]), body.turn_limit)
    hold = grip * GRAVITY_M_S2 + 0 * aside
    forward = forward + step * _clip(_clip(gain * (target[0, ...] - forward), body.limit), hold)
    aside = aside + step * _clip(-aside / step, hold)
    after = yaw + step * (velocity[2, ...] + step * turn)
    cos, sin = xp.cos(after), xp.sin(after)
    x, y = cos * forward - sin * aside, sin * forward + cos * aside
    return xp.stack(
        [body.mass * (x - velocity[0, ...]) / step, body.mass * (y - velocity[1, ...]) / step, body.inertia * turn]
    )


def point_forces(target: Array, velocity: Array, gain: Array, mass: Array, limit: Array) -> Array:
    """Return the forces (D, n, ...) [N] of robots that follow velocity commands in the world.

    Args:
        target: commanded velocity (D, n, ...) [m/s].
        velocity: the velocity (D, n, ...) [m/s].
        gain: `discrete_gain` (...).
        mass: (n, 1...) [kg].
        limit: largest acceleration (n, 1...) [m/s^2], in any direction.
    """
    return mass * shorten(gain * (target - velocity), limit)


def weaker_braking(forces: Array, velocity: Array, share: Array, *, turns: bool) -> Array:
    """Return forces (D, n, ...) with decelerating parts scaled by ``share`` (n, ...).

    ``forces`` of the motors and ``velocity`` (D, n, ...) are in the same channels; ``share`` is the braking relative to
    nominal; ``turns``: the second channel is a turn rate, which is not scaled.
    """
    xp = array_namespace(forces)
    if turns:
        slows = forces[0, ...] * velocity[0, ...] < 0
        return xp.stack([xp.where(slows, share, 1.0) * forces[0, ...], forces[1, ...]])
    direction = velocity / (length(velocity) + TINY)
    along = sum_terms([forces[k, ...] * direction[k, ...] for k in range(forces.shape[0])])
    return forces + (share - 1) * xp.minimum(along, 0.0) * direction


@dataclass(frozen=True)
class PlanarBody:
    """A disc that models a wheeled robot; arrays (n, 1...)."""

    mass: Any  # [kg]
    inertia: Any  # about the vertical [kg m^2]
    limit: Any  # largest acceleration [m/s^2]
    turn_limit: Any  # largest acceleration of the turn rate [rad/s^2]
    step_s: float  # physics step


def _clip(values: Array, limit: Array) -> Array:
    xp = array_namespace(values)
    return xp.maximum(xp.minimum(values, limit), -limit)
