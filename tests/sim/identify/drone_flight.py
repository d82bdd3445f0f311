"""Flights of simulated quadrotors of known parameters, as recordings."""

import dataclasses

import numpy as np

from testudo_hardware.motion import rotor_drone
from testudo_hardware.motion.rotor_drone import RotorDroneParameters
from testudo_hardware.quaternions import rotate_back
from testudo_hardware.spec import load_robot
from testudo_sim.recording import Recording, RobotRecording, Series

SPEC = load_robot("crazyflie_2x")
_FINE_S = 0.002
_EVERY = 5
"""Fine steps of one command and one sample: 100 Hz."""
_MIX = np.array([rotor_drone.ROLL_SIGNS, rotor_drone.PITCH_SIGNS, rotor_drone.YAW_SIGNS])


def flown(*, thrust_scale=1.0, lag_s=0.05, delay_s=0.014, drag=0.03, drones=3, duration_s=10.0, seed=0):
    """Return one recording of drones that hover about with a shaken attitude, and what they truly are."""
    truth = dataclasses.replace(RotorDroneParameters.from_spec(SPEC), thrust_scale=thrust_scale, thrust_lag_s=lag_s,
                                drag_kg_s=(drag, drag, drag), thrust_most_n=0.3)
    rng = np.random.default_rng(seed)
    state = rotor_drone.resting(rng.uniform(-0.3, 0.3, (3, drones)) + np.array([[0], [0], [2.0]]), truth)
    late, queue, log = round(delay_s / _FINE_S), [state.thrust], []
    shake = np.zeros((3, drones))
    for k in range(round(duration_s / _FINE_S)):
        if k % _EVERY == 0:
            flip = rng.random((3, drones)) < 0.25
            shake = np.where(flip, rng.uniform(-1, 1, (3, drones)) * [[25], [25], [8]], shake)
            command = _command(truth, state, shake, rng)
            log.append((k * _FINE_S, state, command))
        queue.append(command)
        state = rotor_drone.step(truth, state, queue[max(0, len(queue) - 1 - late)], _FINE_S)
    return _recording(log, rng), truth


def _command(truth, state, shake, rng):
    """Return the thrusts (4, N) of a hovering controller: position to tilt to torque, plus a shake."""
    home = np.array([[0], [0], [2.0]])
    push = np.clip(2.0 * (home - state.position_world) - 2.5 * state.velocity_world, -2.5, 2.5)
    total = truth.mass_kg * (rotor_drone.GRAVITY_M_S2 + push[2]) / truth.thrust_scale
    wanted = push / rotor_drone.GRAVITY_M_S2
    wanted[2] = 1
    error = np.cross([[0], [0], [1.0]], rotate_back(state.quaternion_xyzw, wanted), axis=0)
    turn = 18 * error - 7 * state.rates_body + shake + rng.normal(0, 1.0, error.shape)
    inertia = np.array(truth.inertia_kg_m2)[:, None]
    lever = np.array([*truth.arm_m, truth.torque_per_thrust_m])[:, None] * truth.thrust_scale
    return np.clip(total / 4 + _MIX.T @ (turn * inertia / lever) / 4, 0, 0.2)


def _recording(log, rng):
    stamps = np.array([stamp for stamp, _, _ in log])
    robots = {}
    for n in range(log[0][2].shape[1]):
        rows = []
        for _, state, _ in log:
            along = rotate_back(state.quaternion_xyzw[:, n], state.velocity_world[:, n])
            rows.append(np.concatenate([state.position_world[:, n] + rng.normal(0, 3e-4, 3),
                                        state.quaternion_xyzw[:, n] + rng.normal(0, 3e-4, 4),
                                        along + rng.normal(0, 2e-3, 3),
                                        state.rates_body[:, n] + rng.normal(0, 5e-3, 3)]))
        motors = np.array([command[:, n] for _, _, command in log])
        robots[f"d{n}"] = RobotRecording(f"d{n}", "crazyflie_2x", {
            "odometry": Series(stamps, np.array(rows)), "motors": Series(stamps, motors)})
    return Recording(robots, 0)
