"""How the plant stands in for a driver: noise, ages, time-outs and quirks of a robot as numbers with their sources.

The section `[emulation]` of a link profile. The robot itself never reads it: nothing here makes a robot safe, it makes
simulation as bad as the real driver.
"""

from dataclasses import dataclass, field, fields

from testudo_hardware.strict_files import OPTIONAL


@dataclass(frozen=True)
class Number:
    """A number with its unit and source."""

    value: float
    unit: str
    source: str


_LIMITS: dict[str, tuple[str, float, float]] = {
    "latency_low": ("s", 0.0, 1.0),
    "latency_high": ("s", 0.0, 1.0),
    "position_noise": ("m", 0.0, 1.0),
    "yaw_noise": ("rad", 0.0, 1.0),
    "speed_noise": ("m/s", 0.0, 1.0),
    "turn_rate_noise": ("rad/s", 0.0, 2.0),
    "odometry_drift": ("1", 0.0, 0.3),
    "localisation_rate": ("Hz", 0.1, 200.0),
    "dead_man": ("s", 0.01, 3600.0),
    "reverse_way": ("m", 0.0, 10.0),
    "joystick_rate": ("Hz", 0.0, 100.0),
    "status_rate": ("Hz", 0.1, 100.0),
}
"""Unit and range of each key."""


@dataclass(frozen=True)
class Emulation:
    """What a driver and its localisation do to measurements and commands; what is missing is ideal, or as ever.

    Noise is white, one standard deviation, in each measurement.
    """

    latency_low: Number  # least age of a measurement on arrival
    latency_high: Number  # greatest age of a measurement on arrival
    position_noise: Number  # of each coordinate of a pose in the shared frame
    yaw_noise: Number
    speed_noise: Number | None = field(default=None, metadata=OPTIONAL)
    turn_rate_noise: Number | None = field(default=None, metadata=OPTIONAL)
    odometry_drift: Number | None = field(default=None, metadata=OPTIONAL)
    """Largest error of wheel odometry, as a share of way and turn."""
    localisation_rate: Number | None = field(default=None, metadata=OPTIONAL)
    """Rate of the poses that correct odometry."""
    dead_man: Number | None = field(default=None, metadata=OPTIONAL)
    """Longest time for which the base acts on its last command, where that differs from the robot file; an hour: for
    ever."""
    reverse_way: Number | None = field(default=None, metadata=OPTIONAL)
    """The base drives backwards only so far, and earns that by driving forward; missing: as far as commanded."""
    joystick_rate: Number | None = field(default=None, metadata=OPTIONAL)
    """Rate of zeros from another publisher of commands; 0: it is there, and silent."""
    status_rate: Number | None = field(default=None, metadata=OPTIONAL)
    """Rate at which a drone reports its state."""

    def fault(self) -> str:
        """Return the key that is wrong, what was found and what is expected; empty if all are right."""
        for entry in fields(self):
            number: Number | None = getattr(self, entry.name)
            if number is None:
                continue
            unit, low, high = _LIMITS[entry.name]
            if number.unit != unit or not low <= number.value <= high:
                found = f"found {number.value:g} {number.unit}, expected {low:g} to {high:g} {unit}"
                return f"{entry.name}: {found}"
        if self.latency_high.value < self.latency_low.value:
            return (
                f"latency_high: found {self.latency_high.value:g} s, expected at least latency_low, "
                f"{self.latency_low.value:g} s"
            )
        return ""


def value_of(number: Number | None, default: float) -> float:
    """Return a number, or what holds where it is missing."""
    return default if number is None else number.value
