"""Emulated network that delays and loses peer messages, in place of the relays of the observer."""

import queue
import random
import threading
import time
from dataclasses import dataclass
from typing import Any, Self

from testudo_bench.fault_matrix.harness.relay_observer import Observer
from testudo_hardware.errors import TestudoError

_LONGEST_DELAY_MS = 10_000.0


@dataclass(frozen=True)
class Network:
    """Delay and loss of each message, independent for each ordered pair of robots."""

    delay_ms: float = 0.0
    loss: float = 0.0  # Share of lost messages

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            TestudoError: a delay or share is out of range.
        """
        if not 0 <= self.delay_ms <= _LONGEST_DELAY_MS:
            raise TestudoError(f"--delay-ms: found {self.delay_ms:g}, expected 0 to {_LONGEST_DELAY_MS:g} ms")
        if not 0 <= self.loss <= 1:
            raise TestudoError(f"--loss: found {self.loss:g}, expected a share from 0 to 1")

    def __str__(self) -> str:
        """Return a description."""
        return f"{self.delay_ms:g} ms, {100 * self.loss:g} % lost" if self.delay_ms or self.loss else "perfect"


class EmulatedRadio:
    """Puts a network between the robots of an observer; a context manager."""

    def __init__(self, observer: Observer, network: Network, seed: int) -> None:
        """Prepare; the losses of each ordered pair of robots have their own random generator."""
        self._observer, self._network, self._seed = observer, network, seed
        self._random: dict[tuple[str, str], random.Random] = {}
        self._late: queue.SimpleQueue[tuple[float, tuple[str, str, Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._deliver, daemon=True)
        self.sent = self.lost = 0  # messages from one robot to another, and lost ones
        self.longest_s = 0.0  # longest delay of a message

    def __enter__(self) -> Self:
        self._thread.start()
        self._observer.peers = self._take
        return self

    def __exit__(self, *_: object) -> None:
        self._observer.pass_everything()
        self._late.put(None)
        self._thread.join(5)

    def _take(self, sender: str, receiver: str, message: Any) -> Any:
        if (sender, receiver) not in self._random:
            self._random[sender, receiver] = random.Random(f"{self._seed} {sender} {receiver}")  # noqa: S311
        self.sent += 1
        if self._random[sender, receiver].random() < self._network.loss:
            self.lost += 1
            return None
        if not self._network.delay_ms:
            return message
        self._late.put((time.monotonic(), (sender, receiver, message)))
        return None

    def _deliver(self) -> None:
        delay_s = 1e-3 * self._network.delay_ms
        while (item := self._late.get()) is not None:  # equal delays: the order does not change
            arrival_s, message = item
            time.sleep(max(0.0, arrival_s + delay_s - time.monotonic()))
            self.longest_s = max(self.longest_s, time.monotonic() - arrival_s)
            self._observer.deliver(*message)
