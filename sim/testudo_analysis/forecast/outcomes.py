"""What a run shows, by one definition for recorded runs and for simulated worlds.

Success, time to goal of each robot, least separation, interventions of the shield, command latency of each robot.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from testudo_hardware.spec import RobotSpec

TOLERANCE_M, HOLD_S = 0.1, 1.0
"""Distance to a goal that counts as arrived, and how long all robots must be there: as the monitor of a run has it."""
SUCCESS, TIME_TO_GOAL, SEPARATION, INTERVENTIONS, LATENCY = (
    "success",
    "time_to_goal",
    "least_separation",
    "interventions",
    "latency",
)
UNITS = {SUCCESS: "", TIME_TO_GOAL: "s", SEPARATION: "m", INTERVENTIONS: "share", LATENCY: "s"}
_CHANGE_S, _LONGEST_LATENCY_S = 0.1, 0.8
_LEAST_CORRELATION = 0.3
_TINY = 1e-12


@dataclass(frozen=True)
class TeamSeries:
    """Series of E worlds, or of one recorded run, at control ticks from the first in which a robot may drive."""

    period_s: float
    position_world: np.ndarray = field(repr=False)  # (T, D, N, E) [m]
    velocity: np.ndarray | None = field(repr=False)  # (T, D, N, E), see `MotionState.velocity`; None: unknown
    command: np.ndarray | None = field(repr=False)  # (T, D, N, E): sent at the tick, in the same channels
    changed: np.ndarray | None = field(repr=False)  # (T, N, E) bool: the shield changed the command; None: unknown


def base_name(quantity: str) -> str:
    """Return the name of a quantity without its robot: `time_to_goal` of `time_to_goal.r0`."""
    return quantity.partition(".")[0]


def outcomes(
    series: TeamSeries, names: Sequence[str], goal_world: np.ndarray, horizon_s: float, spec: RobotSpec
) -> dict[str, np.ndarray]:
    """Return each quantity (E,) by name; NaN where a world does not determine it.

    A world ends when all robots have been at their goals for `HOLD_S`, or at the horizon. The time to goal counts until
    a robot stays there; for one that does not arrive it is the horizon. Success: all arrived, no two bodies touched.

    Args:
        series: of robots ``names`` (N).
        names: of the robots.
        goal_world: goals (D, N, E) [m].
        horizon_s: longest duration [s].
        spec: the kind of the robots.
    """
    away = np.linalg.norm(series.position_world - goal_world[None], axis=1)
    there = away < TOLERANCE_M
    end = end_ticks(there.all(axis=1), series.period_s)
    inside = np.arange(len(there))[:, None] <= end  # (T, E)
    outside = ~there & inside[:, None]
    last = len(there) - 1 - np.argmax(outside[::-1], axis=0)
    first = np.where(outside.any(axis=0), last + 1, 0)  # (N, E)
    arrived = first <= end
    time_s = np.where(arrived, np.minimum(first * series.period_s, horizon_s), horizon_s)
    separation = _separations(series.position_world, inside)
    touched = separation < 2 * spec.body_radius_m
    found = {SUCCESS: (arrived.all(axis=0) & ~touched).astype(float)}
    found |= {f"{TIME_TO_GOAL}.{name}": time_s[k] for k, name in enumerate(names)}
    if len(names) > 1:
        found[SEPARATION] = separation
    if series.changed is not None:
        counted = inside[:, None] & np.ones_like(series.changed)
        found[INTERVENTIONS] = (series.changed & counted).sum(axis=(0, 1)) / counted.sum(axis=(0, 1))
    if series.command is not None and series.velocity is not None:
        latency_s = latencies(series.command, series.velocity, inside, series.period_s)
        found |= {f"{LATENCY}.{name}": latency_s[k] for k, name in enumerate(names)}
    return found


def end_ticks(all_there: np.ndarray, period_s: float) -> np.ndarray:
    """Return the tick (E,) at which all robots have been at their goals for `HOLD_S`, of (T, E) bool; or the last."""
    hold = max(1, round(HOLD_S / period_s))
    count = np.cumsum(np.pad(all_there, [(1, 0), (0, 0)]), axis=0)
    held = count[hold:] - count[:-hold] == hold
    return (
        np.where(held.any(axis=0), np.argmax(held, axis=0) + hold - 1, len(all_there) - 1)
        if len(held)
        else (np.full(all_there.shape[1], len(all_there) - 1))
    )


def latencies(command: np.ndarray, velocity: np.ndarray, inside: np.ndarray, period_s: float) -> np.ndarray:
    """Return the time from command to motion (N, E) [s]; NaN without a clear one.

    The shift of the highest correlation between changes of command and velocity over 0.1 s, mean over the channels,
    with the peak of a parabola, as in `testudo_runs.alignment.latency`, here on the grid of the control ticks.

    Args:
        command: (T, D, N, E) sent at each tick.
        velocity: (T, D, N, E) at each tick.
        inside: (T, E) bool: ticks that count.
        period_s: of the ticks [s].
    """
    wide = max(1, round(_CHANGE_S / period_s))
    shifts = max(2, round(_LONGEST_LATENCY_S / period_s)) + 1
    if len(command) < wide + 3 * shifts:
        return np.full(command.shape[2:], np.nan)
    asked, done = ((x[wide:] - x[:-wide]).astype(np.float64) for x in (command, velocity))
    known = inside[wide:, None, None]
    score = np.stack([_correlation(asked, done, known, shift) for shift in range(shifts)])  # (S, N, E)
    best = np.argmax(score, axis=0)
    middle = np.clip(best, 1, shifts - 2)
    low, peak, high = (np.take_along_axis(score, (middle + k)[None], axis=0)[0] for k in (-1, 0, 1))
    bend = low - 2 * peak + high
    vertex = np.where(np.abs(bend) > _TINY, 0.5 * (low - high) / np.where(np.abs(bend) > _TINY, bend, 1.0), 0.0)
    clear = (best == middle) & (peak >= _LEAST_CORRELATION)
    return np.where(clear, (middle + vertex) * period_s, np.nan)


def _correlation(asked: np.ndarray, done: np.ndarray, known: np.ndarray, shift: int) -> np.ndarray:
    """Return the mean correlation (N, E) over channels that vary, of ``done`` a number of ticks after ``asked``."""
    size = len(asked) - shift
    mask = known[shift:]
    count = np.maximum(mask.sum(axis=0), 1)
    first, second = np.where(mask, asked[:size], 0.0), np.where(mask, done[shift:], 0.0)
    mean_1, mean_2 = first.sum(axis=0) / count, second.sum(axis=0) / count
    both = (first * second).sum(axis=0) / count - mean_1 * mean_2
    spread_1 = (first**2).sum(axis=0) / count - mean_1**2
    spread_2 = (second**2).sum(axis=0) / count - mean_2**2
    varies = (spread_1 > _TINY) & (spread_2 > _TINY)
    found = np.where(varies, both / np.sqrt(np.where(varies, spread_1 * spread_2, 1.0)), 0.0)
    return found.sum(axis=0) / np.maximum(varies.sum(axis=0), 1)


def _separations(position_world: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Return the least distance of two centres (E,) [m] in the ticks that count; infinite for one robot."""
    least = np.full(position_world.shape[-1], np.inf)
    for i, j in combinations(range(position_world.shape[2]), 2):
        apart = np.linalg.norm(position_world[:, :, i] - position_world[:, :, j], axis=1)
        least = np.minimum(least, np.where(inside, apart, np.inf).min(axis=0))
    return least


def finite(values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the finite values of each quantity that has any."""
    found = {name: value[np.isfinite(value)] for name, value in values.items()}
    return {name: value for name, value in found.items() if len(value)}
