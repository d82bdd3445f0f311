"""The firmware's velocity controller: against the PID as the firmware writes it, and around the fitted drone."""

import math

import numpy as np
import pytest

from testudo_hardware.frames import from_angles
from testudo_hardware.motion import attitude_drone, firmware_controllers
from testudo_hardware.motion.attitude_drone import AttitudeDroneParameters, AttitudeDroneState
from testudo_hardware.motion.firmware_controllers import CascadeParameters
from testudo_hardware.spec import load_robot

SPEC = load_robot("crazyflie_2x")
DRONE = AttitudeDroneParameters.from_spec(SPEC)
CASCADE = CascadeParameters.from_spec(SPEC)
SUBSTEPS = 5
"""Of the drone, 500 Hz, for each step of the controller."""


def flown(velocity, yaw_rate, duration_s, yaw=0.0):
    """Return times, states and thrusts of a drone that hovered and then gets a velocity command."""
    state = attitude_drone.resting(np.zeros((3, 1)), np.array([yaw]), DRONE)
    memory = firmware_controllers.settled(CASCADE, DRONE.hover_thrust_n, np.array([yaw]))
    command = np.array(velocity, float)[:, None]
    states = []
    for _ in range(round(duration_s / CASCADE.period_s)):
        wanted, memory = firmware_controllers.attitude_command(
            CASCADE, state, memory, command, np.array([yaw_rate]), CASCADE.period_s
        )
        for _ in range(SUBSTEPS):
            state = attitude_drone.step(DRONE, state, wanted, CASCADE.period_s / SUBSTEPS)
        states.append(state)
    return states


def firmware_pid(kp, ki, error, integral, limit, dt=0.01):
    """One update of pid.c, without derivative and feed-forward."""
    integral = integral + error * dt
    return min(max(kp * error + ki * integral, -limit), limit), integral


def test_it_is_the_pid_of_the_firmware():
    rng = np.random.default_rng(0)
    for _ in range(50):
        yaw, velocity, wanted = rng.uniform(-3, 3), rng.uniform(-1.5, 1.5, 3), rng.uniform(-1, 1, 3)
        sums = rng.uniform(-0.5, 0.5, 3)
        state = AttitudeDroneState(
            np.zeros(3), from_angles(np.array([0.1, -0.2, yaw])), velocity, np.zeros(3), np.array(0.3)
        )
        memory = firmware_controllers.CascadeState(sums, np.array(yaw))
        command, after = firmware_controllers.attitude_command(CASCADE, state, memory, wanted, np.array(0.5), 0.01)
        cosine, sine = math.cos(yaw), math.sin(yaw)
        ahead = wanted[0] * cosine + wanted[1] * sine - (velocity[0] * cosine + velocity[1] * sine)
        left = wanted[1] * cosine - wanted[0] * sine - (velocity[1] * cosine - velocity[0] * sine)
        pitch, along = firmware_pid(25.0, 1.0, ahead, sums[0], 20.0)
        roll, across = firmware_pid(25.0, 1.0, left, sums[1], 20.0)
        thrust, up = firmware_pid(25.0, 15.0, wanted[2] - velocity[2], sums[2], 65535 / 2 / 1000)
        pwm = min(max(thrust * 1000 + 36000, 20000), 65535)
        expected = [math.radians(-roll), math.radians(pitch), yaw + 0.005, pwm / 65535 * 0.48]
        np.testing.assert_allclose(command, expected, atol=2e-5)
        np.testing.assert_allclose(after.integral, [along, across, up], atol=1e-12)


def test_one_body_on_every_array_library(asarray):
    state = attitude_drone.resting(np.zeros((3, 4)), np.linspace(-1, 1, 4), DRONE)
    memory = firmware_controllers.settled(CASCADE, DRONE.hover_thrust_n, np.linspace(-1, 1, 4))
    wanted = np.random.default_rng(0).uniform(-1, 1, (3, 4))
    ours = firmware_controllers.attitude_command(CASCADE, state, memory, wanted, np.zeros(4), 0.01)[0]
    there = AttitudeDroneState(
        *(
            asarray(x)
            for x in (state.position_world, state.quaternion_xyzw, state.velocity_world, state.rates_body, state.thrust)
        )
    )
    remembered = firmware_controllers.CascadeState(asarray(memory.integral), asarray(memory.yaw_command))
    theirs = firmware_controllers.attitude_command(
        CASCADE, there, remembered, asarray(wanted), asarray(np.zeros(4)), 0.01
    )[0]
    np.testing.assert_allclose(np.asarray(theirs), ours, atol=1e-12)


def test_a_settled_controller_hovers():
    last = flown([0, 0, 0], 0.0, 2.0, yaw=1.0)[-1]
    np.testing.assert_allclose(last.position_world, 0.0, atol=1e-9)


@pytest.mark.parametrize("yaw", [0.0, 2.0])
@pytest.mark.parametrize("velocity", [(1.0, 0, 0), (0, -1.0, 0), (0, 0, 0.8), (0, 0, -0.8), (0.5, 0.5, -0.3)])
def test_velocities_in_the_world_are_reached(velocity, yaw):
    last = flown(velocity, 0.0, 5.0, yaw)[-1]
    # sideways the drag is carried by an error of velocity, which the slow integral leaves for long
    np.testing.assert_allclose(last.velocity_world[:2, 0], velocity[:2], atol=0.11)
    assert last.velocity_world[2, 0] == pytest.approx(velocity[2], abs=0.03)


def test_limits_of_tilt_and_thrust_hold():
    state = attitude_drone.resting(np.zeros((3, 1)), np.zeros(1), DRONE)
    memory = firmware_controllers.settled(CASCADE, DRONE.hover_thrust_n, np.zeros(1))
    for velocity in ([50, -50, 50], [-50, 50, -50]):
        command, _ = firmware_controllers.attitude_command(
            CASCADE, state, memory, np.array(velocity, float)[:, None], np.zeros(1), 0.01
        )
        assert np.abs(command[:2]).max() <= math.radians(20.0) + 1e-5
        assert 20000 / 65535 * 0.48 - 1e-5 <= command[3, 0] <= 0.48


def test_the_heading_follows_the_yaw_rate():
    last = flown([0, 0, 0], 0.5, 2.0)[-1]
    turn = 2 * math.atan2(last.quaternion_xyzw[2, 0], last.quaternion_xyzw[3, 0])
    assert turn == pytest.approx(1.0, abs=0.1)
