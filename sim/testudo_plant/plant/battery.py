"""The battery of one drone in the plant; its law is `testudo_hardware.motion.battery`."""

from __future__ import annotations

import numpy as np

from testudo_hardware.motion.battery import BatteryParameters, discharged, load_of, maximum_thrust, voltage
from testudo_hardware.spec import RobotSpec


class Battery:
    """Charge and voltage of one drone."""

    def __init__(self, spec: RobotSpec, hover_thrust_n: float) -> None:
        """Begin full; ``hover_thrust_n`` is what all rotors command in hover [N]."""
        self._law = BatteryParameters.from_spec(spec, hover_thrust_n)
        self.hover_n, self.charge, self._load = hover_thrust_n, 1.0, 0.0

    @property
    def voltage_v(self) -> float:
        """Return what it shows under its load [V]."""
        return voltage(self.charge, self._load)

    @property
    def thrust_most_n(self) -> float:
        """Return what all rotors can do at this voltage [N]; infinite if the robot file says nothing of it."""
        return float(maximum_thrust(self._law, np.float64(self.voltage_v)))

    def use(self, thrust_n: float, duration_s: float) -> None:
        """Let the rotors produce a thrust [N] for a time [s]."""
        self._load = float(load_of(self._law, np.float64(thrust_n)))
        self.charge = max(0.0, self.charge - discharged(self._load, duration_s))
