"""The fitted quadrotor against closed forms and its own limits of the step, on three array libraries."""

import dataclasses
import math

import numpy as np
import pytest

from testudo_hardware.errors import TestudoError
from testudo_hardware.frames import (
    angle_rates,
    body_rates,
    body_up,
    from_angles,
    from_rotation_vector,
    multiply,
    rotation_vector,
    to_angles,
)
from testudo_hardware.motion import attitude_drone
from testudo_hardware.motion.attitude_drone import AttitudeDroneParameters, AttitudeDroneState, AttitudeResponse
from testudo_hardware.motion.rotor_drone import GRAVITY_M_S2, Disturbance
from testudo_hardware.spec import load_robot, parse_robot
from testudo_hardware.strict_files import read_toml

SPEC = load_robot("crazyflie_2x")
NOMINAL = AttitudeDroneParameters.from_spec(SPEC)
PUSH = Disturbance(np.full((3, 40), 0.3), np.full((3, 40), -2.0))


def drawn(count, seed=0):
    """Return states in motion, tilted by half a radian at most."""
    rng = np.random.default_rng(seed)
    angles = np.stack([*rng.uniform(-0.5, 0.5, (2, count)), rng.uniform(-3, 3, count)])
    return AttitudeDroneState(
        rng.uniform(-1, 1, (3, count)),
        from_angles(angles),
        rng.uniform(-1, 1, (3, count)),
        rng.uniform(-2, 2, (3, count)),
        rng.uniform(0.2, 0.4, count),
    )


def commands(count, seed=1):
    rng = np.random.default_rng(seed)
    return np.stack([*rng.uniform(-0.4, 0.4, (3, count)), rng.uniform(0.1, 0.5, count)])


def flown(parameters, state, command, duration_s, steps, disturbance=None):
    for _ in range(steps):
        state = attitude_drone.step(parameters, state, command, duration_s / steps, disturbance)
    return state


def turned_by(first, second):
    """Return the angle [rad] between attitudes."""
    back = np.concatenate([-first[:3], first[3:]])
    return np.linalg.norm(rotation_vector(multiply(back, second)), axis=0)


def test_angles_and_quaternions_are_one_rotation():
    rng = np.random.default_rng(0)
    angles = np.stack([rng.uniform(-3.1, 3.1, 200), rng.uniform(-1.5, 1.5, 200), rng.uniform(-3.1, 3.1, 200)])
    np.testing.assert_allclose(to_angles(from_angles(angles)), angles, atol=1e-12)
    axes = np.eye(3)[:, :, None] * angles
    about_x, about_y, about_z = (from_rotation_vector(axes[k]) for k in range(3))
    np.testing.assert_allclose(from_angles(angles), multiply(multiply(about_z, about_y), about_x), atol=1e-12)


def test_rates_of_angles_are_those_of_the_turning_body():
    angles, rates = np.array([0.3, -0.4, 2.0]), np.array([1.0, -2.0, 0.5])
    after = to_angles(multiply(from_angles(angles), from_rotation_vector(rates * 1e-6)))
    np.testing.assert_allclose((after - angles) / 1e-6, angle_rates(angles, rates), atol=1e-5)
    np.testing.assert_allclose(body_rates(angles, angle_rates(angles, rates)), rates, atol=1e-12)


def test_one_body_on_every_array_library(asarray):
    state, command = drawn(40), commands(40)
    theirs = attitude_drone.step(
        NOMINAL,
        AttitudeDroneState(*(asarray(getattr(state, f.name)) for f in dataclasses.fields(state))),
        asarray(command),
        0.01,
        Disturbance(asarray(PUSH.acceleration_world), asarray(PUSH.angular_acceleration_body)),
    )
    ours = attitude_drone.step(NOMINAL, state, command, 0.01, PUSH)
    for field in dataclasses.fields(ours):
        np.testing.assert_allclose(
            np.asarray(getattr(theirs, field.name)), getattr(ours, field.name), rtol=1e-11, atol=1e-11
        )


def test_a_drone_that_hovers_stays():
    state = attitude_drone.resting(np.array([[1.0], [2.0], [3.0]]), np.array([0.7]), NOMINAL)
    level = np.array([[0.0], [0.0], [0.7], [NOMINAL.hover_thrust_n]])
    after = flown(NOMINAL, state, level, 2.0, 100)
    np.testing.assert_allclose(after.position_world, state.position_world, atol=1e-9)
    np.testing.assert_allclose(after.quaternion_xyzw, state.quaternion_xyzw, atol=1e-9)


@pytest.mark.parametrize("damping", [0.5, 1.0, 1.4])
def test_an_angle_answers_as_the_damped_oscillator_it_is(damping):
    frequency, time = 18.0, 0.11
    parameters = dataclasses.replace(NOMINAL, frequency_rad_s=(frequency,) * 3, damping=(damping,) * 3)
    state = attitude_drone.resting(np.zeros((3, 1)), np.zeros(1), parameters)
    command = np.array([[0.2], [0.0], [0.0], [parameters.hover_thrust_n]])
    matrix = np.array([[0.0, 1.0], [-(frequency**2), -2 * damping * frequency]])
    values, vectors = np.linalg.eig(matrix + 1e-9 * np.diag([0.0, 1.0]))
    offset = vectors @ (np.exp(values * time) * np.linalg.solve(vectors, np.array([-0.2 * parameters.gain[0], 0.0])))
    after = to_angles(flown(parameters, state, command, time, 1).quaternion_xyzw)
    assert after[0, 0] == pytest.approx(0.2 * parameters.gain[0] + offset[0].real, abs=1e-6)


def test_thrust_follows_its_lag_and_its_limits():
    state = attitude_drone.resting(np.zeros((3, 1)), np.zeros(1), NOMINAL)
    after = flown(NOMINAL, state, np.array([[0.0], [0.0], [0.0], [9.9]]), NOMINAL.thrust_lag_s, 3)
    most, start = NOMINAL.thrust_most_n, NOMINAL.hover_thrust_n
    assert after.thrust[0] == pytest.approx(most + math.exp(-1) * (start - most))
    at_once = dataclasses.replace(NOMINAL, thrust_lag_s=0.0)
    after = flown(at_once, state, np.array([[0.0], [0.0], [0.0], [-1.0]]), 0.01, 1)
    assert after.thrust[0] == pytest.approx(NOMINAL.thrust_least_n)


def test_drag_ends_a_fall_at_the_speed_where_it_carries_the_weight():
    parameters = dataclasses.replace(NOMINAL, thrust_least_n=0.0)
    state = attitude_drone.resting(np.zeros((3, 1)), np.zeros(1), parameters)
    after = flown(parameters, state, np.zeros((4, 1)), 60.0, 1500)
    terminal = parameters.mass_kg * GRAVITY_M_S2 / parameters.drag_along_kg_s
    assert after.velocity_world[2, 0] == pytest.approx(-terminal, rel=1e-3)


def test_the_error_of_a_step_falls_with_its_square():
    state, command = drawn(40), commands(40)
    exact = flown(NOMINAL, state, command, 0.4, 1600, PUSH)
    found = {steps: flown(NOMINAL, state, command, 0.4, steps, PUSH) for steps in (100, 200)}
    place = {steps: np.abs(one.position_world - exact.position_world).max() for steps, one in found.items()}
    turn = {steps: turned_by(one.quaternion_xyzw, exact.quaternion_xyzw).max() for steps, one in found.items()}
    assert place[200] < 0.35 * place[100]
    assert place[200] < 1e-4
    assert turn[200] < 0.6 * turn[100] + 1e-9


def test_a_push_moves_and_turns_the_body():
    state = attitude_drone.resting(np.zeros((3, 1)), np.zeros(1), NOMINAL)
    level = np.array([[0.0], [0.0], [0.0], [NOMINAL.hover_thrust_n]])
    push = Disturbance(np.array([[1.0], [0.0], [0.0]]), np.array([[0.0], [3.0], [0.0]]))
    after = flown(NOMINAL, state, level, 1e-3, 1, push)
    assert after.velocity_world[0, 0] == pytest.approx(1e-3, rel=0.01)
    assert after.rates_body[1, 0] == pytest.approx(3e-3, rel=0.05)


def test_a_whole_turn_of_the_heading_changes_nothing():
    near = attitude_drone.resting(np.zeros((3, 1)), np.array([3.1]), NOMINAL)
    command = np.array([[0.0], [0.0], [-3.1], [NOMINAL.hover_thrust_n]])
    turn = flown(NOMINAL, near, command, 0.5, 50)
    assert turned_by(turn.quaternion_xyzw, near.quaternion_xyzw)[0] == pytest.approx(2 * math.pi - 6.2, abs=1e-3)
    assert body_up(turn.quaternion_xyzw)[2, 0] == pytest.approx(1.0)


def test_parameters_may_differ_between_worlds():
    values = {
        "attitude.thrust_lag": np.array([0.02, 0.1]),
        "attitude.tilt_frequency": np.array([16.0, 22.0]),
        "geometry.mass": np.array([0.03, 0.035]),
    }
    both = AttitudeDroneParameters.from_spec(SPEC, values)
    state, command = drawn(2), commands(2)
    together = flown(both, state, command, 0.1, 10)
    for world in range(2):
        alone = AttitudeDroneParameters.from_spec(SPEC, {key: float(value[world]) for key, value in values.items()})
        one = AttitudeDroneState(*(getattr(state, f.name)[..., world] for f in dataclasses.fields(state)))
        after = flown(alone, one, command[:, world], 0.1, 10)
        np.testing.assert_allclose(after.position_world, together.position_world[:, world], atol=1e-12)


def test_response_needs_no_loop_over_steps():
    response = AttitudeResponse.create(NOMINAL, 0.01, np.zeros(1))
    assert all(abs(kept) < 1 and 0 < rate < 1 for kept, rate in zip(response.kept, response.rate_kept, strict=True))


def test_a_table_is_whole_or_not_there():
    tables, where = read_toml("crazyflie_2x", {"crazyflie_2x": _file()}, "robot", TestudoError)
    part = {**tables, "attitude": {k: v for k, v in tables["attitude"].items() if k != "thrust_lag"}}
    with pytest.raises(TestudoError, match=r"attitude\.thrust_lag: missing"):
        parse_robot(part, where)
    bare = parse_robot({k: v for k, v in tables.items() if k != "attitude"}, where)
    with pytest.raises(TestudoError, match=r"no \[attitude\]"):
        AttitudeDroneParameters.from_spec(bare)
    assert bare.sha256 == SPEC.sha256


def _file():
    from testudo_hardware.spec import robot_files

    return robot_files()["crazyflie_2x"]
