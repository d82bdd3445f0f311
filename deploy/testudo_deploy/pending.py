"""The commands that were sent and have yet to act, with the times at which they do."""

from __future__ import annotations

import math
from collections import deque

import numpy as np

_KEEP = 32
"""Commands that are kept; more than any pose age plus delay spans."""


class PendingCommands:
    """A robot's own commands on its steady clock; irregular ticks are taken as they were."""

    def __init__(self, delay_s: float, dead_man_s: float) -> None:
        self._delay_s, self._dead_man_s = delay_s, dead_man_s
        self._sent: deque[tuple[float, np.ndarray]] = deque(maxlen=_KEEP)

    def push(self, now_s: float, effective: np.ndarray) -> None:
        """Note an effective command (D,) that is sent now."""
        self._sent.appendleft((now_s, np.asarray(effective, float)))

    def since(self, stamp_s: float, now_s: float) -> tuple[list[np.ndarray], tuple[float, ...]]:
        """Return what acts between ``stamp_s`` and ``now_s + delay``, newest first, with durations [s].

        A command acts from its sending plus the delay until the next one does, or until the driver's
        dead-man time is over and zero acts. Before the first command zero acts.
        """
        commands: list[np.ndarray] = []
        durations: list[float] = []
        end = now_s + self._delay_s
        for sent_s, command in self._sent:
            if end <= stamp_s:
                break
            begin = sent_s + self._delay_s
            stale = begin + self._dead_man_s
            for value, low, high in ((0 * command, stale, end), (command, begin, min(end, stale))):
                time_s = high - max(low, stamp_s)
                if time_s > 0:
                    commands.append(value)
                    durations.append(time_s)
            end = min(end, begin)
        if self._sent and end > stamp_s:
            commands.append(0 * self._sent[0][1])
            durations.append(end - stamp_s)
        return commands, tuple(durations)

    def may_act(self, begin_s: float, end_s: float, delays_s: tuple[float, float]) -> list[np.ndarray]:
        """Return every command that acts at some moment between two times, at a delay between the two given [s]."""
        shortest, longest = delays_s
        commands, until = [], math.inf
        for sent_s, command in self._sent:
            if sent_s + shortest < end_s and until + longest > begin_s:
                stale = sent_s + self._dead_man_s
                if stale + longest > begin_s:
                    commands.append(command)
                if min(until, end_s) > stale:
                    commands.append(0 * command)
            until = min(until, sent_s)
        if self._sent and until + longest > begin_s:
            commands.append(0 * self._sent[0][1])
        return commands
