"""Stretches of time in which something holds."""

from __future__ import annotations

import numpy as np


def spans(holds: np.ndarray, stamp_s: np.ndarray, join_s: float = 0.0) -> list[tuple[int, int]]:
    """Return first and last index of every stretch in which ``holds`` (T,) is true.

    Stretches with at most ``join_s`` [s] between them are one.
    """
    index = np.flatnonzero(holds)
    if not len(index):
        return []
    apart = (np.diff(index) > 1) & (np.diff(stamp_s[index]) > join_s)
    first = np.concatenate([[index[0]], index[1:][apart]])
    last = np.concatenate([index[:-1][apart], [index[-1]]])
    return [(int(a), int(b)) for a, b in zip(first, last, strict=True)]
