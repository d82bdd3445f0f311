"""The battery of a drone, by hand: what it shows, what it leaves of the thrust, and what is no battery."""

import dataclasses
import math

import numpy as np
import pytest

from testudo_hardware.errors import TestudoError
from testudo_hardware.motion.battery import (
    HOVER_S,
    BatteryParameters,
    discharged,
    load_of,
    maximum_thrust,
    minimum_charge,
    voltage,
)
from testudo_hardware.motion.rotor_drone import RotorDroneParameters
from testudo_hardware.spec import load_robot

SPEC = load_robot("crazyflie_2x")
HOVER_N = 0.33
LAW = BatteryParameters.from_spec(SPEC, HOVER_N)


@pytest.mark.parametrize(
    ("charge", "share", "expected_v"),
    [
        (1.0, 0.0, 4.2),
        (1.0, 1.0, 3.95),  # 4.2 - 0.25
        (0.5, 1.0, 3.5),  # 3.75 - 0.25
        (0.2, 1.44, 3.048),  # 3.48 - 0.25 * 1.2^3
        (0.0, 0.0, 3.3),
    ],
)
def test_voltage_by_hand(charge, share, expected_v, asarray):
    load = load_of(LAW, asarray([share * HOVER_N]))
    assert float(voltage(asarray([charge]), load)[0]) == pytest.approx(expected_v, abs=1e-12)


def test_thrust_limit_by_hand(asarray):
    """crazyflie_2x: 4 (0.1425 N + 0.0326 N/V (voltage - 3.6 V)), and never below none."""
    found = maximum_thrust(LAW, asarray([3.6, 3.2, 4.1, -2.0]))
    expected = [0.57, 0.57 - 4 * 0.0326 * 0.4, 0.57 + 4 * 0.0326 * 0.5, 0.0]
    np.testing.assert_allclose(np.asarray(found), expected, atol=1e-12)


def test_worlds_and_robots_are_apart(asarray):
    """Drawn values (E,) beside charges (N, E)."""
    drawn = {"rotors.thrust_most": asarray([0.1, 0.16]), "rotors.thrust_most_per_volt": asarray([0.0, 0.05])}
    law = BatteryParameters.from_spec(SPEC, HOVER_N, drawn)
    load = load_of(law, asarray([[HOVER_N, 0.0], [-1.0, HOVER_N]]))
    np.testing.assert_allclose(np.asarray(load), [[1, 0], [0, 1]], atol=1e-12)
    most = maximum_thrust(law, voltage(asarray([[1.0, 1.0], [0.5, 0.5]]), load))
    np.testing.assert_allclose(np.asarray(most), [[0.4, 0.64 + 0.2 * 0.6], [0.4, 0.64 - 0.2 * 0.1]], atol=1e-12)


def test_a_hover_empties_it_in_its_time():
    assert discharged(np.float64(1.0), HOVER_S) == pytest.approx(1.0)
    assert discharged(load_of(LAW, np.float64(4 * HOVER_N)), 1.0) == pytest.approx(8 / HOVER_S)


def test_the_rotors_know_the_same_limit():
    volts = np.array([3.2, 3.6, 4.1])
    np.testing.assert_allclose(
        4 * RotorDroneParameters.from_spec(SPEC, volts).thrust_most_n, maximum_thrust(LAW, volts)
    )


def test_without_rotors_the_voltage_limits_nothing():
    law = BatteryParameters.from_spec(dataclasses.replace(SPEC, rotors={}), HOVER_N)
    assert float(maximum_thrust(law, np.float64(3.0))) == math.inf


def test_the_least_charge_shows_the_voltage_to_land_in_hover():
    assert voltage(minimum_charge(SPEC), 1.0) == pytest.approx(SPEC.power["power.land"].value)
    assert minimum_charge(SPEC) == pytest.approx((3.2 - 3.05) / 0.9)


def test_what_is_no_battery_of_one_cell_is_refused():
    with pytest.raises(TestudoError, match=r"^crazyflie_2x: the robot file has no \[power\]"):
        minimum_charge(dataclasses.replace(SPEC, power={}))
    two_cells = dataclasses.replace(SPEC.power["power.land"], value=6.4, low=6.4, high=6.4)
    with pytest.raises(TestudoError, match=r"power\.land: found 6\.4 V, expected 3\.05 to 3\.95 V"):
        minimum_charge(dataclasses.replace(SPEC, power={**SPEC.power, "power.land": two_cells}))
