"""Which silent peers a robot may proceed without: a majority of the fleet must suspect them (rule R4).

Each robot reports in every message the peers from which it heard nothing for a while, with the newest that it knows of
them. A robot that suspects a peer itself, and has such reports of a majority, no longer waits for that peer's
acknowledgement; it keeps clear of the newest reservations that any of them knows. The reporters' own acknowledgements
stay necessary, and each comes in the same message as the report. Why two robots can never excuse each other into one
place, whatever is delayed or lost, is proven in docs/shield.md; silence decides only when a robot goes on.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from testudo_deploy.contract.messages import PeerMessage, SuspectedPeer


@dataclass(frozen=True)
class NewestMessage:
    """The newest message of a peer, with or without a valid echo."""

    message: PeerMessage
    received_s: float
    acknowledged: int
    """Number of the newest message of this process of the robot that the peer had received; -1 for none."""


class FailureDetector:
    """Suspicions of one robot; the robots that the fleet file trusts vote, the first by name decides between halves."""

    def __init__(self, robot: str, peers: Iterable[str]) -> None:
        self._robot, self._members = robot, sorted((robot, *peers))

    def suspected(
        self, newest: Mapping[str, NewestMessage], now_s: float, silence_s: float
    ) -> dict[str, SuspectedPeer]:
        """Return the peers silent for ``silence_s``, with the newest that this process knows of each.

        A peer that never answered this process is none of them: what an earlier process acknowledged is not known.
        """
        return {
            peer: SuspectedPeer(
                item.message.epoch,
                item.message.sequence,
                item.message.reserved_segment_world,
                item.message.requested_segment_world,
            )
            for peer, item in newest.items()
            if now_s - item.received_s > silence_s and item.acknowledged >= 0 and peer in self._members
        }

    def excused(
        self, suspected: Mapping[str, SuspectedPeer], newest: Mapping[str, NewestMessage]
    ) -> dict[str, SuspectedPeer]:
        """Return the suspected peers without whose answer this robot may proceed, with the newest known of each.

        ``newest`` are messages of trusted peers. Those of suspected peers do not count, since their acknowledgements
        may not be needed; nor does a report of another process of the suspected peer.
        """
        found: dict[str, SuspectedPeer] = {}
        for peer, own in suspected.items():
            reports = {
                member: report
                for member, item in newest.items()
                if member in self._members
                and member not in suspected
                and (report := item.message.suspected.get(peer)) is not None
                and report.epoch == own.epoch
            }
            if self._is_majority({self._robot, *reports}):
                found[peer] = max((own, *reports.values()), key=lambda report: report.sequence)
        return found

    def _is_majority(self, voters: set[str]) -> bool:
        """Return whether robots are more than half of the fleet, or half of it with the first robot."""
        double = 2 * len(voters)
        return double > len(self._members) or (double == len(self._members) and self._members[0] in voters)
