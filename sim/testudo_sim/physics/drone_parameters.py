"""What differs between worlds of drones: the tables of a robot file below its velocity controller."""

from __future__ import annotations

import jax

from testudo_hardware.motion.battery import minimum_charge
from testudo_hardware.spec import Quantity, RobotSpec

_FOLD, _CHARGE_FOLD = 3, 4
"""Random numbers of their own, so that what else a seed draws stays."""


def uncertain(spec: RobotSpec) -> dict[str, Quantity]:
    """Return the quantities of `[attitude]`, `[rotors]` and `[propellers]` that have an interval, in a fixed order."""
    tables = {**spec.attitude, **spec.rotors, **spec.propellers}
    return {key: quantity for key, quantity in sorted(tables.items()) if quantity.high > quantity.low}


def draw_drones(keys: jax.Array, spec: RobotSpec, spread: float) -> dict[str, jax.Array] | None:
    """Return one draw (E,) of each uncertain quantity for each key (E,); None for a robot without such tables.

    Args:
        keys: one of each world.
        spec: the robot.
        spread: share of the intervals (0: nominal).
    """
    found = uncertain(spec)
    if not found:
        return None
    units = jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, _FOLD), (len(found),)))(keys).T
    return {
        key: quantity.value + spread * (quantity.low - quantity.value + unit * (quantity.high - quantity.low))
        for unit, (key, quantity) in zip(units, found.items(), strict=True)
    }


def draw_charges(keys: jax.Array, spec: RobotSpec, size: int, spread: float) -> jax.Array:
    """Return the charge (N, E) with which the batteries of a team begin in each world, key (E,).

    From full down to just above that at which a drone in hover is told to land.

    Args:
        keys: one of each world.
        spec: the robot.
        size: drones in a world.
        spread: share of that range, from full down (0: full).

    Raises:
        TestudoError: the robot file has no `[power]`, or one of another kind of battery.
    """
    units = jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, _CHARGE_FOLD), (size,)))(keys).T
    return 1 - spread * (1 - minimum_charge(spec)) * units
