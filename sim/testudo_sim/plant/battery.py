"""The battery of a small drone: one lithium-polymer cell that empties by thrust and sags under it.

The current of rotors in hover grows as thrust to the power 3/2 (momentum theory). Numbers of a Crazyflie 2.1 with its
250 mAh cell: 7 minutes of hover, 4.2 V full, 3.0 V critical as in its firmware; the sag is an engineering estimate.
"""

from __future__ import annotations

from testudo_hardware.spec import RobotSpec

HOVER_S = 420.0
"""Time of hover from full to empty."""
_FULL_V, _EMPTY_V = 4.2, 3.3
"""Without a load."""
_SAG_V = 0.25
"""In hover."""


class Battery:
    """Charge and voltage of one drone."""

    def __init__(self, spec: RobotSpec, hover_thrust_n: float) -> None:
        """Begin full; ``hover_thrust_n`` is what all rotors command in hover [N]."""
        self.hover_n = hover_thrust_n
        self._most_n, self._slope_n_v, self._at_v = float("inf"), 0.0, 0.0
        if spec.rotors:
            one = {key: quantity.value for key, quantity in spec.rotors.items()}
            self._most_n, self._slope_n_v = 4 * one["rotors.thrust_most"], 4 * one["rotors.thrust_most_per_volt"]
            self._at_v = one["rotors.battery"]
        self.charge, self._load = 1.0, 0.0

    @property
    def voltage_v(self) -> float:
        """Return what it shows under its load [V]."""
        return _EMPTY_V + (_FULL_V - _EMPTY_V) * self.charge - _SAG_V * self._load

    @property
    def thrust_most_n(self) -> float:
        """Return what all rotors can do at this voltage [N]; infinite if the robot file says nothing of it."""
        return self._most_n + self._slope_n_v * (self.voltage_v - self._at_v)

    def use(self, thrust_n: float, duration_s: float) -> None:
        """Let the rotors produce a thrust [N] for a time [s]."""
        self._load = (max(thrust_n, 0.0) / self.hover_n) ** 1.5
        self.charge = max(0.0, self.charge - self._load * duration_s / HOVER_S)
