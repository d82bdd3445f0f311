"""Runs with a known truth: what identification must find again, under dropouts, noise and clocks of their own."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from testudo_hardware.motion import LagResponse, MotionModel, MotionState, motion_model
from testudo_hardware.motion.motion_model import effective_command
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec
from testudo_runs.recording.recording import Recording, RobotRecording, Series

_START_NS = 1_700_000_000_000_000_000
"""Some time of day."""
_STEP_S = 0.002


@dataclass(frozen=True)
class Truth:
    """How synthetic robots move, and how they are recorded."""

    velocity_lag_s: float
    command_delay_s: float
    speed_scale: float
    turn_scale: float = 1.0
    turn_slip_s_rad: float = 0.0
    noise_m: float = 0.0015
    noise_rad: float = 0.005
    dropout: float = 0.02
    """Share of poses that are lost one by one; once in twenty seconds, half a second of them is lost, too."""
    clock_offset_s: float = 0.0
    """The robot's clock, with which commands are stamped, is behind the recorder's by so much at the beginning."""
    clock_drift: float = 0.0
    transport_s: float = 0.002
    """Mean time beyond 0.2 ms that a message takes to the recorder."""

    def spec(self, spec: RobotSpec) -> RobotSpec:
        """Return a robot that moves so."""
        changes = {
            "velocity_lag_s": self.velocity_lag_s,
            "command_delay_s": self.command_delay_s,
            "speed_scale": self.speed_scale,
        }
        if spec.kind == DIFFERENTIAL_DRIVE:
            changes |= {"turn_scale": self.turn_scale, "turn_slip_s_rad": self.turn_slip_s_rad}
        return replace(spec, **changes)


def synthetic_run(
    spec: RobotSpec, truth: Truth, *, robots: int = 3, duration_s: float = 60.0, seed: int = 0
) -> Recording:
    """Return a run in which robots drive with commands that jump every 0.3 to 1.5 s.

    Commands are sent each control period of the robot, poses seen at about 60 Hz; the model is stepped in 2 ms at most,
    with each command from the very moment on at which it acts.
    """
    rng = np.random.default_rng(seed)
    made = [_robot(f"r{k}", spec, truth, duration_s, rng) for k in range(robots)]
    return Recording({robot.name: robot for robot in made}, _START_NS, None, {"kind": "synthetic"})


def _robot(name: str, spec: RobotSpec, truth: Truth, duration_s: float, rng: np.random.Generator) -> RobotRecording:
    moves = truth.spec(spec)
    sent_s = np.arange(0.0, duration_s, spec.control_period_s)
    command = _commands(spec, sent_s, rng)
    # a command begins to act within a step: no delay is rounded
    acts_s = sent_s + truth.command_delay_s
    times = np.union1d(np.arange(0.0, duration_s, _STEP_S), acts_s[acts_s < duration_s])
    acting = np.searchsorted(acts_s, times[:-1], side="right") - 1
    model = motion_model(moves)
    effective = effective_command(model, np.where(acting >= 0, command[:, np.maximum(acting, 0)], 0.0))
    path = _driven(model, effective, np.diff(times))
    seen = np.cumsum(rng.uniform(0.012, 0.021, int(duration_s / 0.012)))
    seen = seen[seen < times[-1]]
    keep = rng.random(len(seen)) > truth.dropout
    for begin in np.arange(rng.uniform(5, 20), duration_s, 20.0):
        keep &= (seen < begin) | (seen > begin + 0.5)
    seen = seen[keep]
    values = np.stack([np.interp(seen, times, row) for row in path])
    values += (
        rng.standard_normal(values.shape) * np.append(np.full(len(values) - 1, truth.noise_m), truth.noise_rad)[:, None]
    )
    return RobotRecording(
        name, spec.name, {"pose": _poses(seen, values, truth, rng), "command": _sent(spec, sent_s, command, truth, rng)}
    )


def _commands(spec: RobotSpec, sent_s: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return commands (D, M) that jump within two thirds of the robot's limits."""
    jumps = np.cumsum(rng.uniform(0.3, 1.5, int(sent_s[-1] / 0.3) + 2))
    piece = np.searchsorted(jumps, sent_s)
    levels = rng.uniform(-1, 1, (spec.dimension, len(jumps) + 1))
    if spec.kind == DIFFERENTIAL_DRIVE:
        ahead = 0.4 * spec.wheel_limit_m_s * (0.6 + 0.4 * levels[0])
        turn = 0.4 * min(spec.turn_rate_limit_rad_s, 2 * spec.wheel_limit_m_s / spec.wheel_base_m) * levels[1]
        return np.stack([np.minimum(ahead, spec.speed_limit_m_s), turn])[:, piece]
    return (0.5 * spec.speed_limit_m_s * levels)[:, piece]


def _driven(model: MotionModel, effective: np.ndarray, durations_s: np.ndarray) -> np.ndarray:
    """Return the path (D + 1, T + 1), position and heading, from rest; effective commands (D, T) last (T,) each."""
    size = len(effective)
    responses = LagResponse.create(durations_s, np.asarray(model.spec.velocity_lag_s))
    state = MotionState(np.zeros(size), np.asarray(0.0), np.zeros(size))
    rows = [np.zeros(size + 1)]
    for k in range(effective.shape[1]):
        response = LagResponse(durations_s[k], responses.gain[k], responses.mean_share[k])
        state = model.step(state, effective[:, k], response)
        rows.append(np.append(state.position_world, state.yaw))
    return np.array(rows).T


def _poses(seen: np.ndarray, values: np.ndarray, truth: Truth, rng: np.random.Generator) -> Series:
    place, yaw = values[:-1], values[-1]
    zero = np.zeros_like(seen)
    columns = [*place, *[zero] * (3 - len(place)), zero, zero, np.sin(yaw / 2), np.cos(yaw / 2)]
    return Series(seen, np.stack(columns, axis=1), _received(seen, truth, rng), "world")


def _sent(spec: RobotSpec, sent_s: np.ndarray, command: np.ndarray, truth: Truth, rng: np.random.Generator) -> Series:
    twist = np.zeros((len(sent_s), 6))
    if spec.kind == DIFFERENTIAL_DRIVE:
        twist[:, 0], twist[:, 5] = command
    else:
        twist[:, : len(command)] = command.T
    own = sent_s * (1 - truth.clock_drift) - truth.clock_offset_s
    return Series(own, twist, _received(sent_s, truth, rng), "base" if spec.kind == DIFFERENTIAL_DRIVE else "world")


def _received(sent_s: np.ndarray, truth: Truth, rng: np.random.Generator) -> np.ndarray:
    return sent_s + 0.0002 + rng.exponential(truth.transport_s, sent_s.shape)
