"""The guard's view of its robot's reservation: a command must stay inside what the peers were told.

The policy's process announces at every tick the reserved and the requested segment; peers keep clear of both. A command
must keep the robot, as the guard predicts it from its own pose, in the reserved one. A granted request is announced
as reserved in the same tick as the first command that uses it, and the command may arrive first: so one announcement's
requested segment may be used, but not those of two different announcements without a reserved one between them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from testudo_deploy.contract.messages import PeerMessage, SegmentEnds
from testudo_deploy.guard.segment_distance import Point, segment_distance_m

SILENT_S = 1.0  # without an announcement for this time the robot may not move


@dataclass(frozen=True)
class SegmentLimits:
    """How far from its segment the centre of a robot may be."""

    radius_m: float  # from the middle line, for places of the robot itself
    height_ratio: float = 1.0  # heights count 1/this


class OwnSegment:
    """The newest announcement of one robot; times are seconds on the guard's clock."""

    def __init__(self, limits: SegmentLimits) -> None:
        self._limits = limits
        self._newest: tuple[PeerMessage, float] | None = None
        self._relied_on: tuple[str, int] | None = None
        """Epoch and number of the announcement whose requested segment was used last; None since a reserved one was."""

    def hear(self, message: PeerMessage, now_s: float) -> None:
        """Take an announcement of the robot's own policy; an older one is ignored."""
        if self._newest is not None:
            last = self._newest[0]
            if message.epoch == last.epoch and message.sequence <= last.sequence:
                return
        self._newest = (message, now_s)

    def is_silent(self, now_s: float) -> bool:
        """Return whether no announcement is young enough."""
        return self._newest is None or now_s - self._newest[1] > SILENT_S

    def permits(self, path: Sequence[Point], decided: Sequence[Point], slack_m: float) -> bool:
        """Return whether a motion through places (D,) [m] stays in the announced space.

        Where the places that are ``decided`` already, whatever is commanded, are farther off, the motion may not be
        farther off than those, and ``slack_m``. What is not a number is outside.
        """
        if self._newest is None:
            return False
        message = self._newest[0]
        if self._stays(message.reserved_segment_world, path, decided, slack_m):
            self._relied_on = None
            return True
        number = (message.epoch, message.sequence)
        if self._relied_on not in (None, number):
            return False
        if self._stays(message.requested_segment_world, path, decided, slack_m):
            self._relied_on = number
            return True
        return False

    def _stays(self, segment: SegmentEnds, path: Sequence[Point], decided: Sequence[Point], slack_m: float) -> bool:
        first, last = map(self._scaled, segment)

        def off_m(place: Point) -> float:
            return segment_distance_m(first, last, self._scaled(place))

        path_m = [off_m(place) for place in path]
        if all(way_m <= self._limits.radius_m for way_m in path_m):
            return True
        allowed_m = max(map(off_m, decided)) + slack_m
        return all(way_m <= allowed_m for way_m in path_m)

    def _scaled(self, place: Point) -> Point:
        return (*place[:2], *(height / self._limits.height_ratio for height in place[2:]))
