"""Delay, loss and partition of every Ethernet frame between computers; pure.

Kernels of virtual machines often lack netem, so a switch in user space (`shaped_switch`) takes its place with the same
meaning: each frame is lost, or arrives after a delay drawn evenly around the mean, so that frames overtake each other.
"""

import heapq
import itertools
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from testudo_hardware.errors import TestudoError

_LONGEST_DELAY_MS = 10_000.0
_GROUP = 0x01  # bit of the first octet of an address: broadcast and multicast
_IP_MULTICAST = bytes((0x01, 0x00, 0x5E))


@dataclass(frozen=True)
class Link:
    """The way from one computer to another, equal for all."""

    delay_ms: float = 0.0
    jitter_ms: float = 0.0  # each delay is drawn evenly from delay - jitter to delay + jitter
    loss: float = 0.0  # share of lost frames
    multicast: bool = True  # whether IP multicast passes, which many access points and routers block

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            TestudoError: one is out of range.
        """
        if not 0 <= self.delay_ms <= _LONGEST_DELAY_MS:
            raise TestudoError(f"--delay-ms: found {self.delay_ms:g}, expected 0 to {_LONGEST_DELAY_MS:g} ms")
        if not 0 <= self.jitter_ms <= self.delay_ms:
            raise TestudoError(f"--jitter-ms: found {self.jitter_ms:g}, expected 0 to the delay, {self.delay_ms:g} ms")
        if not 0 <= self.loss < 1:
            raise TestudoError(f"--loss: found {self.loss:g}, expected a share from 0 to below 1")

    def __str__(self) -> str:
        """Return a description."""
        if not self.delay_ms and not self.loss:
            return "perfect"
        return f"{self.delay_ms:g} ± {self.jitter_ms:g} ms, {100 * self.loss:g} % lost"


class ShapedLinks:
    """Decides for each frame which computers it reaches, and when; times on one steady clock [s]."""

    def __init__(self, computers: Sequence[str], link: Link, seed: int) -> None:
        self.link = link
        self._computers = tuple(computers)
        self._random = random.Random(seed)  # noqa: S311 -- no secret
        self._part = dict.fromkeys(self._computers, 0)
        self._learned: dict[bytes, str] = {}
        self._late: list[tuple[float, int, str, bytes]] = []
        self._count = itertools.count()
        self.frames = self.lost = self.cut = 0
        """Frames from one computer to another; those lost at random; those that a partition stopped."""

    def part(self, groups: Sequence[Collection[str]]) -> None:
        """Cut the network into groups of computers, the rest being one, too; without groups nothing is cut."""
        self._part = dict.fromkeys(self._computers, -1 if groups else 0)
        for number, group in enumerate(groups):
            self._part.update(dict.fromkeys(group, number))

    def accept(self, sender: str, frame: bytes, now_s: float) -> None:
        """Take a frame that a computer sent."""
        target, source = frame[:6], frame[6:12]
        self._learned[source] = sender
        if target.startswith(_IP_MULTICAST) and not self.link.multicast:
            return
        known = None if target[0] & _GROUP else self._learned.get(target)
        for receiver in self._computers if known is None else (known,):
            if receiver != sender:
                self._send(sender, receiver, frame, now_s)

    def due(self, now_s: float) -> list[tuple[str, bytes]]:
        """Return receiver and content of each frame that has arrived by now, the oldest first."""
        found: list[tuple[str, bytes]] = []
        while self._late and self._late[0][0] <= now_s:
            _, _, receiver, frame = heapq.heappop(self._late)
            found.append((receiver, frame))
        return found

    @property
    def next_s(self) -> float | None:
        """Return when the next frame arrives; None if none is on its way."""
        return self._late[0][0] if self._late else None

    def _send(self, sender: str, receiver: str, frame: bytes, now_s: float) -> None:
        self.frames += 1
        if self._part[sender] != self._part[receiver]:
            self.cut += 1
        elif self._random.random() < self.link.loss:
            self.lost += 1
        else:
            spread_ms = self._random.uniform(-self.link.jitter_ms, self.link.jitter_ms)
            arrival_s = now_s + 1e-3 * (self.link.delay_ms + spread_ms)
            heapq.heappush(self._late, (arrival_s, next(self._count), receiver, frame))
