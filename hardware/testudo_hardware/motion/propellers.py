"""Propellers that have a speed: how it answers a command, and the thrust and torque that come with it.

With the speed n [rpm] (crazyflow's first-principles model, identified on a thrust stand)::

    f = k1 n + k2 n^2,   q = c1 n + c2 n^2,   dn/dt = r1 (u - n) + r2 (u^2 - n^2)

with one pair r1, r2 while it rises and another while it falls. For a held command u the speed has a closed form: the
offset e = n - u follows de/dt = -(r1 + 2 r2 u) e - r2 e^2, a logistic equation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from testudo_hardware.arrays import Array, array_namespace
from testudo_hardware.spec import RobotSpec

RAD_S_PER_RPM = 2 * math.pi / 60


@dataclass(frozen=True)
class Propellers:
    """Of one drone, all alike; each a number, or an array over the batch (...)."""

    thrust_curve: tuple[Array, Array]
    """k1 [N/rpm], k2 [N/rpm²], above zero."""
    torque_curve: tuple[Array, Array]
    """c1 [N m/rpm], c2 [N m/rpm²]."""
    rise: tuple[Array, Array]
    """r1 [1/s], r2 [1/(s rpm)] while the speed grows."""
    fall: tuple[Array, Array]
    """The same while it falls."""
    inertia_kg_m2: Array
    """Of one propeller with its motor."""

    @classmethod
    def from_spec(cls, spec: RobotSpec, drawn: Mapping[str, Array] | None = None) -> Self | None:
        """Return those of a robot file with a table `[propellers]`; None if it has none.

        Args:
            spec: the robot.
            drawn: values (...) by `propellers.key` in place of the file's.
        """
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
        """Return those of a drone in crazyflow's file `first_principles`, whose curves begin at zero."""
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
