"""The peers of a robot: the newest message of each, an upper bound of its age, and the peers not heard yet.

Age is bounded by echo, without a shared clock: a peer's message names our own last stamp that it had
heard, so that it was sent after that moment (shield.md, "Age").
"""

from dataclasses import dataclass
from itertools import chain

import numpy as np

from testudo_deploy.compiling.compiled_body import packed
from testudo_deploy.contract.messages import Echo, PeerMessage, SuspectedPeer, Vector, is_recent
from testudo_deploy.control.failure_detector import FailureDetector, NewestMessage
from testudo_deploy.shield.geometry import point_distance, z_scaled
from testudo_deploy.shield.reservations import NOTHING_HEARD, PeerReservations, stays_in_reserved_segments
from testudo_deploy.shield.stop_tube import StopTubeParameters
from testudo_deploy.shield.velocity_projection import PeerTable
from testudo_hardware.arrays import Array, array_namespace

_LARGEST = 1e12  # larger numbers are not measurements
_ENDED_S = 0.5
"""A process of a peer has ended if it is silent for this time; only then a new one can take its place [s]."""


@dataclass(frozen=True)
class _Heard:
    message: PeerMessage
    bound_s: float  # own clock at the moment after which the message was sent


@dataclass(frozen=True)
class PeerMeasurement:
    """The centre of a body as a tracking system measured it."""

    stamp_s: float  # own steady clock
    position_world: tuple[float, ...]  # (D,) [m]


class PeerTracker:
    """The neighbour table of one robot, fed by messages."""

    def __init__(
        self,
        robot: str,
        epoch: str,
        peers: tuple[str, ...],
        contract: str,
        dimension: int,
        untrusted: tuple[str, ...] = (),
        message_size: int = 0,
    ) -> None:
        """Start with every peer unheard; learned messages have ``message_size`` numbers, 0 for none."""
        self.message_size = message_size
        self.peers = peers
        self._detector = FailureDetector(robot, (peer for peer in peers if peer not in untrusted))
        self._robot, self._epoch = robot, epoch
        self._contract, self._dimension = contract, dimension
        self._heard: dict[str, _Heard] = {}
        self._last: dict[str, Echo] = {}
        self._newest: dict[str, NewestMessage] = {}
        self._retired: dict[str, set[str]] = {}
        """Former processes of each peer, whose late messages are refused."""
        self._seen: dict[str, PeerMeasurement] = {}
        self.untrusted = set(untrusted)
        """Peers without a safety contract; they must be measured, and their messages are ignored."""
        self.lost: dict[str, Vector | None] = {}
        """Peers that an operator declared lost, with the place (D,) [m] where they rest; None: where last announced."""
        self.refused = 0
        """Number of refused messages."""

    def hear(self, message: PeerMessage, received_s: float) -> bool:
        """Take a message; False if it is foreign, replayed, of another contract, or of an unproven new process."""
        last = self._last.get(message.robot)
        replayed = last is not None and last[0] == message.epoch and message.sequence <= last[2]
        replayed = replayed or message.epoch in self._retired.get(message.robot, ())
        vectors = (
            message.control_point_world,
            message.control_velocity_world,
            message.wanted_world or message.control_velocity_world,  # empty for a robot that does not drive
            *message.reserved_segment_world,
            *message.requested_segment_world,
            *message.relayed_ends(),
        )
        shape = set(map(len, vectors))
        if (
            message.robot not in self.peers
            or replayed
            or message.contract != self._contract
            or shape != {self._dimension}
            or len(message.message) != self.message_size
            or not self._may_begin(message, received_s)
        ):
            self.refused += 1
            return False
        self.lost.pop(message.robot, None)  # it speaks again
        if last is not None and last[0] != message.epoch and message.robot in self._heard:
            self._retired.setdefault(message.robot, set()).add(last[0])
        self._last[message.robot] = (message.epoch, message.stamp_s, message.sequence)
        echo = message.echoes.get(self._robot)
        if echo is not None and echo[0] != self._epoch:  # of an earlier process of this robot
            echo = None
        self._newest[message.robot] = NewestMessage(message, received_s, NOTHING_HEARD if echo is None else echo[2])
        if echo is not None and is_recent(echo, received_s):  # else the peer stays unheard
            self._heard[message.robot] = _Heard(message, echo[1])
        return True

    def _may_begin(self, message: PeerMessage, received_s: float) -> bool:
        """Return whether a message may begin a new process of its sender, if it is not of the present one.

        It must answer a message that this robot sent after the present process had fallen silent. One that never
        answered this robot has no such right. So neither a forged nor a recorded message displaces a live peer.
        """
        last, newest = self._last.get(message.robot), self._newest.get(message.robot)
        if last is None or last[0] == message.epoch or newest is None or message.robot not in self._heard:
            return True
        echo = message.echoes.get(self._robot)
        return echo is not None and echo[0] == self._epoch and newest.received_s + _ENDED_S <= echo[1] <= received_s

    def declare_lost(self, peer: str, place_world: Vector | None) -> bool:
        """Take an operator's word that a peer rests at a place (D,) [m], or where it was last announced.

        It stays an obstacle, but need not answer any more, until its next message. Returns False if the peer or the
        place is unknown or not finite.
        """
        if peer not in self.peers or (place_world is None and peer not in self._heard):
            return False
        if place_world is not None:
            if len(place_world) != self._dimension or not all(abs(value) < _LARGEST for value in place_world):
                return False
            place_world = tuple(place_world)
        self.lost[peer] = place_world
        return True

    def see(self, peer: str, sighting: PeerMeasurement) -> bool:
        """Take the measured place of a peer; False if it is foreign, older than the last or not finite."""
        last = self._seen.get(peer)
        sound = len(sighting.position_world) == self._dimension and all(
            abs(x) < 1e12 for x in (sighting.stamp_s, *sighting.position_world)
        )
        if peer not in self.peers or not sound or (last is not None and sighting.stamp_s <= last.stamp_s):
            self.refused += 1
            return False
        self._seen[peer] = sighting
        return True

    def forget(self) -> None:
        """Forget all messages and measurements, whose times are of another clock; every peer must be heard again."""
        self._heard.clear()
        self._newest.clear()
        self._seen.clear()

    def echoes(self) -> dict[str, Echo]:
        """Return by peer the epoch, stamp and sequence of its last message, to be sent back to it."""
        return dict(self._last)

    def suspected(self, now_s: float, silence_s: float) -> dict[str, SuspectedPeer]:
        """Return the trusted peers that have been silent for ``silence_s``, to be told to all (rule R4)."""
        return self._detector.suspected(self._trusted(), now_s, silence_s)

    def _trusted(self) -> dict[str, NewestMessage]:
        return {peer: item for peer, item in self._newest.items() if peer not in self.untrusted}

    def unheard(self) -> tuple[str, ...]:
        """Return the trusted peers whose position has never been known with a bounded age."""
        known = (*self._heard, *self.untrusted, *self.lost)
        return tuple(peer for peer in self.peers if peer not in known)

    def unseen(self) -> tuple[str, ...]:
        """Return the untrusted peers that tracking has never measured."""
        return tuple(peer for peer in self.peers if peer in self.untrusted and peer not in self._seen)

    def table(self, now_s: float) -> PeerTable:
        """Return the table (D, K) of all peers, in the order of `peers`; each must have been heard or measured."""
        still, flagged = (0.0,) * self._dimension, bool(self.untrusted)

        def row(peer: str) -> tuple[float, ...]:
            place, known = self.lost.get(peer), (1.0, peer in self.untrusted) if flagged else (1.0,)
            if place is not None:
                return (*place, *still, 0.0, *known, *still)
            if peer in self.untrusted:
                seen = self._seen[peer]
                return (*seen.position_world, *still, now_s - seen.stamp_s, *known, *still)
            message, bound_s = self._heard[peer].message, self._heard[peer].bound_s
            wanted = (peer not in self.lost and message.wanted_world) or still
            moves = (*message.control_point_world, *message.control_velocity_world)
            return (*moves, now_s - bound_s, *known, *wanted)

        size = self._dimension
        numbers = _columns([row(peer) for peer in self.peers], 3 * size + 2 + flagged)
        if self.message_size:
            numbers = np.concatenate([numbers, self._said()])
        age, wanted = 2 * size, 2 * size + 2 + flagged
        return packed(
            PeerTable,
            numbers,
            numbers[:size],
            numbers[size:age],
            numbers[age],
            numbers[age + 1] > 0,
            numbers[age + 2] > 0 if flagged else None,
            None,
            numbers[wanted : wanted + size],
            numbers[wanted + size :] if self.message_size else None,
        )

    def _said(self) -> np.ndarray:
        """Return the learned messages (M, K) of the peers, as old as the rest of the table.

        Zeros for one that was not heard, that is untrusted, or of which an operator said where it rests.
        """
        silent, mute = (0.0,) * self.message_size, {*self.untrusted, *(p for p, at in self.lost.items() if at)}
        heard = {peer: item.message.message for peer, item in self._heard.items() if peer not in mute}
        said = [heard.get(peer, silent) for peer in self.peers]
        return np.array(said, float).reshape(len(self.peers), self.message_size).T

    def spaces(self, now_s: float, silence_s: float) -> PeerReservations:
        """Return the reservations of the newest messages (2, D, K); a peer without a message has NaN.

        An untrusted peer counts as reserving the place where it was measured. A lost one need not answer, as one that
        a majority suspects: its segments, or the newest that the majority knows, stay obstacles (rule R4).
        """
        trusted = self._trusted()
        excused = self._detector.excused(self._detector.suspected(trusted, now_s, silence_s), trusted)

        def row(peer: str) -> tuple[float, ...]:
            item, lost = self._newest.get(peer), peer in self.lost
            if item is None or peer in self.untrusted or self.lost.get(peer) is not None:
                ends = self._without_message(peer) * 2
            else:
                known = excused.get(peer, item.message)
                ends = (*known.reserved_segment_world, *known.requested_segment_world)
            acknowledged = item.acknowledged if item else NOTHING_HEARD
            flags = (peer in excused or lost, self._robot < peer or lost, peer not in self.untrusted)
            return (*chain.from_iterable(ends), acknowledged, *flags)

        size, count = self._dimension, len(self.peers)
        numbers = _columns([row(peer) for peer in self.peers], 4 * size + 4)
        owned, announced = (
            part.reshape(2, size, count) for part in (numbers[: 2 * size], numbers[2 * size : 4 * size])
        )
        return packed(PeerReservations, numbers, owned, announced, numbers[4 * size], *(numbers[4 * size + 1 :] > 0))

    def _without_message(self, peer: str) -> tuple[tuple[float, ...], ...]:
        place = self.lost.get(peer)
        if place is not None:
            return (place, place)
        seen = self._seen.get(peer)
        return (seen.position_world if peer in self.untrusted and seen else (np.nan,) * self._dimension,) * 2

    def outside_reservations(self, space: StopTubeParameters, now_s: float, speed_m_s: float) -> tuple[str, ...]:
        """Return the trusted peers of at most this speed that tracking measures outside of their announced segments."""
        watched = [
            peer for peer in self.peers if peer in self._seen and peer in self._heard and peer not in self.untrusted
        ]
        if not watched:
            return ()
        index = [self.peers.index(peer) for peer in watched]
        spaces = self.spaces(now_s, space.silence_s)
        seen = np.array([self._seen[peer].position_world for peer in watched], float).T
        seen_age = now_s - np.array([self._seen[peer].stamp_s for peer in watched])
        age = now_s - np.array([self._heard[peer].bound_s for peer in watched])
        part = PeerReservations(*(values[..., index] for values in vars(spaces).values()))
        left = left_reserved_segments(space, part, seen, seen_age, age, speed_m_s)
        return tuple(peer for peer, is_left in zip(watched, left, strict=True) if is_left)


def _columns(rows: list[tuple[float, ...]], width: int) -> np.ndarray:
    """Return numbers by peer as columns (width, K), row by row in memory."""
    return np.array(rows, float).reshape(len(rows), width).T.copy()


def left_reserved_segments(
    space: StopTubeParameters,
    peers: PeerReservations,
    seen_world: Array,
    seen_age_s: Array,
    age_s: Array,
    speed_m_s: float,
) -> Array:
    """Return which peers (K, ...) were measured (D, K, ...) outside of their announced segments.

    ``seen_age_s`` (K, ...) is the age of the measurement, ``age_s`` (K, ...) that of the newest message, by echo.
    """
    xp = array_namespace(seen_world)
    seen = z_scaled(seen_world, space.height_ratio)
    segments = (z_scaled(ends, space.height_ratio, 1) for ends in (peers.owned_world, peers.announced_world))
    distance = xp.minimum(*(point_distance(seen, ends[0, ...], ends[1, ...]) for ends in segments))
    moving_s = xp.where(
        stays_in_reserved_segments(peers, age_s, space.silence_s), seen_age_s, xp.maximum(seen_age_s, age_s)
    )
    return ~(distance <= space.segment_reach_m + space.noise_m + speed_m_s * moving_s)
