"""Velocity from poses without delay: a polynomial is fitted around each sample, on uneven stamps, never over a gap.

Symmetric in time as the window is (Savitzky and Golay, Analytical Chemistry 1964, for even stamps), so that it shifts
no motion; next to a gap the window is one-sided.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from testudo_runs.recording.recording import RecordingError

_PERIODS = 2.5
"""Samples on either side of a window, at the least."""


@dataclass(frozen=True)
class Smoother:
    """How velocities are found."""

    half_window_s: float = 0.1
    """Samples up to so far on either side are used."""
    degree: int = 2
    gap_s: float = 0.1
    """A longer time between samples is not bridged."""

    @classmethod
    def for_period(cls, period_s: float) -> Self:
        """Return the standard choices, with windows that hold enough samples where they are over 40 ms apart."""
        reach = max(cls.half_window_s, _PERIODS * period_s)
        return cls(half_window_s=reach, gap_s=max(cls.gap_s, reach))


@dataclass(frozen=True)
class Smoothed:
    """Values and their rates at the stamps."""

    values: np.ndarray
    """(T, C)."""
    rates: np.ndarray
    """(T, C) per second; NaN where fewer than degree + 1 samples are near."""
    smoother: Smoother
    known: int
    """Samples that have a rate."""

    def to_dict(self) -> dict[str, Any]:
        """Return the choices and how many samples have a rate, JSON-ready."""
        return asdict(self.smoother) | {"samples": len(self.values), "known": self.known}


def smooth_velocity(stamp_s: np.ndarray, values: np.ndarray, smoother: Smoother | None = None) -> Smoothed:
    """Return smoothed values and rates by local least squares with tricube weights.

    Args:
        stamp_s: (T,) rising.
        values: (T, C); angles unwrapped.
        smoother: choices; the standard ones if not given.

    Raises:
        RecordingError: stamps do not rise.
    """
    chosen = smoother or Smoother()
    stamp, data = np.asarray(stamp_s, float), np.asarray(values, float)
    if np.any(np.diff(stamp) <= 0):
        raise RecordingError("velocity: stamps do not rise; tidy the series first")
    stretch = np.concatenate([[0], np.cumsum(np.diff(stamp) > chosen.gap_s)]) if len(stamp) else np.zeros(0, int)
    smooth, rates = np.full(data.shape, np.nan), np.full(data.shape, np.nan)
    for part in np.unique(stretch):
        inside = np.flatnonzero(stretch == part)
        part_of = slice(inside[0], inside[-1] + 1)
        smooth[part_of], rates[part_of] = _fit(stamp[part_of], data[part_of], chosen)
    return Smoothed(smooth, rates, chosen, int(np.isfinite(rates).all(axis=1).sum()))


def _fit(stamp: np.ndarray, data: np.ndarray, chosen: Smoother) -> tuple[np.ndarray, np.ndarray]:
    """Return values and rates (T, C) of one stretch without gaps; sums over windows of equal count at once."""
    size, half = len(stamp), chosen.half_window_s
    first, last = np.searchsorted(stamp, stamp - half), np.searchsorted(stamp, stamp + half, side="right")
    width = int((last - first).max())
    index = first[:, None] + np.arange(width)
    inside = index < last[:, None]
    index = np.minimum(index, size - 1)
    away = np.where(inside, (stamp[index] - stamp[:, None]) / half, 0.0)
    weight = np.where(inside, np.clip(1 - np.abs(away) ** 3, 1e-6, None) ** 3, 0.0)
    powers = away[..., None] ** np.arange(chosen.degree + 1)
    normal = np.einsum("tk,tki,tkj->tij", weight, powers, powers)
    moment = np.einsum("tk,tki,tkc->tic", weight, powers, data[index] - data[:, None, :])
    enough = (last - first > chosen.degree) & (np.linalg.cond(normal) < 1e9)
    smooth, rates = np.full(data.shape, np.nan), np.full(data.shape, np.nan)
    if enough.any():
        found = np.linalg.solve(normal[enough], moment[enough])
        smooth[enough] = data[enough] + found[:, 0]
        rates[enough] = found[:, 1] / half
    return smooth, rates
