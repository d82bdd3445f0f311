"""Synthetic runs of known robots, for the tests and studies of identification and gap."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from testudo_hardware.links.wire import WORLD_FRAME, body_frame
from testudo_hardware.motion import LagResponse, MotionModel, MotionState, motion_model
from testudo_hardware.motion.motion_model import effective_command
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec
from testudo_runs.recording.recording import Recording, RobotRecording, Series
from testudo_runs.recording.write import IMPORTED

_START_NS = 1_700_000_000_000_000_000  # An arbitrary time of day
_STEP_S = 0.002
_TICK_S = 0.01


@dataclass(frozen=True)
class Truth:
    """True parameters of synthetic robots, and the errors of their recording."""

    velocity_lag_s: float
    command_delay_s: float
    speed_scale: float
    turn_scale: float = 1.0
    turn_slip_s_rad: float = 0.0
    noise_m: float = 0.0015
    noise_rad: float = 0.005
    dropout: float = 0.02  # share of poses lost singly; in addition, 0.5 s of poses is lost every 20 s
    clock_offset_s: float = 0.0
    """Initial offset of the robot's clock, which stamps the commands, behind the recorder's clock."""
    clock_drift: float = 0.0
    transport_s: float = 0.002  # Mean transport time of a message to the recorder beyond 0.2 ms

    def spec(self, spec: RobotSpec) -> RobotSpec:
        """Return a robot with the true parameters."""
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
    """Return a run of robots whose commands jump every 0.3 to 1.5 s, with noise, dropouts and clock errors.

    Commands have the robot's control period, poses about 60 Hz. The model steps by at most 2 ms, and each command acts
    from its exact time on.
    """
    rng = np.random.default_rng(seed)
    made = [_noisy_robot(f"r{k}", spec, truth, duration_s, rng) for k in range(robots)]
    return Recording({robot.name: robot for robot in made}, _START_NS, None, {"kind": "synthetic"})


def synthetic_recording(
    spec: RobotSpec,
    *,
    robots: int = 2,
    seconds: float = 60.0,
    hold_s: float = 0.4,
    pose_period_s: float = 0.02,
    noise_m: float = 0.0,
    seed: int = 0,
    truth: Mapping[str, Mapping[str, float]] | None = None,
) -> Recording:
    """Return a recording of robots that move exactly as the motion model, each with its own parameters.

    Args:
        spec: the robot as described.
        robots: number of robots, named `robot1` and so on.
        seconds: duration [s].
        hold_s: mean time [s] between changes of the command, which repeats ten times a second.
        pose_period_s: period of the poses [s]; a multiple of 10 ms.
        noise_m: standard deviation of each coordinate [m], and of the yaw [rad].
        seed: of commands and noise.
        truth: true values of attributes of `RobotSpec` by robot; `all` for all of them.
    """
    rng = np.random.default_rng(seed)
    found, true = {}, truth or {}
    for name in (f"robot{k + 1}" for k in range(robots)):
        own = replace(spec, **{**true.get("all", {}), **true.get(name, {})})
        command = _tenths(spec, round(seconds / _TICK_S), hold_s, rng)
        poses = _tick_poses(own, command)[:, :: round(pose_period_s / _TICK_S)]
        poses += noise_m * rng.standard_normal(poses.T.shape).T
        times = np.arange(poses.shape[1]) * pose_period_s
        sent = slice(None, None, round(0.1 / _TICK_S))
        frame = body_frame(name) if spec.kind == DIFFERENTIAL_DRIVE else WORLD_FRAME
        series = {
            "pose": Series(times, _pose_rows(poses), None, WORLD_FRAME),
            "command": Series(
                np.arange(command.shape[1])[sent] * _TICK_S, _twist_rows(spec, command)[sent], None, frame
            ),
        }
        found[name] = RobotRecording(name, spec.name, series)
    return Recording(found, 0, None, {"kind": IMPORTED})


def _noisy_robot(
    name: str, spec: RobotSpec, truth: Truth, duration_s: float, rng: np.random.Generator
) -> RobotRecording:
    sent_s = np.arange(0.0, duration_s, spec.control_period_s)
    command = _jumps(spec, sent_s, rng)
    # step borders at the times at which commands begin to act: no delay is rounded
    acts_s = sent_s + truth.command_delay_s
    times = np.union1d(np.arange(0.0, duration_s, _STEP_S), acts_s[acts_s < duration_s])
    acting = np.searchsorted(acts_s, times[:-1], side="right") - 1
    model = motion_model(truth.spec(spec))
    effective = effective_command(model, np.where(acting >= 0, command[:, np.maximum(acting, 0)], 0.0))
    path = _path(model, effective, np.diff(times))
    seen = np.cumsum(rng.uniform(0.012, 0.021, int(duration_s / 0.012)))
    seen = seen[seen < times[-1]]
    keep = rng.random(len(seen)) > truth.dropout
    for begin in np.arange(rng.uniform(5, 20), duration_s, 20.0):
        keep &= (seen < begin) | (seen > begin + 0.5)
    seen = seen[keep]
    poses = np.stack([np.interp(seen, times, row) for row in path])
    deviation = np.append(np.full(len(poses) - 1, truth.noise_m), truth.noise_rad)[:, None]
    poses += rng.standard_normal(poses.shape) * deviation
    stamps = sent_s * (1 - truth.clock_drift) - truth.clock_offset_s
    frame = "base" if spec.kind == DIFFERENTIAL_DRIVE else "world"
    series = {
        "pose": Series(seen, _pose_rows(poses), _received(seen, truth, rng), "world"),
        "command": Series(stamps, _twist_rows(spec, command), _received(sent_s, truth, rng), frame),
    }
    return RobotRecording(name, spec.name, series)


def _jumps(spec: RobotSpec, sent_s: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return commands (D, M) that jump within two thirds of the robot's limits."""
    jumps = np.cumsum(rng.uniform(0.3, 1.5, int(sent_s[-1] / 0.3) + 2))
    piece = np.searchsorted(jumps, sent_s)
    levels = rng.uniform(-1, 1, (spec.dimension, len(jumps) + 1))
    if spec.kind == DIFFERENTIAL_DRIVE:
        ahead = 0.4 * spec.wheel_limit_m_s * (0.6 + 0.4 * levels[0])
        turn = 0.4 * min(spec.turn_rate_limit_rad_s, 2 * spec.wheel_limit_m_s / spec.wheel_base_m) * levels[1]
        return np.stack([np.minimum(ahead, spec.speed_limit_m_s), turn])[:, piece]
    return (0.5 * spec.speed_limit_m_s * levels)[:, piece]


def _tenths(spec: RobotSpec, ticks: int, hold_s: float, rng: np.random.Generator) -> np.ndarray:
    """Return commands (D, ticks) that hold for multiples of 0.1 s."""
    tenths = round(0.1 / _TICK_S)
    steps = -(-ticks // tenths)
    fresh = rng.random(steps) < 0.1 / hold_s
    fresh[0] = True
    which = np.cumsum(fresh) - 1
    size = which[-1] + 1
    if spec.kind == DIFFERENTIAL_DRIVE:
        speed = spec.speed_limit_m_s * rng.uniform(0.1, 0.6, size)
        wanted = np.stack([speed, spec.turn_rate_limit_rad_s * rng.uniform(-0.3, 0.3, size)])
    else:
        wanted = spec.speed_limit_m_s * rng.uniform(-0.4, 0.4, (spec.dimension, size))
    return np.repeat(wanted[:, which], tenths, axis=1)[:, :ticks]


def _tick_poses(spec: RobotSpec, command: np.ndarray) -> np.ndarray:
    """Return position and yaw (D + 1, ticks) under commands (D, ticks), delayed by whole ticks."""
    model, late = motion_model(spec), round(spec.command_delay_s / _TICK_S)
    effective = np.concatenate([np.zeros((len(command), late)), effective_command(model, command)], axis=1)
    return _path(model, effective[:, : command.shape[1]], np.full(command.shape[1], _TICK_S))[:, :-1]


def _path(model: MotionModel, effective: np.ndarray, durations_s: np.ndarray) -> np.ndarray:
    """Return the path (D + 1, T + 1), position and yaw, from rest; effective commands (D, T) hold for (T,) [s]."""
    size = len(effective)
    responses = LagResponse.create(durations_s, np.asarray(model.spec.velocity_lag_s))
    state = MotionState(np.zeros(size), np.asarray(0.0), np.zeros(size))
    rows = [np.zeros(size + 1)]
    for k in range(effective.shape[1]):
        response = LagResponse(durations_s[k], responses.gain[k], responses.mean_share[k])
        state = model.step(state, effective[:, k], response)
        rows.append(np.append(state.position_world, state.yaw))
    return np.array(rows).T


def _pose_rows(poses: np.ndarray) -> np.ndarray:
    """Return pose rows (T, 7), position and quaternion, of positions and yaws (D + 1, T)."""
    place, yaw = poses[:-1], poses[-1]
    zero = np.zeros_like(yaw)
    return np.stack([*place, *[zero] * (5 - len(place)), np.sin(yaw / 2), np.cos(yaw / 2)], axis=1)


def _twist_rows(spec: RobotSpec, command: np.ndarray) -> np.ndarray:
    """Return twist rows (T, 6) of commands (D, T)."""
    twist = np.zeros((command.shape[1], 6))
    twist[:, [0, 5] if spec.kind == DIFFERENTIAL_DRIVE else list(range(len(command)))] = command.T
    return twist


def _received(sent_s: np.ndarray, truth: Truth, rng: np.random.Generator) -> np.ndarray:
    return sent_s + 0.0002 + rng.exponential(truth.transport_s, sent_s.shape)
