"""How late ticks begin: measured against the grid that a timer should keep."""

from __future__ import annotations

import math

LATE_S = 0.01
"""A tick that begins later than this after its time counts as late."""


class Pacer:
    """Counts ticks, and those that are late or left out, on the caller's steady clock."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._expected_s: float | None = None
        self.ticks = 0
        self.late_ticks = 0
        self.missed_ticks = 0
        """Ticks that never were because an earlier one took too long; timers do not catch up."""
        self.worst_late_s = 0.0

    def begin(self, now_s: float) -> float:
        """Note that a tick begins and return how late it is [s]."""
        expected_s = now_s if self._expected_s is None else self._expected_s
        late_s = max(0.0, now_s - expected_s)
        missed = math.floor(late_s / self._period_s)
        # a tick before its time shows that the grid was noted too late
        on_grid_s = min(expected_s + missed * self._period_s, now_s)
        self._expected_s = on_grid_s + self._period_s
        self.ticks += 1
        self.late_ticks += late_s > LATE_S
        self.missed_ticks += missed
        self.worst_late_s = max(self.worst_late_s, late_s)
        return late_s
