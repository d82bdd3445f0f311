"""The batteries of drones in many worlds: they empty with thrust, and their voltage limits it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import jax
import jax.numpy as jnp

from testudo_hardware.errors import TestudoError
from testudo_hardware.motion.battery import (
    BatteryParameters,
    discharged,
    load_of,
    maximum_thrust,
    minimum_charge,
    voltage,
)
from testudo_hardware.spec import RobotSpec
from testudo_sim.physics.world_parameters import WorldParameters


@dataclass(frozen=True)
class Batteries:
    """Those of drawn worlds; arrays (N, E)."""

    law: BatteryParameters
    charge: jax.Array | float
    """At the start."""

    @classmethod
    def create(cls, spec: RobotSpec, hover_thrust_n: float, parameters: WorldParameters) -> Self:
        """Return those of a robot file, full if the worlds have not drawn otherwise."""
        law = BatteryParameters.from_spec(spec, hover_thrust_n, parameters.drone)
        return cls(law, 1.0 if parameters.charge is None else parameters.charge)

    def use(self, thrust_n: jax.Array, used: jax.Array, duration_s: float) -> tuple[jax.Array, jax.Array]:
        """Return what all rotors can do [N] in a time [s] that begins with a thrust [N], and the share used after it.

        Counted is what was used, which is small, and float32 loses less of it than of what is left.
        """
        load = load_of(self.law, thrust_n)
        most = maximum_thrust(self.law, voltage(jnp.maximum(self.charge - used, 0.0), load))
        return most, used + discharged(load, duration_s)


def check_battery(spec: RobotSpec) -> None:
    """Refuse a robot whose battery cannot be simulated.

    Raises:
        TestudoError: its file lacks a table, or has another kind of battery.
    """
    missing = [table for table in ("attitude", "rotors", "power") if not getattr(spec, table)]
    if missing:
        raise TestudoError(f"--battery: {spec.name} has no [{missing[0]}] in its file; leave --battery out")
    minimum_charge(spec)
