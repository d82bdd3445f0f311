"""True dynamics of single robots in the plant, which differ from the robot file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from testudo_hardware.errors import TestudoError
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import Quantity, RobotSpec


@dataclass(frozen=True)
class PlantParameters:
    """The dynamics of one robot in the plant."""

    velocity_lag_s: float
    """First-order lag from effective to realised velocity."""
    command_delay_s: float
    """Time from arrival to effect of a command."""
    speed_scale: float
    """Realised over commanded speed."""
    turn_scale: float
    """Realised over commanded turn rate; NaN for a robot without one."""
    turn_slip_s_rad: float = 0.0
    """Forward speed is divided by 1 + (this times commanded turn rate)²."""
    attitude: Mapping[str, float] = field(default_factory=dict)
    """Values by `attitude.key` that replace those in the file of a drone with an attitude."""

    @classmethod
    def nominal(cls, spec: RobotSpec) -> PlantParameters:
        """Return the parameters of the robot file."""
        slip = spec.turn_slip_s_rad if "dynamics.turn_slip" in spec.quantities else 0.0
        return cls(spec.velocity_lag_s, spec.command_delay_s, spec.speed_scale, spec.turn_scale, slip)

    @classmethod
    def sample(cls, spec: RobotSpec, rng: np.random.Generator, spread: float = 0.2) -> PlantParameters:
        """Return parameters of the robot file times 1 ± ``spread``, uniform, within the intervals of the file.

        Shield and monitors assume that parameters are within the intervals.

        Raises:
            TestudoError: the spread is not in [0, 1).
        """
        if not (math.isfinite(spread) and 0 <= spread < 1):
            raise TestudoError(
                f"plant: spread: found {spread}, expected a share from 0 to below 1, such as 0.2 for ±20 %"
            )
        names = ("velocity_lag", "command_delay", "speed_scale", "turn_scale")
        known = [spec.quantities.get(f"dynamics.{name}") for name in names]
        low, high = np.array(
            [
                (1 - spread, 1 + spread)
                if one is None
                else (max(1 - spread, one.low / one.value), min(1 + spread, one.high / one.value))
                for one in known
            ]
        ).T
        lag, delay, speed, turn = rng.uniform(low, high).tolist()
        slip = spec.quantities.get("dynamics.turn_slip")
        return cls(
            spec.velocity_lag_s * lag,
            spec.command_delay_s * delay,
            spec.speed_scale * speed,
            spec.turn_scale * turn,
            _within(slip, rng, spread) if slip is not None else 0.0,
            {key: _within(one, rng, spread) for key, one in spec.attitude.items()},
        )

    def channel_scale(self, spec: RobotSpec) -> tuple[float, ...]:
        """Return the scale of each command channel of ``spec``."""
        if spec.kind == DIFFERENTIAL_DRIVE:
            return (self.speed_scale, self.turn_scale)
        return (self.speed_scale,) * spec.dimension


def _within(quantity: Quantity, rng: np.random.Generator, spread: float) -> float:
    """Return a value times 1 ± ``spread``, uniform, within its interval."""
    return float(
        rng.uniform(max(quantity.low, quantity.value * (1 - spread)), min(quantity.high, quantity.value * (1 + spread)))
    )
