"""The firmware's attitude controller: its PID written out, its mixer, and a drone that it holds."""

import math

import numpy as np
import pytest

from testudo_hardware.frames import from_angles, to_angles
from testudo_hardware.motion import rotor_drone
from testudo_hardware.motion.firmware_controllers import FULL_PWM, LoopGains, LoopState, rotor_thrusts, still
from testudo_hardware.motion.rotor_drone import RotorDroneParameters
from testudo_hardware.spec import load_robot

SPEC = load_robot("crazyflie_2x")
FULL = SPEC.attitude["attitude.thrust_most"].value / 4
GAINS = LoopGains()


def clamp(value, limit):
    return min(max(value, -limit), limit)


def test_it_is_the_pid_and_the_mixer_of_the_firmware():
    rng = np.random.default_rng(0)
    for _ in range(30):
        angles, rates = rng.uniform(-0.3, 0.3, 3), rng.uniform(-0.5, 0.5, 3)
        wanted = np.append(rng.uniform(-0.3, 0.3, 3), 0.3)
        sums, rate_sums = rng.uniform(-1, 1, 3), rng.uniform(-1, 1, 3)
        past, past_rates = np.degrees(angles) - 0.01, np.degrees(rates) - 0.1
        out = []
        for k in range(3):
            error = math.degrees(wanted[k] - angles[k])
            total = clamp(sums[k] + error * 0.002, GAINS.angle_limit[k])
            rate = GAINS.angle_kp[k] * error + GAINS.angle_ki[k] * total - GAINS.angle_kd[k] * 0.01 / 0.002
            error = rate - math.degrees(rates[k])
            total = clamp(rate_sums[k] + error * 0.002, GAINS.rate_limit[k])
            out.append(
                clamp(
                    GAINS.rate_kp[k] * error + GAINS.rate_ki[k] * total - GAINS.rate_kd[k] * 0.1 / 0.002, FULL_PWM / 2
                )
            )
        r, p, y = out[0] / 2, out[1] / 2, out[2]
        # right-handed pitch and yaw, which the firmware has the other way round
        pwm = np.array([-r - p - y, -r + p + y, r + p - y, r - p + y]) + 0.3 / 4 / FULL * FULL_PWM
        pwm = np.maximum(pwm - max(pwm.max() - FULL_PWM, 0.0), 0.0)
        found, _ = rotor_thrusts(
            GAINS, LoopState(sums, rate_sums, past, past_rates), from_angles(angles), rates, wanted, FULL, 0.002
        )
        np.testing.assert_allclose(found, pwm / FULL_PWM * FULL, atol=1e-9)


def test_one_body_on_every_array_library(asarray):
    angles, rates = np.array([[0.1], [-0.2], [3.0]]), np.array([[0.3], [0.1], [-0.2]])
    command = np.array([[0.0], [0.1], [-3.0], [0.3]])
    ours = rotor_thrusts(GAINS, still(np.array([3.0])), from_angles(angles), rates, command, FULL, 0.002)[0]
    theirs = rotor_thrusts(
        GAINS, still(asarray([3.0])), asarray(from_angles(angles)), asarray(rates), asarray(command), FULL, 0.002
    )[0]
    np.testing.assert_allclose(np.asarray(theirs), ours, rtol=1e-12)


@pytest.mark.parametrize("with_propellers", [False, True])
@pytest.mark.parametrize("wanted", [(0.25, 0.0, 0.0), (0.0, -0.25, 0.0), (0.1, 0.1, 0.5)])
def test_a_drone_takes_the_attitude_that_is_asked_for(with_propellers, wanted):
    parameters = RotorDroneParameters.from_spec(SPEC, with_propellers=with_propellers)
    state = rotor_drone.resting(np.zeros((3, 1)), parameters)
    loop = still(np.zeros(1))
    command = np.array([[*wanted, 4 * parameters.hover_thrust_n]]).T
    for _ in range(1000):
        thrusts, loop = rotor_thrusts(GAINS, loop, state.quaternion_xyzw, state.rates_body, command, FULL, 0.002)
        state = rotor_drone.step(parameters, state, thrusts, 0.002)
    np.testing.assert_allclose(to_angles(state.quaternion_xyzw)[:, 0], wanted, atol=0.03)
    np.testing.assert_allclose(state.rates_body, 0.0, atol=0.1)
