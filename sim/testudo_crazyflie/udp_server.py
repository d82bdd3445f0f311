"""Runs a simulated vehicle in real time behind a UDP socket with radio loss and latency: `udp://127.0.0.1:PORT`."""

import contextlib
import heapq
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from testudo_crazyflie.firmware import crtp_packets
from testudo_crazyflie.firmware.log_and_parameters import TICK_S
from testudo_crazyflie.simulated_crazyflie import SimulatedCrazyflie, SimulatedCrazyflieSettings

UP, DOWN = 0, 1
"""To the vehicle, and from it."""


@dataclass(frozen=True)
class RadioConditions:
    """Quality of the connection."""

    loss: float = 0.0  # share of transmissions that are lost, in each direction
    latency_s: float = 0.0  # one way
    jitter_s: float = 0.0  # uniform, added to the latency
    repeats: bool = False  # lost transmissions are repeated, as by a Crazyradio: loss becomes delay
    attempt_s: float = 0.002  # duration of one attempt
    silent: bool = False  # nothing arrives


class RadioChannel:
    """Both directions between one vehicle and one radio."""

    def __init__(self, seed: int = 0) -> None:
        """Start with a perfect connection."""
        self.air = RadioConditions()
        self.sent, self.lost = [0, 0], [0, 0]
        self._random = np.random.default_rng(seed)
        self._waiting: list[tuple[float, int, int, Any]] = []
        self._last_s = [-np.inf, -np.inf]
        self._count = 0

    def send(self, towards: int, load: Any, now_s: float) -> None:
        """Send a packet with its load."""
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
        """Return when the next packet arrives; infinite if none is in transit."""
        return self._waiting[0][0] if self._waiting else np.inf

    def arrived(self, now_s: float) -> list[tuple[int, Any]]:
        """Return what has arrived by now: direction and load, in the order of arrival."""
        found = []
        while self._waiting and self._waiting[0][0] <= now_s:
            _, _, towards, load = heapq.heappop(self._waiting)
            found.append((towards, load))
        return found


FIRST_PORT = 19850
"""Ports that `cflib` scans."""
PRIORITY = 3
"""Real-time priority, that of the plant."""
_NULL = crtp_packets.encode(crtp_packets.Packet(crtp_packets.LINK, crtp_packets.NULL_CHANNEL))
_Address = tuple[str, int]


class CrazyflieServer:
    """Runs one vehicle in a thread; a context manager.

    Answers go to the sender of a request, other packets to the last client that requested log blocks.
    """

    def __init__(
        self,
        settings: SimulatedCrazyflieSettings,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Bind the socket; port 0 takes a free one.

        Raises:
            OSError: the port is in use.
        """
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((host, port))
        self._socket.setblocking(False)
        self._clock = clock
        self._lock = threading.RLock()
        self._craft = SimulatedCrazyflie(settings, clock())
        self._channel = RadioChannel(seed)
        self._client: _Address | None = None
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="crazyflie", daemon=True)

    @property
    def uri(self) -> str:
        """Return the address as `cflib` writes it."""
        host, port = self._socket.getsockname()
        return f"udp://{host}:{port}"

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the thread and free the socket."""
        self._ends.set()
        self._thread.join(timeout=2.0)
        self._socket.close()

    @contextlib.contextmanager
    def craft(self) -> Iterator[SimulatedCrazyflie]:
        """Yield the vehicle, paused, for inspection or for injected events."""
        with self._lock:
            yield self._craft

    def set_air(self, air: RadioConditions) -> None:
        """Set the quality of the connection."""
        with self._lock:
            self._channel.air = air

    def lost(self) -> tuple[int, int]:
        """Return the numbers of packets lost up and down."""
        with self._lock:
            return self._channel.lost[UP], self._channel.lost[DOWN]

    def _run(self) -> None:
        keep_time(PRIORITY)  # keeps the flight in real time on a busy computer
        next_s = self._clock()
        while not self._ends.is_set():
            wait_s = max(0.0, min(next_s, self._channel.due_s) - self._clock())
            select.select([self._socket], [], [], min(wait_s, TICK_S))
            with self._lock:
                now_s = self._clock()
                for raw, address in self._heard():
                    self._channel.send(UP, (raw, address), now_s)
                for raw in self._craft.advance(now_s):
                    if self._client is not None:
                        self._channel.send(DOWN, (raw, self._client), now_s)
                while arrived := self._channel.arrived(now_s):  # an answer may arrive in the same call
                    for towards, load in arrived:
                        if towards == UP:
                            self._take(load[0], load[1], now_s)
                            continue
                        with contextlib.suppress(OSError):  # the client has disconnected
                            self._socket.sendto(*load)
                if now_s >= next_s:
                    next_s = max(next_s + TICK_S, now_s)

    def _take(self, raw: bytes, address: _Address, now_s: float) -> None:
        packet = crtp_packets.decode(raw)
        if packet is None:
            return
        if packet.port == crtp_packets.LOG or self._client is None:
            self._client = address
        if packet.is_null:
            self._channel.send(DOWN, (_NULL, address), now_s)
        for answer in self._craft.receive(raw, now_s):
            self._channel.send(DOWN, (answer, address), now_s)

    def _heard(self) -> Iterator[tuple[bytes, _Address]]:
        while True:
            try:
                yield self._socket.recvfrom(64)
            except (BlockingIOError, ConnectionError):
                return


def keep_time(priority: int) -> bool:
    """Request real-time scheduling of this thread and those that it starts; return whether it is granted."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(priority))
    except (OSError, AttributeError):  # no right to it, or another system
        return False
    return True
