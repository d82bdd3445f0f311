"""When a robot ticks, and how late: on the arrival of a pose, or by itself where none comes.

A command then rests on the freshest pose; a second timer would add half a period of age.
"""

from __future__ import annotations

import math

LATE_S = 0.01
"""A tick that begins later than this after its time counts as late."""
EARLY_SHARE = 0.25
"""A pose may come so much earlier than its time, as a share of the period, and begin a tick."""
WAIT_SHARE = 0.25
"""For this share of the period a tick waits for a pose."""
_BACK_PERIODS = 3
"""No tick is due later than so many periods from now."""
_FOLLOW = 0.2
"""Share of the distance to its poses by which the grid follows them from tick to tick."""


class TickPacer:
    """Says when to tick, and counts ticks, those that are late and those left out, on the caller's clock.

    Its grid has the robot's period and moves slowly with the poses, whose clock may run a little faster or slower and
    whose times jitter.
    """

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._due_s: float | None = None
        self._early_s: float | None = None
        """When the newest pose came that was too early to begin a tick; None once a tick began."""
        self.ticks = 0
        self.late_ticks = 0
        self.missed_ticks = 0
        """Ticks that never were because an earlier one took too long; nothing is made up for."""
        self.worst_late_s = 0.0

    def is_due(self, now_s: float) -> bool:
        """Return whether a pose that comes now begins a tick."""
        if self._due_s is None or self._is_late(now_s):
            return True
        is_due = now_s >= self._due_s - EARLY_SHARE * self._period_s
        if not is_due:
            self._early_s = now_s
        return is_due

    def alone_s(self, now_s: float) -> float:
        """Return after which time without a pose the robot ticks by itself."""
        waits_s = WAIT_SHARE * self._period_s
        if self._due_s is None or self._is_late(now_s):
            return self._period_s + waits_s
        return max(self._due_s + waits_s - now_s, 0.0)

    def begin(self, now_s: float, *, on_pose: bool = True) -> float:
        """Note that a tick begins, on a pose or alone, and return how late it is [s]."""
        due_s = now_s if self._due_s is None or self._is_late(now_s) else self._due_s
        off_s = now_s - due_s
        late_s = max(0.0, off_s - (0.0 if on_pose else WAIT_SHARE * self._period_s))
        missed = math.floor(late_s / self._period_s)
        if missed:
            due_s, off_s = now_s, 0.0
        elif not on_pose:  # it waited in vain; were all poses too early for their ticks, it would so for ever
            off_s = 0.0 if self._early_s is None else -EARLY_SHARE * self._period_s
        self._early_s = None
        self._due_s = due_s + self._period_s + _FOLLOW * off_s
        self.ticks += 1
        self.late_ticks += late_s > LATE_S
        self.missed_ticks += missed
        self.worst_late_s = max(self.worst_late_s, late_s)
        return late_s

    def _is_late(self, now_s: float) -> bool:
        """Return whether the clock was set back, so that the grid lies in a future that does not come."""
        return self._due_s - now_s > _BACK_PERIODS * self._period_s
