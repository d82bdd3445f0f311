"""What becomes of packets in the air: latency, loss, repetition, silence; pure, with a seed."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np

UP, DOWN = 0, 1
"""To the vehicle, and from it."""


@dataclass(frozen=True)
class RadioConditions:
    """How good the connection is."""

    loss: float = 0.0
    """Share of transmissions that are lost, in each direction."""
    latency_s: float = 0.0
    """One way."""
    jitter_s: float = 0.0
    """Uniform, added to the latency."""
    repeats: bool = False
    """A lost transmission is sent again until it arrives, as a Crazyradio does: loss becomes delay, order is kept."""
    attempt_s: float = 0.002
    """How long one attempt takes."""
    silent: bool = False
    """Nothing arrives."""


class RadioChannel:
    """Both directions between one vehicle and one radio."""

    def __init__(self, seed: int = 0) -> None:
        """Begin with a perfect connection."""
        self.air = RadioConditions()
        self.sent, self.lost = [0, 0], [0, 0]
        self._random = np.random.default_rng(seed)
        self._waiting: list[tuple[float, int, int, Any]] = []
        self._last_s = [-np.inf, -np.inf]
        self._count = 0

    def send(self, towards: int, load: Any, now_s: float) -> None:
        """Take a packet, and whatever belongs to it."""
        air = self.air
        self.sent[towards] += 1
        if air.silent or (not air.repeats and self._random.random() < air.loss):
            self.lost[towards] += 1
            return
        attempts = self._random.geometric(1 - air.loss) - 1 if air.repeats and air.loss else 0
        due_s = now_s + air.latency_s + air.jitter_s * self._random.random() + attempts * air.attempt_s
        due_s = max(due_s, self._last_s[towards]) if air.repeats else due_s
        self._last_s[towards] = due_s
        self._count += 1
        heapq.heappush(self._waiting, (due_s, self._count, towards, load))

    @property
    def due_s(self) -> float:
        """Return when the next packet arrives; infinite if none is on its way."""
        return self._waiting[0][0] if self._waiting else np.inf

    def arrived(self, now_s: float) -> list[tuple[int, Any]]:
        """Return what has arrived by now: direction and load, in the order of arrival."""
        found = []
        while self._waiting and self._waiting[0][0] <= now_s:
            _, _, towards, load = heapq.heappop(self._waiting)
            found.append((towards, load))
        return found
