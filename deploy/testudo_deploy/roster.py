"""The peers of a robot: what each said last, how old that can be, and who has not been heard.

Age is bounded by echo, without a shared clock: a peer's message names our own last stamp that it had
heard, so that it was sent after that moment (shield.md, "Age").
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from testudo_deploy.messages import PeerMessage
from testudo_deploy.neighbours import NeighbourTable

_STALE_ECHO_S = 5.0
"""An echo of a stamp older than this says nothing: the slot stays unheard."""


@dataclass
class _Heard:
    message: PeerMessage
    bound_s: float
    """Own clock at the moment after which the message was sent; -inf without an echo of ours."""


class Roster:
    """The neighbour table of one robot, fed by messages."""

    def __init__(self, robot: str, epoch: str, peers: tuple[str, ...], contract: str,
                 dimension: int) -> None:
        self.peers = peers
        self._robot, self._epoch = robot, epoch
        self._contract, self._dimension = contract, dimension
        self._heard: dict[str, _Heard] = {}
        self._last: dict[str, tuple[str, float, int]] = {}
        self.refused = 0
        """Messages that were not taken."""

    def hear(self, message: PeerMessage, received_s: float) -> bool:
        """Take a message; False if it is foreign, replayed, of another contract or of another shape."""
        last = self._last.get(message.robot)
        replayed = last is not None and last[0] == message.epoch and message.sequence <= last[2]
        shape = {len(message.control_point_world), len(message.control_velocity_world)}
        if (message.robot not in self.peers or replayed or message.contract != self._contract
                or shape != {self._dimension}):
            self.refused += 1
            return False
        self._last[message.robot] = (message.epoch, message.stamp_s, message.sequence)
        echo = message.echoes.get(self._robot)
        if echo is not None and echo[0] == self._epoch and received_s - _STALE_ECHO_S < echo[1] <= received_s:
            self._heard[message.robot] = _Heard(message, echo[1])
        return True

    def echoes(self) -> dict[str, tuple[str, float]]:
        """Return by peer the epoch and stamp of its last message, to be sent back to it."""
        return {peer: (epoch, stamp_s) for peer, (epoch, stamp_s, _) in self._last.items()}

    def unheard(self) -> tuple[str, ...]:
        """Return the peers whose position has never been known with a bounded age."""
        return tuple(peer for peer in self.peers if peer not in self._heard)

    def table(self, now_s: float) -> NeighbourTable:
        """Return the table (D, K) of all peers, in roster order; every peer must have been heard."""
        heard = [self._heard[peer] for peer in self.peers]
        points = [item.message.control_point_world for item in heard]
        velocities = [item.message.control_velocity_world for item in heard]
        shape = (len(heard), self._dimension)
        return NeighbourTable(
            np.array(points, float).reshape(shape).T, np.array(velocities, float).reshape(shape).T,
            np.array([now_s - item.bound_s for item in heard]), np.ones(len(heard), bool))
