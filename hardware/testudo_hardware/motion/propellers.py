"""Propellers with a speed state: speed response, thrust, torque; and the downwash of drones on those below.

With the speed n [rpm] (crazyflow's first-principles model, identified on a thrust stand)::

    f = k1 n + k2 n^2,   q = c1 n + c2 n^2,   dn/dt = r1 (u - n) + r2 (u^2 - n^2)

with one pair r1, r2 while the speed rises and another while it falls. For a constant command u the speed has a closed
form: the offset e = n - u follows de/dt = -(r1 + 2 r2 u) e - r2 e^2, a logistic equation.

Downwash is the model of gym-pybullet-drones (Panerati and others, "Learning to fly: a gym environment with PyBullet
physics", 2021, from flights of two Crazyflies), for a drone dz below another at the horizontal distance d::

    F = -a exp(-(d / b)^2 / 2),   a = 2267.18 N (r / (4 dz))^2,   b = 0.16 dz - 0.11 m

Close to the rotors, outside the range of those flights, its width vanishes and its force diverges. There the width is
bounded by the vehicle's radius and the force by 0.1 N, the largest that Neural-Swarm2 measured (Shi and others,
"Planning and control of heterogeneous multirotor swarms using learned interactions", T-RO 2021). Torques and side
forces are left out.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from testudo_hardware.arrays import Array, array_namespace, stacked
from testudo_hardware.spec import RobotSpec

RAD_S_PER_RPM = 2 * math.pi / 60


@dataclass(frozen=True)
class Propellers:
    """The equal propellers of one drone; each a number, or an array over the batch (...)."""

    thrust_curve: tuple[Array, Array]  # k1 [N/rpm], k2 [N/rpm²], above zero
    torque_curve: tuple[Array, Array]  # c1 [N m/rpm], c2 [N m/rpm²]
    rise: tuple[Array, Array]  # r1 [1/s], r2 [1/(s rpm)] while the speed grows
    fall: tuple[Array, Array]  # the same while it falls
    inertia_kg_m2: Array  # of one propeller with its motor

    @classmethod
    def from_spec(cls, spec: RobotSpec, drawn: Mapping[str, Array] | None = None) -> Self | None:
        """Return those of a robot file, None without `[propellers]`; ``drawn`` (...) by key replaces its values."""
        if not spec.propellers:
            return None
        value = {key: quantity.value for key, quantity in spec.propellers.items()} | dict(drawn or {})
        get = {key.removeprefix("propellers."): number for key, number in value.items()}
        return cls(
            (get["thrust_linear"], get["thrust_square"]),
            (get["torque_linear"], get["torque_square"]),
            (get["rise_linear"], get["rise_square"]),
            (get["fall_linear"], get["fall_square"]),
            get["inertia"],
        )

    @classmethod
    def from_crazyflow(cls, values: Mapping[str, Any]) -> Self:
        """Return those of a drone in crazyflow's file `first_principles`, whose curves start at zero."""
        thrust, torque, speed = (
            [float(x) for x in values[key]] for key in ("rpm2thrust", "rpm2torque", "rotor_dyn_coef")
        )
        return cls(
            (thrust[1], thrust[2]),
            (torque[1], torque[2]),
            (speed[0], speed[1]),
            (speed[2], speed[3]),
            float(values["prop_inertia"]),
        )

    def speed(self, thrust: Array) -> Array:
        """Return the speed (...) [rpm] that gives a thrust (...) [N], zero or above."""
        xp = array_namespace(thrust)
        first, second = self.thrust_curve
        return (-first + xp.sqrt(first**2 + 4 * second * thrust)) / (2 * second)

    def thrust(self, speed: Array) -> Array:
        """Return the thrust (...) [N] at a speed (...) [rpm]."""
        return (self.thrust_curve[0] + self.thrust_curve[1] * speed) * speed

    def torque(self, speed: Array) -> Array:
        """Return the torque (...) [N m] of the air at a speed (...) [rpm]."""
        return (self.torque_curve[0] + self.torque_curve[1] * speed) * speed

    def speed_after(self, speed: Array, command: Array, duration_s: Array) -> Array:
        """Return the speed (...) [rpm] after a time under a constant command (...) [rpm], above zero."""
        xp = array_namespace(speed)
        rising = command > speed
        first, second = (
            xp.where(rising, up + 0 * speed, down + 0 * speed) for up, down in zip(self.rise, self.fall, strict=True)
        )
        offset = speed - command
        rate = first + 2 * second * command
        fade = xp.exp(-rate * duration_s)
        return command + offset * fade / (1 + second * offset * (1 - fade) / rate)


STRENGTH_N = 2267.18
SPREAD = 0.16
SPREAD_OFFSET_M = -0.11
PROPELLER_RADIUS_M = 0.0231348  # of the model, to which its strength belongs
MOST_N = 0.1
_TINY_M = 1e-3


def downwash(position_world: Array, radius_m: float, strength: float = 1.0) -> Array:
    """Return the force (3, N, ...) [N] on each of N drones in the downwash of the others.

    Args:
        position_world: (3, N, ...) [m].
        radius_m: of a vehicle: the least width of its downwash.
        strength: relative to the model; for a heavier drone the ratio of its weight to a Crazyflie's.
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
    """Return the downward force (...) [N] at (...) [m] below a drone and a squared horizontal distance (...) [m²]."""
    xp = array_namespace(below_m)
    depth = xp.where(below_m > _TINY_M, below_m, _TINY_M)
    force = STRENGTH_N * (PROPELLER_RADIUS_M / (4 * depth)) ** 2
    width = SPREAD * depth + SPREAD_OFFSET_M
    width = xp.where(width > radius_m, width, radius_m)
    return xp.where(force < MOST_N, force, MOST_N) * xp.exp(-beside_m2 / (2 * width**2))
