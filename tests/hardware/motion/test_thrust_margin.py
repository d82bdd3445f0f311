"""What thrust leaves for braking a descent, by hand, and the sentence about a file that promises more."""

import dataclasses

import pytest

from testudo_hardware.motion.thrust_margin import minimum_thrust, needed_m_s2, thrust_warning, thrust_warnings
from testudo_hardware.spec import load_robot

SPEC = load_robot("crazyflie_2x")


def with_ends(spec, **changes):
    """Return a file in which quantities, `table__key`, are known to be a value."""
    for name, value in changes.items():
        table, key = name.split("__")
        full = {"rotors": spec.rotors, "attitude": spec.attitude, "power": spec.power}.get(table, spec.quantities)
        known = dataclasses.replace(full[f"{table}.{key}"], value=value, low=value, high=value)
        field = table if table in ("rotors", "attitude", "power") else "quantities"
        spec = dataclasses.replace(spec, **{field: {**full, f"{table}.{key}": known}})
    return spec


def test_the_least_lift_by_hand():
    """0.10 N a rotor, 0.05 N/V less below 3.6 V, 0.9 of what is asked; 0.84 m/s² are left at 3.6 V."""
    assert minimum_thrust(SPEC).lift_n == pytest.approx(4 * (0.10 - 0.05 * 0.4) * 0.9)
    fresh = minimum_thrust(dataclasses.replace(SPEC, power={}))
    assert fresh.lift_n == pytest.approx(0.36)
    assert fresh.lift_n / 0.0338 - 9.81 == pytest.approx(0.84, abs=0.005)
    assert fresh.names[0] == "rotors.thrust_most"


def test_the_controller_may_ask_for_less_than_the_rotors_can():
    strong = with_ends(SPEC, rotors__thrust_most=0.16, rotors__thrust_most_per_volt=0.0)
    assert minimum_thrust(strong).lift_n == pytest.approx(0.45 * 0.9)
    assert minimum_thrust(strong).names == ("attitude.thrust_most", "attitude.thrust_scale")
    assert minimum_thrust(dataclasses.replace(strong, attitude={})).lift_n == pytest.approx(4 * 0.16 * 0.9)


def test_a_slow_drone_needs_less():
    assert needed_m_s2(SPEC) == SPEC.acceleration_limit_m_s2
    assert needed_m_s2(dataclasses.replace(SPEC, speed_limit_m_s=0.1)) == pytest.approx(0.1 / 0.12)


def test_a_drone_that_may_sink_is_told_of():
    assert thrust_warning(SPEC) == (
        "crazyflie_2x: with the worst values of its file its rotors lift 0.288 N at power.land, 3.2 V, less than "
        "its weight, 0.332 N; replace the intervals of rotors.thrust_most, rotors.thrust_scale, "
        "rotors.thrust_most_per_volt by measured values"
    )


def test_what_is_advised_is_enough():
    weak = dataclasses.replace(SPEC, power={})
    said = thrust_warning(weak)
    assert said.endswith("by measured values, or lower limits.acceleration to 0.84 m/s^2 or limits.speed to 0.10 m/s")
    assert "brakes a descent at 0.84 m/s^2, while the shield assumes 3.50 m/s^2" in said
    assert thrust_warning(dataclasses.replace(weak, acceleration_limit_m_s2=0.84)) is None
    assert thrust_warning(dataclasses.replace(weak, speed_limit_m_s=0.10)) is None
    measured = with_ends(
        SPEC,
        rotors__thrust_most=0.1425,
        rotors__thrust_scale=1.0,
        attitude__thrust_most=0.5,
        attitude__thrust_scale=1.0,
    )
    assert thrust_warning(measured) is None


def test_what_says_nothing_of_rotors_or_is_strong_enough_is_not_told_of():
    specs = [load_robot(name) for name in ("gritsbot_x", "robomaster_s1", "cf21B_500")]
    assert thrust_warnings([*specs, dataclasses.replace(SPEC, rotors={})]) == []
    assert len(thrust_warnings([SPEC, SPEC, load_robot("cf2x_T350")])) == 2
