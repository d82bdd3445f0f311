"""The quadrotor model against closed forms, conservation laws, another code's numbers, itself on three libraries."""

import dataclasses
import math

import numpy as np
import pytest

from testudo_hardware.errors import TestudoError
from testudo_hardware.frames import rotate, rotation_vector
from testudo_hardware.motion import rotor_drone
from testudo_hardware.motion.rotor_drone import GRAVITY_M_S2, Disturbance, RotorDroneParameters, RotorDroneState
from testudo_hardware.spec import load_robot, parse_robot

NOMINAL = RotorDroneParameters.from_spec(load_robot("crazyflie_2x"))
PURE = dataclasses.replace(NOMINAL, drag_kg_s=(0.0, 0.0, 0.0), thrust_most_n=10.0)
"""No drag, no ceiling of thrust."""
UNEQUAL = dataclasses.replace(PURE, inertia_kg_m2=(1.4e-5, 2.0e-5, 2.9e-5))

ORACLE = (  # quaternion, velocity, rates, thrusts, yaw torque -> acceleration, angular acceleration
    (
        (-0.49397787494, -0.815785516962, -0.152987078989, 0.258988036493),
        (-0.892138595237, -0.233262238429, -0.18305358916),
        (-2.728348836585, -2.707453735637, 2.99505669039),
        (0.092189528927, 0.058760816134, 0.074795804178, 0.117934895461),
        6.0202757942e-05,
        (-2.51704070814, 5.561923588674, -18.563304456721),
        (87.174502437465, -154.582198766413, 2.02022677658),
    ),
    (
        (0.096703353804, -0.825617279078, -0.039893558682, -0.55444844109),
        (0.353378703662, -0.878394574084, 0.111192233841),
        (-1.371290372819, 2.27790704001, -2.614713376127),
        (0.094334522642, 0.109607080186, 0.058185482013, 0.111635859153),
        0.00044220114039,
        (10.480465362756, 2.434850197625, -14.339911505454),
        (-61.458520819625, -71.149557428901, 14.838964442625),
    ),
    (
        (-0.601914701931, -0.106270666873, -0.791355791922, 0.012698328762),
        (0.006727931107, -0.126665895649, -0.593494327771),
        (-1.050344132546, 1.837291986162, -1.101287475573),
        (0.051923086683, 0.095880959225, 0.075883528061, 0.103915159277),
        0.000465055402634,
        (9.743014857621, 1.940882275951, -6.942462908329),
        (63.517244773957, 31.733222098201, 15.605885994428),
    ),
    (
        (-0.869421818462, 0.118426669171, -0.479451632075, 0.014386038805),
        (0.012770002843, -0.527611743208, -0.970927439272),
        (2.599343401353, -2.485045253479, 2.069560808842),
        (0.069430459113, 0.116081838496, 0.071954020926, 0.114915364947),
        0.000575336437233,
        (9.795530489068, -0.793325382584, -15.682898769899),
        (6.607408375322, 11.3077583532, 19.30659185345),
    ),
)
"""Derivatives that drone_models 0.1.0 (the package behind crazyflow) gives with its cf2x_L250 parameters, propellers
without inertia; 12 digits."""


def drawn(count, seed=0, spin=3.0):
    """Return states in motion."""
    rng = np.random.default_rng(seed)
    quaternion = rng.standard_normal((4, count))
    return RotorDroneState(
        rng.uniform(-1, 1, (3, count)),
        quaternion / np.linalg.norm(quaternion, axis=0),
        rng.uniform(-1, 1, (3, count)),
        rng.uniform(-spin, spin, (3, count)),
        rng.uniform(0.03, 0.12, (4, count)),
    )


def of_library(state, asarray):
    return RotorDroneState(*(asarray(getattr(state, field.name)) for field in dataclasses.fields(state)))


def flown(parameters, state, command, duration_s, steps):
    for _ in range(steps):
        state = rotor_drone.step(parameters, state, command, duration_s / steps)
    return state


def test_one_body_on_every_array_library(asarray):
    state, command = drawn(50), np.random.default_rng(1).uniform(0, 0.2, (4, 50))
    push = Disturbance(np.full((3, 50), 0.3), np.full((3, 50), -2.0))
    parameters = dataclasses.replace(
        NOMINAL, rate_damping_n_m_s=(1e-6, 2e-6, 0.0), torque_offset_n_m=(1e-6, 0.0, -1e-6)
    )
    theirs = rotor_drone.step(
        parameters,
        of_library(state, asarray),
        asarray(command),
        0.01,
        Disturbance(asarray(push.acceleration_world), asarray(push.angular_acceleration_body)),
    )
    ours = rotor_drone.step(parameters, state, command, 0.01, push)
    for field in dataclasses.fields(ours):
        np.testing.assert_allclose(
            np.asarray(getattr(theirs, field.name)), getattr(ours, field.name), rtol=1e-12, atol=1e-12
        )


def test_one_drone_is_a_batch_of_one():
    batch = drawn(1)
    one = RotorDroneState(*(getattr(batch, field.name)[:, 0] for field in dataclasses.fields(batch)))
    after, single = (rotor_drone.step(NOMINAL, state, 0 * state.thrust + 0.08, 0.01) for state in (batch, one))
    np.testing.assert_array_equal(after.velocity_world[:, 0], single.velocity_world)


@pytest.mark.parametrize(("quaternion", "velocity", "rates", "thrust", "yaw_torque", "acceleration", "angular"), ORACLE)
def test_accelerations_are_those_of_drone_models(
    quaternion, velocity, rates, thrust, yaw_torque, acceleration, angular
):
    """The limit of a short step; the yaw torque, another function of the speed there, is put in as an offset."""
    parameters = RotorDroneParameters(
        mass_kg=0.0319,
        arm_m=(0.03253, 0.03253),
        inertia_kg_m2=(16.8e-6, 16.8e-6, 29.8e-6),
        torque_per_thrust_m=0.0,
        thrust_scale=1.0,
        thrust_lag_s=0.1,
        drag_kg_s=(0.01471782, 0.01471782, 0.01277641),
        rate_damping_n_m_s=(0.0, 0.0, 0.0),
        torque_offset_n_m=(0.0, 0.0, yaw_torque),
        thrust_least_n=0.0,
        thrust_most_n=1.0,
    )
    state = RotorDroneState(np.zeros(3), np.array(quaternion), np.array(velocity), np.array(rates), np.array(thrust))
    short = 1e-6
    after = rotor_drone.step(parameters, state, state.thrust, short)
    np.testing.assert_allclose((after.velocity_world - state.velocity_world) / short, acceleration, atol=2e-4)
    np.testing.assert_allclose((after.rates_body - state.rates_body) / short, angular, atol=2e-3)


def test_free_fall_is_the_parabola():
    state = drawn(20, spin=0.0)
    state = dataclasses.replace(state, thrust=0 * state.thrust)
    after = flown(PURE, state, 0 * state.thrust, 0.5, 10)
    fall = np.array([0, 0, -GRAVITY_M_S2])[:, None]
    np.testing.assert_allclose(
        after.position_world, state.position_world + 0.5 * state.velocity_world + fall / 8, atol=1e-12
    )
    np.testing.assert_allclose(after.velocity_world, state.velocity_world + 0.5 * fall, atol=1e-12)


def test_hover_stays_for_ever():
    state = rotor_drone.resting(np.array([[1.0, 2.0], [0.0, 1.0], [0.5, 0.7]]), NOMINAL)
    after = flown(NOMINAL, state, state.thrust, 10.0, 1000)
    for field in dataclasses.fields(after):
        np.testing.assert_allclose(getattr(after, field.name), getattr(state, field.name), atol=1e-9)


def test_a_pure_yaw_command_turns_as_its_closed_form():
    """Lag, torque and damping: w' = g (1 - exp(-t/lag)) - d w from rest, integrated by hand; the drone stays level."""
    damping = 4.0
    inertia = PURE.inertia_kg_m2[2]
    parameters = dataclasses.replace(PURE, rate_damping_n_m_s=(0.0, 0.0, damping * inertia))
    state = rotor_drone.resting(np.zeros(3), parameters)
    difference = 0.01
    command = state.thrust + difference * np.array(rotor_drone.YAW_SIGNS)
    gain = 4 * difference * parameters.torque_per_thrust_m / inertia
    lag, time_s = parameters.thrust_lag_s, 0.6
    after = flown(parameters, state, command, time_s, 600)
    rate = gain / damping * (1 - math.exp(-damping * time_s)) - gain / (damping - 1 / lag) * (
        math.exp(-time_s / lag) - math.exp(-damping * time_s)
    )
    assert after.rates_body[2] == pytest.approx(rate, rel=1e-5)
    np.testing.assert_allclose(after.rates_body[:2], 0, atol=1e-12)
    np.testing.assert_allclose(after.position_world, 0, atol=1e-12)
    turn = rotation_vector(after.quaternion_xyzw)
    angle = gain / damping * (time_s - (1 - math.exp(-damping * time_s)) / damping) - gain / (damping - 1 / lag) * (
        lag * (1 - math.exp(-time_s / lag)) - (1 - math.exp(-damping * time_s)) / damping
    )
    assert turn[2] == pytest.approx(angle, rel=1e-4)


def kinetic_energy(parameters, state):
    """Return the energy [J] of motion and rotation."""
    turning = sum(parameters.inertia_kg_m2[k] * state.rates_body[k] ** 2 for k in range(3))
    return (parameters.mass_kg * np.sum(state.velocity_world**2, axis=0) + turning) / 2


def angular_momentum_world(parameters, state):
    """Return the angular momentum (3, ...) [N m s] of the body about its centre, in the world."""
    return rotate(
        state.quaternion_xyzw, np.stack([parameters.inertia_kg_m2[k] * state.rates_body[k] for k in range(3)])
    )


def test_energy_and_angular_momentum_of_a_tumbling_body_stay():
    """Without thrust: spin energy and momentum in the world are constant; the height pays for the speed."""
    state = drawn(30, spin=8.0)
    state = dataclasses.replace(state, thrust=0 * state.thrust)
    after = flown(UNEQUAL, state, 0 * state.thrust, 0.5, 2000)
    np.testing.assert_allclose(
        angular_momentum_world(UNEQUAL, after),
        angular_momentum_world(UNEQUAL, state),
        rtol=0,
        atol=1e-9,
    )
    potential = [UNEQUAL.mass_kg * GRAVITY_M_S2 * each.position_world[2] for each in (state, after)]
    np.testing.assert_allclose(
        kinetic_energy(UNEQUAL, after) + potential[1],
        kinetic_energy(UNEQUAL, state) + potential[0],
        rtol=1e-6,
    )


def test_the_error_of_a_roll_out_shrinks_with_the_square_of_the_step():
    state, command = drawn(20, spin=5.0), np.random.default_rng(2).uniform(0.04, 0.12, (4, 20))
    fine = flown(NOMINAL, state, command, 0.2, 1600)
    errors = [
        np.abs(flown(NOMINAL, state, command, 0.2, steps).position_world - fine.position_world).max()
        for steps in (20, 40)
    ]
    assert errors[0] / errors[1] > 3.5
    assert errors[1] < 2e-4


def test_the_thrust_follows_its_lag_and_its_limits():
    state = rotor_drone.resting(np.zeros(3), NOMINAL)
    after = rotor_drone.step(NOMINAL, state, state.thrust * 0 + 5.0, 0.05)
    share = 1 - math.exp(-0.05 / NOMINAL.thrust_lag_s)
    np.testing.assert_allclose(after.thrust, state.thrust + share * (NOMINAL.thrust_most_n - state.thrust), rtol=1e-12)
    below = flown(NOMINAL, state, state.thrust * 0 - 1.0, 2.0, 10)
    np.testing.assert_allclose(below.thrust, 0, atol=1e-12)


def test_rotor_pairs_push_the_body_as_they_stand():
    """More thrust on the left rolls right (+x), at the rear pitches down (+y), on 2 and 4 turns left (+z)."""
    state = rotor_drone.resting(np.zeros(3), PURE)
    for axis, rotors in ((0, (2, 3)), (1, (1, 2)), (2, (1, 3))):
        command = state.thrust.copy()
        command[list(rotors)] += 0.01
        rates = rotor_drone.step(PURE, state, command, 0.01).rates_body
        assert rates[axis] > 0
        np.testing.assert_allclose(np.delete(rates, axis), 0, atol=1e-12)


def test_a_turned_world_gives_the_turned_motion():
    """Frames: everything turned by 90 degrees about z moves as before, turned."""
    state, quarter = drawn(10), np.array([0, 0, math.sqrt(0.5), math.sqrt(0.5)])
    count = np.ones(10)
    turn = quarter[:, None] * count
    turned = RotorDroneState(
        rotate(turn, state.position_world),
        rotor_drone.multiply(turn, state.quaternion_xyzw),
        rotate(turn, state.velocity_world),
        state.rates_body,
        state.thrust,
    )
    one, other = (flown(NOMINAL, each, state.thrust, 0.1, 10) for each in (state, turned))
    np.testing.assert_allclose(rotate(turn, one.position_world), other.position_world, atol=1e-12)
    np.testing.assert_allclose(one.rates_body, other.rates_body, atol=1e-12)


def test_a_disturbance_is_an_acceleration():
    state = rotor_drone.resting(np.zeros((3, 1)), PURE)
    push = Disturbance(np.array([[0.5], [0.0], [0.0]]), np.array([[0.0], [0.0], [1.5]]))
    for _ in range(10):
        state = rotor_drone.step(PURE, state, state.thrust, 0.01, push)
    np.testing.assert_allclose(state.velocity_world[:, 0], [0.05, 0, 0], atol=1e-12)
    np.testing.assert_allclose(state.rates_body[:, 0], [0, 0, 0.15], atol=1e-12)


def test_a_full_battery_lifts_more():
    spec = load_robot("crazyflie_2x")
    full = RotorDroneParameters.from_spec(spec, np.array([3.6, 4.1]))
    assert full.thrust_most_n[0] == pytest.approx(NOMINAL.thrust_most_n)
    assert full.thrust_most_n[1] > full.thrust_most_n[0]


def test_the_rotors_of_a_drone_are_no_part_of_what_velocity_policies_rest_on():
    """The hash that artefacts hold is that of the file without the table, and a table that lacks a key is refused."""
    spec = load_robot("crazyflie_2x")
    assert "rotors" not in spec.to_dict()
    bare = parse_robot(spec.to_dict(), "bare.toml")
    assert bare.sha256 == spec.sha256
    with pytest.raises(TestudoError, match=r"no \[rotors\]"):
        RotorDroneParameters.from_spec(bare)
    lacking = spec.to_dict() | {"rotors": {"arm": {"value": 0.03, "unit": "m", "source": "test"}}}
    with pytest.raises(TestudoError, match=r"lacking\.toml: rotors\.roll_inertia: missing"):
        parse_robot(lacking, "lacking.toml")
