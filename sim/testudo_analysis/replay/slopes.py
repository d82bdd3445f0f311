"""Rates of change of series whose samples are not evenly spaced, without a shift in time."""

from __future__ import annotations

import numpy as np

HALF_WINDOW_S = 0.15
"""Samples so far before and after take part."""


def local_slopes(stamp_s: np.ndarray, values: np.ndarray, half_window_s: float = HALF_WINDOW_S) -> np.ndarray:
    """Return the slopes (T, C) of straight lines through the samples around each stamp, by least squares.

    The window reaches as far back as ahead, and always takes in the samples next to its own.

    Args:
        stamp_s: (T,), rising, at least two.
        values: (T, C).
        half_window_s: how far it reaches [s].
    """
    index = np.arange(len(stamp_s))
    low = np.minimum(np.searchsorted(stamp_s, stamp_s - half_window_s), np.maximum(index - 1, 0))
    high = np.maximum(
        np.searchsorted(stamp_s, stamp_s + half_window_s, side="right"), np.minimum(index + 2, len(stamp_s))
    )
    count = (high - low).astype(float)[:, None]

    def total(samples: np.ndarray) -> np.ndarray:
        summed = np.concatenate([np.zeros((1, samples.shape[1])), np.cumsum(samples, axis=0)])
        return summed[high] - summed[low]

    time = (stamp_s - stamp_s.mean())[:, None]
    centred = values - values.mean(axis=0)
    times = total(time)
    spread = total(time**2) - times**2 / count
    return (total(time * centred) - times * total(centred) / count) / np.maximum(spread, 1e-12)
