"""How old odometry is when the command that rests on it comes to the driver; pure, on the plant's clock."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

import numpy as np

_KEPT = 64
"""Odometry messages that are remembered; more than any command is late."""


class LatencyMeter:
    """Times from the sending of an odometry message to the arrival of the command of the tick that it began.

    A tick begins on the arrival of odometry, so that it is the newest one sent before the command's stamp. A tick that
    began alone counts from the newest one, too, and so longer.
    """

    def __init__(self, warm_up_s: float) -> None:
        self._warm_up_s = warm_up_s
        self._sent_s: deque[float] = deque(maxlen=_KEPT)
        self._first_s: float | None = None
        self._found: list[float] = []

    def odometry(self, now_s: float) -> None:
        """Note that odometry is sent."""
        self._sent_s.append(now_s)

    def command(self, stamp_s: float, received_s: float) -> None:
        """Note that a command of this stamp arrived; the first seconds, of warming up, do not count."""
        if self._first_s is None:
            self._first_s = received_s
        before = bisect_right(self._sent_s, stamp_s)
        if before and received_s - self._first_s >= self._warm_up_s:
            self._found.append(received_s - self._sent_s[before - 1])

    def summary(self) -> dict[str, float | int]:
        """Return the count, and median, 99th percentile and worst [s] where there is any."""
        if not self._found:
            return {"commands": 0}
        times = np.array(self._found)
        return {
            "commands": len(times),
            "p50_s": float(np.median(times)),
            "p99_s": float(np.percentile(times, 99)),
            "worst_s": float(times.max()),
        }
