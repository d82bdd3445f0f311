"""The battery of a small drone: one lithium-polymer cell that discharges with thrust and whose voltage drops under it.

With a charge from 1 (full) to 0, and the thrust f that all rotors produce::

    load = (f / hover)^(3/2),   d charge / dt = -load / 420 s
    voltage = 3.3 V + 0.9 V charge - 0.25 V load
    f <= 4 (maximum_thrust + thrust_most_per_volt (voltage - battery)),   by the table [rotors] of the robot file

Sources. The power of rotors in hover grows as thrust to 3/2: momentum theory (Leishman, "Principles of helicopter
aerodynamics", 2.3). 7 minutes of hover: data sheet of the Crazyflie 2.1 with its 250 mAh. 4.2 V: any such cell, full.
The rest is an engineering estimate: at 3.3 V the knee of such a cell begins, and 0.25 V in hover is 0.12 ohm for cell,
connector and switch at the 2.1 A that discharge 250 mAh in 7 minutes. In between the line is below the firmware's table
of a cell at rest (`bat671723HS25C` in `pm_stm32f4.c`: 3.92 V at half, 3.78 V at a tenth), so that this model loses
thrust rather too early.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from testudo_hardware.arrays import Array, array_namespace
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec

HOVER_S = 420.0  # time of hover from full to empty
FULL_V, EMPTY_V = 4.2, 3.3  # without a load
SAG_V = 0.25  # in hover


@dataclass(frozen=True)
class BatteryParameters:
    """Thrust limits of a drone by its battery; each a number, or an array over the batch (...)."""

    hover_thrust_n: Array  # thrust of all rotors in hover
    thrust_most_n: Array  # largest thrust of all rotors at `at_v`
    thrust_most_n_v: Array  # its growth with the voltage
    at_v: Array

    @classmethod
    def from_spec(cls, spec: RobotSpec, hover_thrust_n: Array, drawn: Mapping[str, Array] | None = None) -> Self:
        """Return the battery of a robot; without `[rotors]` in its file the voltage limits no thrust.

        Args:
            spec: the robot.
            hover_thrust_n: thrust of all its rotors in hover [N].
            drawn: values (...) by `rotors.key` in place of the file's.
        """
        if not spec.rotors:
            return cls(hover_thrust_n, math.inf, 0.0, 0.0)
        value = {key: quantity.value for key, quantity in spec.rotors.items()} | dict(drawn or {})
        return cls(
            hover_thrust_n,
            4 * value["rotors.thrust_most"],
            4 * value["rotors.thrust_most_per_volt"],
            value["rotors.battery"],
        )


def load_of(parameters: BatteryParameters, thrust_n: Array) -> Array:
    """Return the ratio (...) of the current to that of hover at a thrust (...) [N] of all rotors."""
    xp = array_namespace(thrust_n)
    share = xp.where(thrust_n > 0, thrust_n, 0.0) / parameters.hover_thrust_n
    return share * xp.sqrt(share)


def discharged(load: Array, duration_s: float) -> Array:
    """Return the share (...) of a full battery that a load (...) uses in a time [s]."""
    return load * (duration_s / HOVER_S)


def voltage(charge: Array, load: Array) -> Array:
    """Return the voltage (...) [V] under a load (...)."""
    return EMPTY_V + (FULL_V - EMPTY_V) * charge - SAG_V * load


def maximum_thrust(parameters: BatteryParameters, voltage_v: Array) -> Array:
    """Return the largest thrust (...) [N] of all rotors at a voltage (...) [V]."""
    most = maximum_thrust_at(parameters.thrust_most_n, parameters.thrust_most_n_v, voltage_v - parameters.at_v)
    return array_namespace(most).where(most > 0, most, 0.0)


def maximum_thrust_at(most_n: Array, slope_n_v: Array, above_v: Array) -> Array:
    """Return the largest thrust (...) [N] at ``above_v`` (...) [V] above the voltage at which it is ``most_n``."""
    return most_n + slope_n_v * above_v


def minimum_charge(spec: RobotSpec) -> float:
    """Return the charge at which a drone in hover has to land: its voltage is `power.land` of its file.

    Raises:
        TestudoError: the file has no `[power]`, or `power.land` is no voltage of a one-cell battery in hover.
    """
    if not spec.power:
        raise TestudoError(f"{spec.name}: the robot file has no [power]; a battery model needs power.land")
    land_v, (low, high) = spec.power["power.land"].value, (voltage(0.0, 1.0), voltage(1.0, 1.0))
    if not low <= land_v < high:
        raise TestudoError(
            f"{spec.name}: power.land: found {land_v:g} V, expected {low:.4g} to {high:.4g} V, the "
            "voltages of a one-cell battery in hover from empty to full"
        )
    return (land_v - low) / (high - low)
