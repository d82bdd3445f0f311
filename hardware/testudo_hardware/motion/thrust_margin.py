"""Whether the thrust of a drone can brake a descent as its limits promise, with all quantities at their worst."""

from collections.abc import Iterable
from dataclasses import dataclass

from testudo_hardware.motion.battery import maximum_thrust_at
from testudo_hardware.motion.rotor_drone import GRAVITY_M_S2
from testudo_hardware.spec import RobotSpec


@dataclass(frozen=True)
class MinimumThrust:
    """Guaranteed lift of all rotors at full command, and the quantities that limit it."""

    lift_n: float
    names: tuple[str, ...]  # of the limiting quantities


def minimum_thrust(spec: RobotSpec) -> MinimumThrust | None:
    """Return the guaranteed lift, with every quantity at its worst; None for a file without `[rotors]`.

    It is for the voltage at which the drone has to land. Where the file has `[attitude]`, its controller limits the
    thrust, too.
    """
    if not spec.rotors:
        return None
    below_v = spec.power["power.land"].low - spec.rotors["rotors.battery"].high if spec.power else 0.0
    slope = spec.rotors["rotors.thrust_most_per_volt"]
    most = maximum_thrust_at(spec.rotors["rotors.thrust_most"].low, slope.high if below_v < 0 else slope.low, below_v)
    by_rotors = MinimumThrust(
        4 * max(most, 0.0) * spec.rotors["rotors.thrust_scale"].low,
        ("rotors.thrust_most", "rotors.thrust_scale", "rotors.thrust_most_per_volt"),
    )
    if not spec.attitude:
        return by_rotors
    asked_n, scale = spec.attitude["attitude.thrust_most"].low, spec.attitude["attitude.thrust_scale"].low
    by_controller = MinimumThrust(asked_n * scale, ("attitude.thrust_most", "attitude.thrust_scale"))
    return min(by_rotors, by_controller, key=lambda one: one.lift_n)


def needed_m_s2(spec: RobotSpec) -> float:
    """Return the largest deceleration of a stop from full speed, see `motion.velocity_point`."""
    return min(spec.acceleration_limit_m_s2, spec.speed_limit_m_s / spec.quantities["dynamics.velocity_lag"].low)


def thrust_warning(spec: RobotSpec) -> str | None:
    """Return a warning if the thrust of a drone may not brake a descent as the shield assumes; else None.

    None also for a file without rotors. It is no refusal: intervals that combine several sources are wider than one
    vehicle, which only measurements can show.
    """
    least, mass = minimum_thrust(spec), spec.quantities["geometry.mass"]
    if least is None:
        return None
    weight_n = mass.high * GRAVITY_M_S2
    left_m_s2 = (least.lift_n - weight_n) / mass.high
    if left_m_s2 >= needed_m_s2(spec):
        return None
    at = f" at power.land, {spec.power['power.land'].low:g} V" if spec.power else ""
    head = f"{spec.name}: with the worst values of its file its rotors lift {least.lift_n:.3f} N{at}"
    advice = f"replace the intervals of {', '.join(least.names)} by measured values"
    if left_m_s2 <= 0:
        return f"{head}, less than its weight, {weight_n:.3f} N; {advice}"
    slow_m_s = left_m_s2 * spec.quantities["dynamics.velocity_lag"].low
    return (
        f"{head}, which brakes a descent at {left_m_s2:.2f} m/s^2, while the shield assumes "
        f"{needed_m_s2(spec):.2f} m/s^2; {advice}, or lower limits.acceleration to {_down(left_m_s2)} m/s^2 or "
        f"limits.speed to {_down(slow_m_s)} m/s"
    )


def thrust_warnings(specs: Iterable[RobotSpec]) -> list[str]:
    """Return the warnings of the robots of a fleet, each once."""
    found = (thrust_warning(spec) for spec in specs)
    return list(dict.fromkeys(line for line in found if line is not None))


def _down(value: float) -> str:
    """Return a value rounded down to two places, so that the advice is sufficient."""
    return f"{int(value * 100) / 100:.2f}"
