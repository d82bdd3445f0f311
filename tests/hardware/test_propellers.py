"""Propellers with a speed: closed form against small steps, and what they add to the rotor model."""

import dataclasses

import numpy as np
import pytest

from testudo_hardware.motion import rotor_drone
from testudo_hardware.motion.propellers import RAD_S_PER_RPM, Propellers
from testudo_hardware.motion.rotor_drone import RotorDroneParameters, RotorDroneState
from testudo_hardware.spec import load_robot

SPEC = load_robot("crazyflie_2x")
BLADES = Propellers.from_spec(SPEC)
SPUN = RotorDroneParameters.from_spec(SPEC, with_propellers=True)
UNEVEN = dataclasses.replace(BLADES, rise=(13.996, 0.000111), fall=(5.933, 0.0003195))


def test_speed_and_thrust_are_inverse():
    thrust = np.linspace(0.0, 0.2, 50)
    np.testing.assert_allclose(BLADES.thrust(BLADES.speed(thrust)), thrust, atol=1e-15)


@pytest.mark.parametrize("blades", [BLADES, UNEVEN], ids=["crazyflie_2x", "brushless"])
@pytest.mark.parametrize(("start", "command"), [(5000.0, 20000.0), (20000.0, 5000.0), (12000.0, 12000.0)])
def test_the_closed_form_is_what_small_steps_give(blades, start, command):
    def slope(speed):
        first, second = blades.rise if command > speed else blades.fall
        return first * (command - speed) + second * (command**2 - speed**2)

    speed, step = start, 1e-4
    for _ in range(1000):
        middle = speed + step / 2 * slope(speed)
        speed = speed + step * slope(middle)
    found = blades.speed_after(np.array([start]), np.array([command]), 0.1)
    assert found[0] == pytest.approx(speed, rel=1e-6)


def test_one_body_on_every_array_library(asarray):
    speed, command = np.linspace(4000, 20000, 7), np.linspace(20000, 4000, 7)
    theirs = UNEVEN.speed_after(asarray(speed), asarray(command), 0.01)
    np.testing.assert_allclose(np.asarray(theirs), UNEVEN.speed_after(speed, command, 0.01), rtol=1e-12)


def state(rates=(0.0, 0.0, 0.0), thrust=0.08):
    return RotorDroneState(
        np.zeros((3, 1)),
        np.array([[0.0], [0.0], [0.0], [1.0]]),
        np.zeros((3, 1)),
        np.array(rates)[:, None],
        np.full((4, 1), thrust),
    )


def test_propellers_that_spin_up_push_the_body_back():
    command = np.array([[0.08], [0.10], [0.08], [0.10]])
    with_inertia = rotor_drone.step(SPUN, state(), command, 1e-4)
    without = rotor_drone.step(
        dataclasses.replace(SPUN, propellers=dataclasses.replace(BLADES, inertia_kg_m2=0.0)), state(), command, 1e-4
    )
    gained = BLADES.speed(with_inertia.thrust[1, 0]) - BLADES.speed(np.array(0.08))
    gained = 2 * gained * RAD_S_PER_RPM * BLADES.inertia_kg_m2
    difference = (with_inertia.rates_body - without.rates_body)[2, 0] * SPUN.inertia_kg_m2[2]
    assert difference == pytest.approx(gained, rel=1e-6)


def test_a_turning_body_feels_the_momentum_of_uneven_propellers():
    uneven = np.array([[0.06], [0.10], [0.06], [0.10]])
    start = dataclasses.replace(state((1.0, 0.0, 0.0)), thrust=uneven)
    after = rotor_drone.step(SPUN, start, uneven, 1e-5)
    momentum = 2 * (BLADES.speed(np.array(0.10)) - BLADES.speed(np.array(0.06))) * RAD_S_PER_RPM * BLADES.inertia_kg_m2
    expected = -1.0 * momentum / SPUN.inertia_kg_m2[1] * 1e-5
    assert after.rates_body[1, 0] == pytest.approx(expected, rel=1e-3)


def test_without_being_asked_for_nothing_has_changed():
    assert RotorDroneParameters.from_spec(SPEC).propellers is None
