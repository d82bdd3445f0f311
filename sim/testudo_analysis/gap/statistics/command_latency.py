"""Latency from command to response, in the recording and in the model, by the same measure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from testudo_analysis.gap.statistics.block_bootstrap import Interval
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec
from testudo_runs.alignment import AlignedRobot, response_latency

_STEP_S = 0.01
_LONGEST_S = 0.8
_PARTS, _LONGEST_PART_S, _SHORTEST_PART_S = 6, 30.0, 5.0
_CHANGE_S = 0.1
_LEAST_USABLE = 0.8
_LEAST_PARTS = 3


@dataclass(frozen=True)
class CommandLatency:
    """By how much the response of one channel is behind its command: delay and lag together."""

    robot: str
    channel: str
    """`speed`, `turn rate`, or `x`, `y`, `z` of the velocity; of flights `roll and pitch rate`."""
    real_s: Interval
    model_s: float
    """The same measure on the model's own response to these commands."""
    correlation: float
    """Of command and real response at that latency."""


def latencies(robot: AlignedRobot, spec: RobotSpec) -> list[CommandLatency]:
    """Return the latency of each channel that the robot was moved in.

    The shift at which the changes of the real velocity fit those of the command best; the interval is that of
    stretches of at most 30 s against one another.
    """
    track, found = robot.trajectory, []
    names = ("speed", "turn rate") if spec.kind == DIFFERENTIAL_DRIVE else ("x", "y", "z")[: spec.dimension]
    times = np.arange(track.stamp_s[0] + 1.0, track.stamp_s[-1], _STEP_S)
    before = np.searchsorted(robot.pieces.begin_s, times, side="right") - 1
    holes = np.interp(times, track.stamp_s[:-1], np.diff(track.stamp_s)) > 0.1
    usable = (before >= 0) & robot.pieces.known[np.maximum(before, 0)] & ~holes
    for channel, name in enumerate(names):
        command = np.where(before >= 0, robot.pieces.values[channel][np.maximum(before, 0)], 0.0)
        real = np.interp(times, track.stamp_s, track.velocity[:, channel])
        model = _lagged(command, spec)
        shifts, weights, model_shifts = [], [], []
        size = round(np.clip(len(times) * _STEP_S / _PARTS, _SHORTEST_PART_S, _LONGEST_PART_S) / _STEP_S)
        for begin in range(0, len(times), size):
            part = slice(begin, begin + size)
            one = _shift(times[part], command[part], real[part], usable[part])
            if one is not None:
                shifts.append(one[0])
                weights.append(one[1])
                other = _shift(times[part], command[part], model[part], usable[part])
                model_shifts.append(other[0] if other else np.nan)
        if len(shifts) >= _LEAST_PARTS:
            rng = np.random.default_rng(0)
            drawn = np.median(rng.choice(shifts, (500, len(shifts))), axis=1)
            found.append(
                CommandLatency(
                    robot.name,
                    name,
                    Interval.of_samples(float(np.median(shifts)), drawn),
                    float(np.nanmedian(model_shifts)),
                    float(np.median(weights)),
                )
            )
    return found


def _lagged(command: np.ndarray, spec: RobotSpec) -> np.ndarray:
    """Return a delayed first-order response to a command on the grid."""
    gain = -np.expm1(-_STEP_S / max(spec.velocity_lag_s, 1e-6))
    late = np.concatenate([np.full(round(spec.command_delay_s / _STEP_S), command[0]), command])[: len(command)]
    out, value = np.empty_like(late), late[0]
    for k, wanted in enumerate(late):
        out[k] = value
        value += gain * (wanted - value)
    return out


def _shift(
    times_s: np.ndarray, command: np.ndarray, response: np.ndarray, usable: np.ndarray
) -> tuple[float, float] | None:
    """Return the shift [s] of the best correlation and that correlation; None without a clear one."""
    if usable.mean() < _LEAST_USABLE or np.ptp(command) < 1e-6:
        return None
    # changes over a tenth of a second: slow drift would correlate at any shift
    wide = round(_CHANGE_S / _STEP_S)
    first, second = (values[wide:] - values[:-wide] for values in (command, response))
    found = response_latency(times_s[wide:], first, times_s[wide:], second, longest_s=_LONGEST_S)
    return (found.delay_s, found.correlation) if found.determined else None
