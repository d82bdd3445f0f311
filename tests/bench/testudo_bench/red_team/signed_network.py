"""The topics of one fleet in lock-step: delays, losses, the fleet's authentication codes, and an intruder's access.

Codes are made and checked by the deployed classes, as the nodes do; a control takes one part of that out.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import numpy as np

from testudo_deploy.authentication.fleet_key import FleetKey
from testudo_deploy.authentication.message_codes import AuthenticationError, MessageSigner, MessageVerifier
from testudo_deploy.authentication.process_epochs import EPOCHS_TOPIC, ProcessEpochs

PEER_LOSS = 0.1  # share of announcements that are lost, for each receiver
_PEER_S, _LOCAL_S = 0.01, (0.001, 0.006)  # least transport between robots; inside of one

_EPOCHS_S = 0.01

Take = Callable[[bytes], None]


@dataclass(frozen=True)
class Defences:
    """The parts of the protection that are on."""

    key: bool = True
    challenge: bool = True  # a new process must answer a challenge before its messages count
    takeover: bool = True  # a new process of a peer must answer a message sent after the old one fell silent
    in_space: bool = True  # a robot brakes if another one reserves or requests its space
    told: bool = True  # the fleet file states how fast an untrusted body may be
    growth: bool = True  # rule R5: an untrusted body may have moved at its highest speed since its sighting
    shield: bool = True


class _Unchallenged(ProcessEpochs):
    """Accepts every epoch: the control of the challenge."""

    def is_proven(self, epoch: bytes, now_s: float) -> bool:
        return True


class Network:
    """Topics of one fleet; ``now_s`` is the true time [s]."""

    def __init__(
        self, key: FleetKey | None, random: np.random.Generator, *, message_s: float, challenge: bool = True
    ) -> None:
        self._peer_s = (_PEER_S, message_s)
        self.key, self.challenge, self._random = key, challenge, random
        self.now_s = 0.0
        self._subscribers: dict[str, list[tuple[str, Take]]] = defaultdict(list)
        self._underway: list[tuple[float, int, Take, bytes]] = []
        self._order = count()
        self.taps: list[Callable[[str, bytes], None]] = []
        """An intruder's: receive every message at the moment when it is sent."""

    def subscribe(self, topic: str, reader: str, take: Take) -> None:
        """Subscribe; ``reader`` names the process."""
        self._subscribers[topic].append((reader, take))

    def publish(self, topic: str, data: bytes) -> None:
        """Send a message to every subscriber, later or never."""
        for tap in self.taps:
            tap(topic, data)
        between = topic.endswith("/peer_state")
        for _, take in self._subscribers[topic]:
            if between and self._random.uniform() < PEER_LOSS:
                continue
            # challenges must not change the other delays: what an intruder provokes is compared with its absence
            wait_s = (
                _EPOCHS_S if topic == EPOCHS_TOPIC else self._random.uniform(*(self._peer_s if between else _LOCAL_S))
            )
            heapq.heappush(self._underway, (self.now_s + wait_s, next(self._order), take, data))

    def inject(self, topic: str, data: bytes, readers: tuple[str, ...] = ()) -> None:
        """Hand a message of an intruder to the subscribers at once, or only to some of them."""
        for reader, take in self._subscribers[topic]:
            if not readers or reader in readers:
                take(data)

    def deliver(self, now_s: float) -> None:
        """Advance the time, and deliver what is due."""
        self.now_s = now_s
        while self._underway and self._underway[0][0] <= now_s:
            _, _, take, data = heapq.heappop(self._underway)
            take(data)


class Process:
    """One process of the fleet: its epoch, its signers and its verifiers."""

    def __init__(self, network: Network, name: str) -> None:
        self._network, self.name = network, name
        self.refused = 0
        self._epochs: ProcessEpochs | None = None
        if network.key is not None:
            kind = ProcessEpochs if network.challenge else _Unchallenged
            self._epochs = kind(network.key, lambda data: network.publish(EPOCHS_TOPIC, data))
            network.subscribe(EPOCHS_TOPIC, name, self._epochs.hear)

    def publisher(self, topic: str) -> Take:
        """Return what sends a message of a topic."""
        network = self._network
        if network.key is None or self._epochs is None:
            return lambda data: network.publish(topic, data)
        signer = MessageSigner(network.key, topic, self._epochs)
        return lambda data: network.publish(topic, signer.sign(data))

    def subscribe(self, topic: str, take: Take) -> None:
        """Subscribe to the messages of a topic that the fleet sent."""
        network = self._network
        if network.key is None or self._epochs is None:
            network.subscribe(topic, self.name, take)
            return
        verifier = MessageVerifier(network.key, topic, self._epochs)

        def verified(data: bytes) -> None:
            try:
                message = verifier.verify(data, network.now_s)
            except AuthenticationError:
                self.refused += 1
                return
            take(message)

        network.subscribe(topic, self.name, verified)


def former_signer(key: FleetKey, topic: str, epochs: ProcessEpochs) -> Callable[[bytes], bytes]:
    """Return what signs as a process that has ended: it never answers a challenge."""
    return MessageSigner(key, topic, epochs).sign


def ended_process(key: FleetKey) -> ProcessEpochs:
    """Return the epoch of a process of a former run."""
    return ProcessEpochs(key, lambda _: None)
