"""Windows of stretches with the model's own rates, and the variances of a noise process integrated over them."""

from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
from scipy.signal import lfilter

from testudo_analysis.identify.estimation.rollout_windows import SegmentSet
from testudo_hardware.motion.motion_noise import MotionNoise, channel_rates

STEP_S = 0.02
"""Step of the process; the shortest correlation is as long."""
PARTS = 3  # constant, rate, change of the rate: the parts of a channel's deviation


@dataclass(frozen=True)
class RateWindows:
    """N windows of Q stretches of one robot type; C channels as in `MotionNoise`."""

    velocity: np.ndarray  # (Q, D, T + 1): of the model at multiples of the step
    step_s: float
    stretch: np.ndarray  # (N,) int
    start: np.ndarray  # (N,) int: step
    end: np.ndarray  # (N,) int: step
    horizon: np.ndarray  # (N,) int: index of the horizon
    error: np.ndarray  # (C, N) [m], [rad]: predicted less recorded, in the axes of the channels at the start
    slope: np.ndarray  # (P, C, N): change of the prediction with each parameter
    way_m: np.ndarray  # (N,): predicted displacement, which an error of the heading turns across; 0 unless wheeled
    robot: np.ndarray  # (N,) int

    @classmethod
    def create(
        cls, stretches: SegmentSet, velocity: np.ndarray, errors: np.ndarray, slopes: np.ndarray, step_s: float
    ) -> Self:
        """Return all valid windows of stretches.

        ``velocity`` (Q, D, T) is that of the model at steps of ``step_s``, ``errors`` (Q, C, S) are predicted less
        recorded, ``slopes`` (P, Q, C, S) their change with each parameter.
        """
        coarse = max(1, round(STEP_S / step_s))
        at = np.nonzero(stretches.valid)
        start, end = (np.round(moment[at] / coarse).astype(int) for moment in (stretches.start, stretches.end))
        kept = velocity[..., ::coarse]
        error = errors[at[0], :, at[1]].T
        moved = stretches.moved[at[0], :, at[1]].T + error[:-1]
        return cls(
            kept,
            step_s * coarse,
            at[0],
            start,
            np.minimum(end, kept.shape[2] - 1),
            stretches.horizon[at],
            error,
            np.moveaxis(slopes[:, at[0], :, at[1]], 0, -1),
            np.sqrt((moved**2).sum(axis=0)),
            stretches.robot[at[0]],
        )

    def of_stretches(self, mask: np.ndarray) -> Self:
        """Return the windows of some stretches (Q,) bool."""
        inside = mask[self.stretch]
        names = {each.name for each in fields(self)} - {"velocity", "step_s"}
        return replace(self, **{name: getattr(self, name)[..., inside] for name in names})

    @property
    def duration_s(self) -> np.ndarray:
        """Return the lengths (N,) of the windows."""
        return (self.end - self.start) * self.step_s

    def lever_square(self) -> np.ndarray:
        """Return the mean square (N,) [m²] of the way that is left in a window: an error of the heading turns it."""
        speed = (self.velocity[:, 0, 1:] + self.velocity[:, 0, :-1]) / 2
        way = _summed(speed * self.step_s)
        sums, squares = _summed(way), _summed(way**2)
        own, count = self.stretch, np.maximum(self.end - self.start, 1)
        mean, square = ((total[own, self.end] - total[own, self.start]) / count for total in (sums, squares))
        last = way[own, self.end]
        return np.maximum(square - 2 * last * mean + last**2, 0.0)

    def turned_share(self) -> np.ndarray:
        """Return the mean (N,) of sin² of the heading since the start: what is along there moves across here."""
        turning = (self.velocity[:, 1, 1:] + self.velocity[:, 1, :-1]) / 2
        double = 2 * _summed(turning * self.step_s)
        own, count = self.stretch, np.maximum(self.end - self.start, 1)
        parts = []
        for wave in (np.cos, np.sin):
            total = _summed(wave(double))
            parts.append((total[own, self.end] - total[own, self.start]) / count * wave(double[own, self.start]))
        return 0.5 - 0.5 * (parts[0] + parts[1])

    def rates(self, noise: MotionNoise) -> np.ndarray:
        """Return the parts (PARTS, C, Q, T) of each channel's deviation in each step."""
        ends = np.moveaxis(self.velocity, 1, 0)
        mean, change = (ends[..., 1:] + ends[..., :-1]) / 2, np.diff(ends, axis=-1) / self.step_s
        rate, changing = channel_rates(noise, mean), channel_rates(noise, change)
        return np.stack([np.ones_like(rate), rate, changing])


def means(windows: RateWindows, parts: np.ndarray) -> np.ndarray:
    """Return the means (PARTS, N) of parts (PARTS, Q, T) in the windows."""
    total = _summed(parts)
    first, last = (total[:, windows.stretch, at] for at in (windows.start, windows.end))
    return (last - first) / np.maximum(windows.end - windows.start, 1)


def integrals(windows: RateWindows, parts: np.ndarray, correlation_s: float) -> np.ndarray:
    """Return the double integrals (PARTS, PARTS, N) [s²] of products of parts (PARTS, Q, T) in the windows.

    With the exponential correlation between the two times: the variance of a window is the quadratic form of these
    with the channel's three numbers.
    """
    step, kept = windows.step_s, float(np.exp(-windows.step_s / correlation_s))
    # Y(t): each part filtered up to a time; Z(t): from a time on; both with half of the step's own share
    up_to = np.asarray(lfilter([1.0], [1.0, -kept], parts, axis=-1)) - parts / 2
    after = np.asarray(lfilter([1.0], [1.0, -kept], parts[..., ::-1], axis=-1))[..., ::-1]
    before = np.concatenate([np.zeros((*parts.shape[:-1], 1)), np.asarray(lfilter([kept], [1.0, -kept], parts))], -1)
    after = np.concatenate([after, np.zeros((*parts.shape[:-1], 1))], axis=-1)
    own, start, end = windows.stretch, windows.start, windows.end
    decay = kept ** (end - start)
    ahead = after[:, own, start] - decay * after[:, own, end]  # (PARTS, N)
    behind = before[:, own, start]
    found = np.empty((len(parts), len(parts), len(start)))
    for p in range(len(parts)):
        for q in range(p, len(parts)):
            total = _summed(parts[p] * up_to[q] + parts[q] * up_to[p])
            pair = total[own, end] - total[own, start] - behind[q] * ahead[p] - behind[p] * ahead[q]
            found[p, q] = found[q, p] = step**2 * np.maximum(pair, 0.0)
    return found


def _summed(values: np.ndarray) -> np.ndarray:
    """Return the cumulative sums (..., T + 1) of values (..., T), from zero."""
    return np.concatenate([np.zeros((*values.shape[:-1], 1)), np.cumsum(values, axis=-1)], axis=-1)
