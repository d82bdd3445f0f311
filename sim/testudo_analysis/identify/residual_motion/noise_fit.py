"""Fit of the residual motion, so that 95 % bands hold at every horizon.

Deviations are matched by a high percentile of the errors over their predicted deviation, in classes of the robot's
own rate and of its change and at every horizon, and not by likelihood: the errors have heavier tails than a Gaussian.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize

from testudo_analysis.identify.residual_motion.rate_windows import PARTS, RateWindows, integrals, means
from testudo_hardware.motion.motion_noise import MotionNoise, NoiseChannel, channel_names
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec
from testudo_runs.alignment import Trajectory

LEVEL, BOUND = 0.95, 1.959964
"""Nominal coverage, and its standard score in a Gaussian distribution."""
_CORRELATIONS_S = (0.05, 0.12, 0.25, 0.5, 1.0, 2.5, 20.0)
_CLASSES = 3  # of the robot's own rate, and of its change, of equal size
_OVERALL = 10.0  # weight of all windows of a horizon
_FEWEST = 50  # windows in a class
_MOST = 60_000  # windows of a fit
_PAIRS = [(p, q) for p in range(PARTS) for q in range(p, PARTS)]
_LEAST = 1e-6
_LOWEST = 1e-3  # score of errors that are all zero
_MAD = 1.4826


def fit_noise(windows: RateWindows, spec: RobotSpec, half_widths: np.ndarray, pose: tuple[float, float]) -> MotionNoise:
    """Return the process of the residual motion in some windows.

    ``half_widths`` (P,) of the intervals of the parameters; ``pose`` are the deviations of a measured pose [m], [rad].
    """
    quiet = tuple(NoiseChannel(0.0, 0.0, 0.0, 1.0) for _ in channel_names(spec))
    noise = MotionNoise(quiet, *pose, spec.kind == DIFFERENTIAL_DRIVE)
    count = len(windows.start)
    if count > _MOST:
        windows = windows.of_stretches(np.arange(len(windows.velocity)) % -(-count // _MOST) == 0)
    parts = windows.rates(noise)
    base = _known_variances(noise, windows, half_widths)
    channels = list(quiet)
    for k in (len(quiet) - 1, *range(len(quiet) - 1)):  # the heading first: its error also moves the robot across
        channels[k], added = _fitted(windows, windows.error[k], base[k], parts[:, k])
        if noise.wheeled and k != 1:  # in the axes at the start, both move the robot across later in the window
            base[1] += (windows.lever_square() if k else windows.turned_share()) * added
    return replace(noise, channels=tuple(channels))


def _known_variances(noise: MotionNoise, windows: RateWindows, half_widths: np.ndarray) -> np.ndarray:
    """Return the variances (C, N) by measured poses, and by parameters that are uniform in their intervals."""
    found = np.einsum("p,pcn->cn", half_widths**2 / 3, windows.slope**2)
    found[:-1] += 2 * noise.pose_position_m**2
    found[-1] += 2 * noise.pose_yaw_rad**2
    if noise.wheeled:
        found[1] += (windows.way_m * noise.pose_yaw_rad) ** 2
    return found + _LEAST**2


def _fitted(
    windows: RateWindows, error: np.ndarray, base: np.ndarray, parts: np.ndarray
) -> tuple[NoiseChannel, np.ndarray]:
    """Return the channel whose bands hold best beside the variance (N,) that is known, and the variance that it adds.

    ``error`` (N,) in this channel, ``parts`` (PARTS, Q, T) of its deviation.
    """
    activities = means(windows, parts)[1:]
    _, channel, added = best_channel(
        error, base, activities, windows.horizon, lambda tau: integrals(windows, parts, tau)
    )
    return channel, added


def best_channel(
    error: np.ndarray,
    base: np.ndarray,
    activities: np.ndarray,
    horizon: np.ndarray,
    products: Callable[[float], np.ndarray],
    correlations_s: Sequence[float] = _CORRELATIONS_S,
) -> tuple[float, NoiseChannel, np.ndarray]:
    """Return how far a channel's bands miss, the channel whose bands miss least, and the variance (N,) that it adds.

    Args:
        error: (N,).
        base: variance (N,) that is known.
        activities: (PARTS - 1, N), in whose classes the bands are to hold, too.
        horizon: (N,) int: index of the horizon.
        products: of a correlation [s], the variance (PARTS, PARTS, N) for one product of two of the channel's numbers.
        correlations_s: that are tried.
    """
    groups = _groups(activities, horizon)
    found = [_Search.create(error, base, groups, products(tau)).best() for tau in correlations_s]
    at = int(np.argmin([miss for miss, _, _ in found]))
    miss, numbers, added = found[at]
    deviation, share, timing_s = (float(number) for number in numbers)
    return miss, NoiseChannel(deviation, share, timing_s, correlations_s[at]), added


@dataclass(frozen=True)
class _Search:
    """Search for the three numbers of a channel with a given correlation."""

    square: np.ndarray  # (N,): of the errors
    base: np.ndarray  # (N,): known variance
    groups: list[tuple[np.ndarray, float]]
    products: np.ndarray  # (pairs, N): variance for one product of two numbers
    scales: np.ndarray  # (PARTS,): the number of one part alone that explains the errors

    @classmethod
    def create(
        cls, error: np.ndarray, base: np.ndarray, groups: list[tuple[np.ndarray, float]], inner: np.ndarray
    ) -> "_Search":
        """Return the search for errors (N,) and integrals (PARTS, PARTS, N)."""
        scales = np.array([_start(error, inner[p, p]) for p in range(PARTS)])
        return cls(error**2, base, groups, np.stack([inner[p, q] for p, q in _PAIRS]), scales)

    def best(self) -> tuple[float, np.ndarray, np.ndarray]:
        """Return the miss, the numbers (PARTS,) and the added variance (N,)."""
        options = {"xatol": 0.005, "fatol": 1e-5, "maxfev": 200}
        found = minimize(self._miss, np.full(PARTS, 0.4), method="Nelder-Mead", options=options)
        numbers = np.abs(found.x) * self.scales
        return float(found.fun), numbers, self._added(numbers)

    def _added(self, numbers: np.ndarray) -> np.ndarray:
        return np.array([(1 if p == q else 2) * numbers[p] * numbers[q] for p, q in _PAIRS]) @ self.products

    def _miss(self, values: np.ndarray) -> float:
        square = self.square / (self.base + self._added(np.abs(values) * self.scales))
        total = 0.0
        for which, weight in self.groups:
            rank = int(LEVEL * (len(which) - 1))
            score = np.sqrt(np.partition(square[which], rank)[rank])
            total += weight * np.log(max(score, _LOWEST) / BOUND) ** 2
        return total


def _start(error: np.ndarray, variance: np.ndarray) -> float:
    """Return the number of one part alone that explains the errors (N,); zero if the part never acts."""
    used = variance > 1e-12 * max(float(variance.max(initial=0.0)), 1e-30)
    return float(np.sqrt(np.mean(error[used] ** 2) / np.mean(variance[used]))) if used.any() else 0.0


def _groups(activities: np.ndarray, horizon: np.ndarray) -> list[tuple[np.ndarray, float]]:
    """Return windows (indices) with a weight: all of each horizon, and its classes by each activity (A, N)."""
    found = []
    for k in np.unique(horizon):
        inside = np.flatnonzero(horizon == k)
        found.append((inside, _OVERALL))
        for activity in activities:
            parts = np.array_split(inside[np.argsort(activity[inside], kind="stable")], _CLASSES)
            found += [(part, 1.0) for part in parts if len(part) >= _FEWEST]
    return found


def pose_noise(tracks: Sequence[Trajectory]) -> tuple[float, float]:
    """Return the standard deviations [m], [rad] of a measured coordinate and heading.

    From each sample less the line through its two neighbours, robustly: a robot hardly accelerates between samples.
    """
    rows = []
    for track in tracks:
        stamps = track.stamp_s
        step = np.maximum(np.diff(stamps), 1e-9)
        share = step[:-1] / (step[:-1] + step[1:])
        near = (stamps[2:] - stamps[:-2]) <= 2 * track.gap_s
        over = np.sqrt(1 + share**2 + (1 - share) ** 2)
        values = np.concatenate([track.position_world.T, track.yaw[None]])
        rest = values[:, 1:-1] - (1 - share) * values[:, :-2] - share * values[:, 2:]
        rows.append((rest / over)[:, near])
    joined = np.concatenate(rows, axis=1)
    if not joined.shape[1]:
        return 0.0, 0.0
    deviation = _MAD * np.median(np.abs(joined), axis=1)
    return float(deviation[:-1].mean()), float(deviation[-1])
