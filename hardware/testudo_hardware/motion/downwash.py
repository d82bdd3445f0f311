"""The wake of drones on those below them: a force straight down.

The model of gym-pybullet-drones (Panerati and others, "Learning to fly: a gym environment with PyBullet physics", 2021,
from flights of two Crazyflies), for a drone dz below another and d beside it::

    F = -a exp(-(d / b)^2 / 2),   a = 2267.18 N (r / (4 dz))^2,   b = 0.16 dz - 0.11 m

Near to the rotors its width turns to nothing and its force grows without bound, outside of what was flown. There the
width is held at the vehicle's radius and the force at the 0.1 N that Neural-Swarm2 measured at most (Shi and others,
"Planning and control of heterogeneous multirotor swarms using learned interactions", T-RO 2021). Torques and forces to
the side are left out.
"""

from __future__ import annotations

from testudo_hardware.arrays import Array, array_namespace, stacked

STRENGTH_N = 2267.18
SPREAD = 0.16
SPREAD_OFFSET_M = -0.11
PROPELLER_RADIUS_M = 0.0231348
"""That of the model, whose strength belongs to it."""
MOST_N = 0.1
_TINY_M = 1e-3


def downwash(position_world: Array, radius_m: float, strength: float = 1.0) -> Array:
    """Return the force (3, N, ...) [N] on each of N drones in the wakes of the others.

    Args:
        position_world: (3, N, ...) [m].
        radius_m: of a vehicle: the least width of a wake.
        strength: of the wake over the model's; that of a heavier drone is its weight over a Crazyflie's.
    """
    xp = array_namespace(position_world)
    x, y, z = (position_world[k, ...] for k in range(3))
    force = z * 0
    for shift in range(1, position_world.shape[1]):
        above = xp.roll(z, shift, axis=0) - z
        beside = (xp.roll(x, shift, axis=0) - x) ** 2 + (xp.roll(y, shift, axis=0) - y) ** 2
        force = force - xp.where(above > 0, wake(above, beside, radius_m), 0.0)
    return stacked(x * 0, y * 0, force * strength)


def wake(below_m: Array, beside_m2: Array, radius_m: float) -> Array:
    """Return the force down (...) [N] at a depth (...) [m] below a drone and a squared way (...) [m²] beside it."""
    xp = array_namespace(below_m)
    depth = xp.where(below_m > _TINY_M, below_m, _TINY_M)
    force = STRENGTH_N * (PROPELLER_RADIUS_M / (4 * depth)) ** 2
    width = SPREAD * depth + SPREAD_OFFSET_M
    width = xp.where(width > radius_m, width, radius_m)
    return xp.where(force < MOST_N, force, MOST_N) * xp.exp(-beside_m2 / (2 * width**2))
