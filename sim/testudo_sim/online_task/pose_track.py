"""Measured poses of one body on the station's clock, and where it was at any moment between two of them."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass

import numpy as np

_KEPT = 400
"""Samples that are kept: some seconds."""
_FUTURE_S = 0.002
"""A stamp so far in the future is rounding."""
_OLDEST_S = 1.0
"""A first stamp that is older than this at arrival is on another clock."""
_FORGET_S = 2.0
"""After so long without a usable sample, the question of the clock is open again."""


@dataclass(frozen=True)
class Pose:
    """Where a body was; in the fleet's world frame."""

    position_world: tuple[float, ...]
    """(D,) [m]."""
    yaw: float
    """[rad]."""
    velocity: tuple[float, ...] = ()
    """(D,): the robot's command channels, see `MotionState.velocity`; empty for a body that is no robot."""


class PoseTrack:
    """The newest poses of one body."""

    def __init__(self, gap_s: float) -> None:
        """Begin with nothing.

        Args:
            gap_s: between two samples that are farther apart [s], nothing is known.
        """
        self._gap_s = gap_s
        self._stamps: deque[float] = deque(maxlen=_KEPT)
        self._poses: deque[Pose] = deque(maxlen=_KEPT)
        self.foreign_clock = False
        """The stamps are on another clock than the station's: the times of arrival stand for them."""

    @property
    def newest_s(self) -> float:
        """Return the stamp of the newest pose; -inf without any."""
        return self._stamps[-1] if self._stamps else -math.inf

    @property
    def newest(self) -> Pose | None:
        """Return the newest pose."""
        return self._poses[-1] if self._poses else None

    def add(self, stamp_s: float, received_s: float, pose: Pose) -> bool:
        """Take a pose; returns False if it is not finite, too late, or not newer than the last one.

        Args:
            stamp_s: when it was measured. If the first one is in the future or very old, the sender is on another
                clock, and times of arrival are taken instead.
            received_s: when it arrived, on the station's clock.
            pose: what was measured.
        """
        numbers = (stamp_s, received_s, pose.yaw, *pose.position_world, *pose.velocity)
        if not all(map(math.isfinite, numbers)):
            return False
        on_time = -_FUTURE_S <= received_s - stamp_s <= _OLDEST_S
        if received_s - self.newest_s > _FORGET_S:
            self.foreign_clock = not on_time
        taken_s = received_s if self.foreign_clock else stamp_s
        if taken_s <= self.newest_s or not (on_time or self.foreign_clock):
            return False
        self._stamps.append(taken_s)
        self._poses.append(pose)
        return True

    def at(self, time_s: float) -> Pose | None:
        """Return the pose at a moment, between its two neighbours; None where they are too far apart or not there."""
        after = bisect_left(self._stamps, time_s)
        if after == len(self._stamps):
            return None
        if self._stamps[after] == time_s:
            return self._poses[after]
        if after == 0 or self._stamps[after] - self._stamps[after - 1] > self._gap_s:
            return None
        first_s, last_s = self._stamps[after - 1], self._stamps[after]
        return between(self._poses[after - 1], self._poses[after], (time_s - first_s) / (last_s - first_s))


def between(first: Pose, last: Pose, share: float) -> Pose:
    """Return the pose at a share of the way from one to another; the body turns the shorter way."""
    turn = math.remainder(last.yaw - first.yaw, math.tau)
    return Pose(
        _mixed(first.position_world, last.position_world, share),
        first.yaw + share * turn,
        _mixed(first.velocity, last.velocity, share),
    )


def _mixed(first: tuple[float, ...], last: tuple[float, ...], share: float) -> tuple[float, ...]:
    start = np.array(first)
    return tuple((start + share * (np.array(last) - start)).tolist())
