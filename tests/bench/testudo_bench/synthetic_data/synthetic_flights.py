"""Synthetic flights of quadrotors with known parameters, for the tests and studies of identification."""

from dataclasses import dataclass, replace

import numpy as np

from testudo_hardware.frames import rotate_back
from testudo_hardware.motion import rotor_drone
from testudo_hardware.motion.rotor_drone import RotorDroneParameters, RotorDroneState
from testudo_hardware.spec import RobotSpec
from testudo_runs.recording.recording import Recording, RobotRecording, Series

_STEP_S = 0.002
_PERIOD_S = 0.01  # Of commands and of samples
_ROUNDING_S = 1e-9
_MIX = np.array([rotor_drone.ROLL_SIGNS, rotor_drone.PITCH_SIGNS, rotor_drone.YAW_SIGNS])


@dataclass(frozen=True)
class DroneTruth:
    """True parameters of synthetic drones, and the noise of their recording."""

    thrust_scale: float = 1.0
    lag_s: float = 0.05
    delay_s: float = 0.014
    drag_kg_s: float = 0.03
    noise: tuple[float, float, float, float] = (3e-4, 3e-4, 2e-3, 5e-3)
    """Standard deviations of position [m], quaternion [1], velocity [m/s] and rates [rad/s]."""

    def parameters(self, spec: RobotSpec) -> RotorDroneParameters:
        """Return the rotor model with the true parameters."""
        return replace(
            RotorDroneParameters.from_spec(spec),
            thrust_scale=self.thrust_scale,
            thrust_lag_s=self.lag_s,
            drag_kg_s=(self.drag_kg_s,) * 3,
            thrust_most_n=0.3,
        )


def synthetic_flight(
    spec: RobotSpec, truth: DroneTruth, *, drones: int = 3, duration_s: float = 10.0, seed: int = 0
) -> Recording:
    """Return a recording of hovering drones with random attitude steps.

    Commands and samples are 10 ms apart; the model steps by at most 2 ms, and each command acts from its exact time on.
    """
    moves, rng = truth.parameters(spec), np.random.default_rng(seed)
    state = rotor_drone.resting(rng.uniform(-0.3, 0.3, (3, drones)) + np.array([[0], [0], [2.0]]), moves)
    shake, acting, waiting, log = np.zeros((3, drones)), state.thrust, [], []
    for k in range(round(duration_s / _PERIOD_S)):
        flip = rng.random((3, drones)) < 0.25
        shake = np.where(flip, rng.uniform(-1, 1, (3, drones)) * [[25], [25], [8]], shake)
        command = _command(moves, state, shake, rng)
        log.append((k * _PERIOD_S, state, command))
        waiting.append((k * _PERIOD_S + truth.delay_s, command))
        grid = k * _PERIOD_S + _STEP_S * np.arange(1, round(_PERIOD_S / _STEP_S) + 1)
        ends = np.append(grid, [at for at, _ in waiting])
        now = k * _PERIOD_S
        for end in np.sort(ends[ends < (k + 1) * _PERIOD_S + _ROUNDING_S]):
            while waiting and waiting[0][0] <= now + _ROUNDING_S:
                acting = waiting.pop(0)[1]
            if end > now + _ROUNDING_S:
                state = rotor_drone.step(moves, state, acting, end - now)
                now = end
    stamps = np.array([stamp for stamp, _, _ in log])
    deviation = np.repeat(truth.noise, (3, 4, 3, 3))
    robots = {}
    for n in range(log[0][2].shape[1]):
        rows = []
        for _, state, _ in log:
            turn, velocity = state.quaternion_xyzw[:, n], state.velocity_world[:, n]
            parts = state.position_world[:, n], turn, rotate_back(turn, velocity), state.rates_body[:, n]
            rows.append(np.concatenate(parts))
        motors = np.array([command[:, n] for _, _, command in log])
        odometry = np.array(rows) + deviation * rng.standard_normal((len(rows), len(deviation)))
        series = {"odometry": Series(stamps, odometry), "motors": Series(stamps, motors)}
        robots[f"d{n}"] = RobotRecording(f"d{n}", spec.name, series)
    return Recording(robots, 0)


def _command(
    truth: RotorDroneParameters, state: RotorDroneState, shake: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return the thrusts (4, N) of a hovering controller: position to tilt to torque, plus random torques."""
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
