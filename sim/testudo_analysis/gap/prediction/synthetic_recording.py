"""Recordings of a motion model itself: what it makes of random commands, as a tracker would have seen it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from testudo_hardware.links.wire import WORLD_FRAME, body_frame
from testudo_hardware.motion import LagResponse, MotionState, motion_model
from testudo_hardware.motion.motion_model import effective_command
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec
from testudo_runs.recording.recording import Recording, RobotRecording, Series
from testudo_runs.recording.write import IMPORTED

_TICK_S = 0.01


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
    """Return a recording of robots that move exactly as the model says, each with parameters of its own.

    Args:
        spec: the robot as described.
        robots: how many; `robot1` and on.
        seconds: how long.
        hold_s: mean time from one command to the next, which repeat ten times a second.
        pose_period_s: of the poses; a multiple of 10 ms.
        noise_m: standard deviation of each coordinate; of the yaw it is as many rad.
        seed: of commands and noise.
        truth: attributes of `RobotSpec` that are other in truth, by robot; `all` for all of them.
    """
    rng = np.random.default_rng(seed)
    found = {}
    for k in range(robots):
        name = f"robot{k + 1}"
        own = replace(spec, **{**(truth or {}).get("all", {}), **(truth or {}).get(name, {})})
        found[name] = _robot(name, spec, own, round(seconds / _TICK_S), hold_s, pose_period_s, noise_m, rng)
    return Recording(found, 0, None, {"kind": IMPORTED})


def _robot(
    name: str,
    spec: RobotSpec,
    own: RobotSpec,
    ticks: int,
    hold_s: float,
    pose_period_s: float,
    noise_m: float,
    rng: np.random.Generator,
) -> RobotRecording:
    told = _commands(spec, ticks, hold_s, rng)
    poses = _drive(own, told)[:: round(pose_period_s / _TICK_S)]
    poses += noise_m * rng.standard_normal(poses.shape)
    times = np.arange(len(poses)) * pose_period_s
    dimension = spec.dimension
    position = np.pad(poses[:, :dimension], ((0, 0), (0, 3 - dimension)))
    half = 0.5 * poses[:, dimension]
    turns = np.stack([np.zeros_like(half), np.zeros_like(half), np.sin(half), np.cos(half)], axis=1)
    twist = np.zeros((ticks, 6))
    wheeled = spec.kind == DIFFERENTIAL_DRIVE
    twist[:, [0, 5] if wheeled else list(range(dimension))] = told.T
    sent = slice(None, None, round(0.1 / _TICK_S))
    series = {
        "pose": Series(times, np.concatenate([position, turns], axis=1), None, WORLD_FRAME),
        "command": Series(
            np.arange(ticks)[sent] * _TICK_S, twist[sent], None, body_frame(name) if wheeled else WORLD_FRAME
        ),
    }
    return RobotRecording(name, spec.name, series)


def _commands(spec: RobotSpec, ticks: int, hold_s: float, rng: np.random.Generator) -> np.ndarray:
    """Return commands (D, ticks) that stay for multiples of a tenth of a second."""
    tenths = round(0.1 / _TICK_S)
    steps = -(-ticks // tenths)
    fresh = rng.random(steps) < 0.1 / hold_s
    fresh[0] = True
    which = np.cumsum(fresh) - 1
    size = which[-1] + 1
    if spec.kind == DIFFERENTIAL_DRIVE:
        wanted = np.stack(
            [
                spec.speed_limit_m_s * rng.uniform(0.1, 0.6, size),
                spec.turn_rate_limit_rad_s * rng.uniform(-0.3, 0.3, size),
            ]
        )
    else:
        wanted = spec.speed_limit_m_s * rng.uniform(-0.4, 0.4, (spec.dimension, size))
    return np.repeat(wanted[:, which], tenths, axis=1)[:, :ticks]


def _drive(spec: RobotSpec, told: np.ndarray) -> np.ndarray:
    """Return position and yaw (ticks, D + 1) under delayed commands (D, ticks)."""
    model = motion_model(spec)
    effective = effective_command(model, told)
    late = round(spec.command_delay_s / _TICK_S)
    effective = np.concatenate([np.zeros((len(told), late)), effective], axis=1)
    response = LagResponse.create(np.array(_TICK_S), np.array(spec.velocity_lag_s))
    state = MotionState(np.zeros(spec.dimension), np.array(0.0), np.zeros(spec.dimension))
    rows = np.empty((told.shape[1], spec.dimension + 1))
    for k in range(told.shape[1]):
        rows[k] = *state.position_world, state.yaw
        state = model.step(state, effective[:, k], response)
    return rows
