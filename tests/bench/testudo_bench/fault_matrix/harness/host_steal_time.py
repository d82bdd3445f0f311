"""What the host of a virtual machine took from its cores, as the kernel counts it: a witness beside measured times."""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left, bisect_right
from pathlib import Path

_STAT = Path("/proc/stat")
_PERIOD_S = 0.01
_STOLEN = 8
"""The place of `steal` in the first line of /proc/stat: cpu, user, nice, system, idle, iowait, irq, softirq, steal."""


def stolen_s(stat: str) -> float:
    """Return the time [s], over all cores, that the text of /proc/stat counts as stolen; 0 where it counts none."""
    words = stat.partition("\n")[0].split()
    return int(words[_STOLEN]) / os.sysconf("SC_CLK_TCK") if len(words) > _STOLEN else 0.0


class HostWatch:
    """Notes every 10 ms how much was stolen so far, in a thread of its own, until it is closed."""

    def __init__(self) -> None:
        """Begin to watch, where the system counts."""
        self._at_s: list[float] = []
        self._total_s: list[float] = []
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        if _STAT.exists():
            self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._closing.set()

    def taken_s(self, begin_s: float, end_s: float) -> float:
        """Return how much was stolen between two times of the steady clock [s].

        Seen from the last look before the first to the first look after the second, if that came already.
        """
        if not self._total_s:
            return 0.0
        first = max(bisect_right(self._at_s, begin_s) - 1, 0)
        last = min(bisect_left(self._at_s, end_s), len(self._total_s) - 1)
        return max(0.0, self._total_s[last] - self._total_s[first])

    def _watch(self) -> None:
        while not self._closing.wait(_PERIOD_S):
            total_s = stolen_s(_STAT.read_text(encoding="ascii"))
            self._total_s.append(total_s)  # before its time, so that a reader finds a total for every time
            self._at_s.append(time.monotonic())
