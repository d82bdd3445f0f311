"""Samples motions on an even grid and correlates them, to align clocks and to assign topics to robots."""

from dataclasses import dataclass

import numpy as np

from testudo_hardware.frames import heading

STEP_S = 0.02
_SMOOTH_S = 0.1
_QUIET = {"forward": 0.01, "left": 0.01, "turn": 0.02, "speed": 0.01, "east": 0.01, "north": 0.01, "up": 0.01}
"""Least standard deviation [m/s or rad/s] of a usable channel."""
_MOST_STEPS = 1_000_000  # five hours; the beginning of a longer recording is enough


@dataclass(frozen=True)
class SampledMotion:
    """Velocities on an even grid of `STEP_S`."""

    begin_s: float
    channels: dict[str, np.ndarray]
    """Of equal length: `forward`, `left` [m/s] and `turn` [rad/s] in the body, `east`, `north`, `up` [m/s] in the
    world, `speed` [m/s] over ground."""

    @property
    def steps(self) -> int:
        """Return the number of grid points."""
        return len(next(iter(self.channels.values()))) if self.channels else 0

    def part(self, begin: int, end: int) -> "SampledMotion":
        """Return the motion from one grid point up to another."""
        channels = {name: values[begin:end] for name, values in self.channels.items()}
        return SampledMotion(self.begin_s + begin * STEP_S, channels)

    def lively(self) -> set[str]:
        """Return the channels with enough variation for a match."""
        return {name for name, values in self.channels.items() if values.std() > _QUIET[name]}


@dataclass(frozen=True)
class MotionMatch:
    """Correlation of one motion with another."""

    lag_s: float  # delay of the second motion [s]
    score: float  # mean correlation at that lag, 1 for the same motion
    rival: float  # highest correlation at a lag more than 1 s away
    channels: tuple[str, ...]


def motion_of(role: str, times_s: np.ndarray, values: np.ndarray) -> SampledMotion | None:
    """Return the motion of samples (T, C) of a role at times (T,); None for a role without motion or few samples."""
    times_s, keep = np.unique(times_s, return_index=True)
    values = values[keep]
    if len(times_s) < 10:
        return None
    # a stray stamp would extend the grid by hours
    low, high = np.quantile(times_s, (0.01, 0.99))
    inside = (times_s >= low - 0.05 * (high - low)) & (times_s <= high + 0.05 * (high - low))
    times_s, values = times_s[inside], values[inside]
    if times_s[-1] - times_s[0] < 1.0:
        return None
    steps = min(int((times_s[-1] - times_s[0]) / STEP_S) + 1, _MOST_STEPS)
    grid = times_s[0] + STEP_S * np.arange(steps)
    even = np.stack([np.interp(grid, times_s, column) for column in values.T])
    if role == "command":
        # a command acts until the next one
        held = values[np.clip(np.searchsorted(times_s, grid, side="right") - 1, 0, None)].T
        found = {"forward": held[0], "left": held[1], "turn": held[5], "speed": np.hypot(held[0], held[1])}
        found |= {"east": held[0], "north": held[1], "up": held[2]}
    elif role == "imu":
        found = {"turn": even[5]}
    elif role in ("pose", "odometry", "setpoint"):
        yaw = np.interp(grid, times_s, np.unwrap(heading(values[:, 3:7].T)))
        velocity = np.stack([np.gradient(_smooth(column), STEP_S) for column in even[:3]])
        forward = velocity[0] * np.cos(yaw) + velocity[1] * np.sin(yaw)
        left = velocity[1] * np.cos(yaw) - velocity[0] * np.sin(yaw)
        found = {"forward": forward, "left": left, "turn": np.gradient(_smooth(yaw), STEP_S)}
        found |= {"east": velocity[0], "north": velocity[1], "up": velocity[2]}
        found["speed"] = np.hypot(velocity[0], velocity[1])
    else:
        return None
    return SampledMotion(float(grid[0]), {name: _smooth(column) for name, column in found.items()})


ANY_FRAME = ("speed", "turn", "up")
"""Channels that do not depend on the orientation of the frames."""
IN_BODY, IN_WORLD = ("forward", "left", "turn"), ("east", "north", "up")


def follow(
    first: SampledMotion,
    second: SampledMotion,
    lags_s: tuple[float, float] | None = None,
    channels: tuple[str, ...] = ANY_FRAME,
) -> MotionMatch | None:
    """Return the lag with the best correlation of ``second`` with ``first``; None without a common usable channel.

    ``lags_s`` is the range of lags; None for all with an overlap of at least a third of the shorter motion. Of the
    ``channels`` those usable in both motions are compared.
    """
    names = tuple(name for name in channels if name in first.lively() & second.lively())
    if not names:
        return None
    least = max(25, min(first.steps, second.steps) // 3)
    scores = np.mean([_correlations(first.channels[name], second.channels[name], least) for name in names], axis=0)
    lags = np.arange(-(first.steps - 1), second.steps) * STEP_S + (second.begin_s - first.begin_s)
    if lags_s is not None:
        inside = (lags >= lags_s[0]) & (lags <= lags_s[1])
        scores, lags = scores[inside], lags[inside]
    if not len(scores) or not np.isfinite(scores).any():
        return None
    best = int(np.nanargmax(scores))
    far = np.abs(lags - lags[best]) > 1.0
    rival = float(np.nanmax(scores[far])) if far.any() and np.isfinite(scores[far]).any() else -1.0
    return MotionMatch(float(lags[best] + _vertex(scores, best) * STEP_S), float(scores[best]), rival, names)


def _correlations(first: np.ndarray, second: np.ndarray, least: int) -> np.ndarray:
    """Return the correlation of the overlap at every lag of ``second``, by FFT; NaN where the overlap is too short."""
    n, m = len(first), len(second)
    size = 1 << (n + m - 1).bit_length()

    def crossed(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        product = np.fft.irfft(np.fft.rfft(b, size) * np.conj(np.fft.rfft(a, size)), size)
        return np.concatenate([product[size - n + 1 :], product[:m]])

    a, b = first - first.mean(), second - second.mean()
    ones_a, ones_b = np.ones(n), np.ones(m)
    count = np.rint(crossed(ones_a, ones_b))
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_a, mean_b = crossed(a, ones_b) / count, crossed(ones_a, b) / count
        spread_a = crossed(a * a, ones_b) / count - mean_a**2
        spread_b = crossed(ones_a, b * b) / count - mean_b**2
        together = crossed(a, b) / count - mean_a * mean_b
        found = together / np.sqrt(spread_a * spread_b)
    # an overlap almost without motion gives no correlation
    quiet = (spread_a < 0.05 * a.var()) | (spread_b < 0.05 * b.var())
    return np.where((count >= least) & ~quiet, found, np.nan)


def _vertex(scores: np.ndarray, best: int) -> float:
    """Return the offset of the peak in steps: the vertex of the parabola through three points."""
    if not 0 < best < len(scores) - 1:
        return 0.0
    low, mid, high = scores[best - 1 : best + 2]
    bend = low - 2 * mid + high
    return float(np.clip(0.5 * (low - high) / bend, -0.5, 0.5)) if np.isfinite(bend) and bend < 0 else 0.0


def _smooth(column: np.ndarray) -> np.ndarray:
    """Return a column smoothed by a Gaussian of `_SMOOTH_S`, without delay."""
    reach = round(3 * _SMOOTH_S / STEP_S)
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) * STEP_S / _SMOOTH_S) ** 2)
    return np.convolve(np.pad(column, reach, mode="edge"), kernel / kernel.sum(), mode="valid")
