"""Where a tick's inputs came from: fleet file, odometry topic, announcements of the peers.

A changed input need not change the command (a far neighbour, a held decision). These look-ups find
it all the same, since what a robot was told is in the run too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from testudo_analysis.replay.reinference_checks import FieldErrors
from testudo_deploy.contract.messages import PeerMessage, TickRecord
from testudo_deploy.fleet.policy_groups import Follow
from testudo_hardware.frames import wrap_angle
from testudo_runs.run_reader import Track

_SAME_GOAL_M = 1e-9
_SAME_STAMP_S = 2e-9
"""ROS stamps are whole nanoseconds."""
_SAME_AGE_S = 1e-6


@dataclass(frozen=True)
class Announcements:
    """What one robot told its peers."""

    values: np.ndarray
    """(M, 2D): control point [m] and its velocity [m/s], world."""
    sequence: np.ndarray
    """(M,) int, number of each."""
    by_value: Mapping[tuple[float, ...], tuple[PeerMessage, ...]]
    """The messages that announce the same, by what they announce."""

    @classmethod
    def of(cls, messages: Sequence[PeerMessage]) -> Announcements:
        """Read them from a robot's recorded messages."""
        by_value: dict[tuple[float, ...], tuple[PeerMessage, ...]] = {}
        rows = [(*m.control_point_world, *m.control_velocity_world) for m in messages]
        for row, message in zip(rows, messages, strict=True):
            by_value[row] = (*by_value.get(row, ()), message)
        return cls(np.array(rows), np.array([m.sequence for m in messages], int), by_value)

    def nearest(self, row: tuple[float, ...]) -> np.ndarray:
        """Return the announcement (2D,) whose largest deviation from ``row`` is least."""
        return self.values[np.argmin(np.max(np.abs(self.values - np.array(row)), axis=1))]


def check_goals(
    errors: FieldErrors,
    records: Sequence[TickRecord],
    goal_world: tuple[float, ...],
    leader: Sequence[PeerMessage] = (),
    follows: Follow | None = None,
) -> int:
    """Compare the goals (D,) [m] with that of the fleet file, or with the places that a leader announced.

    Args:
        errors: takes the deviations.
        records: ticks of the robot.
        goal_world: of the fleet file; of a robot that follows, what it has until it hears its leader.
        leader: what that announced.
        follows: how the robot goes with it; None keeps its goal.

    Returns:
        In how many ticks the goal is that of an announcement which the recorder lost: as near to one that it has as
        the way that the leader went while some were lost.
    """
    told = () if follows is None else tuple(follows.goal_world(said.position_world, len(goal_world)) for said in leader)
    goals, lost_m, unverified = np.array([goal_world, *told]), 0.0, 0
    for before, after in pairwise(range(len(told))):
        if leader[after].sequence != leader[before].sequence + 1:
            lost_m = max(lost_m, float(np.max(np.abs(goals[1 + after] - goals[1 + before]))))
    for record in records:
        away = np.max(np.abs(goals - np.array(record.goal_world)), axis=1)
        if _SAME_GOAL_M < away.min() <= lost_m:
            unverified += 1
            continue
        errors.add("goal", record.sequence, tuple(goals[np.argmin(away)].tolist()), record.goal_world)
    return unverified


def check_poses(errors: FieldErrors, records: Sequence[TickRecord], odometry: Track) -> int:
    """Compare the measured poses with the odometry samples of the same stamps.

    Returns:
        In how many ticks the record holds no such sample.
    """
    unverified = 0
    order = np.argsort(odometry.stamp_s, kind="stable")
    stamps = odometry.stamp_s[order]
    for record in records:
        if record.pose_stamp_s is None:
            continue
        after = int(np.searchsorted(stamps, record.pose_stamp_s - _SAME_STAMP_S))
        if after == len(stamps) or stamps[after] > record.pose_stamp_s + _SAME_STAMP_S:
            unverified += 1
            continue
        row = order[after]
        turn = wrap_angle(np.array(odometry.yaw[row] - record.measured_yaw))
        sample = np.array([*odometry.position_world[row], 0.0, *odometry.velocity[row]])
        used = np.array([*record.measured_position_world, turn, *record.measured_velocity])
        errors.add("pose", record.sequence, sample, used)
    return unverified


def check_neighbours(
    errors: FieldErrors,
    robot: str,
    records: Sequence[TickRecord],
    announced: Mapping[str, Announcements],
) -> int:
    """Compare the neighbour entries of a robot, ages included, with what the peers announced.

    An entry without a match counts as an error only where no announcement is missing between the
    matches before and after it; else the recorder may have lost what the robot heard.

    Returns:
        How many entries could not be verified.
    """
    peers = sorted({name for record in records for name in record.neighbour_names})
    return sum(
        _check_peer(errors, robot, records, peer, announced[peer])
        for peer in peers
        if peer in announced and len(announced[peer].values)
    )


def _check_peer(
    errors: FieldErrors,
    robot: str,
    records: Sequence[TickRecord],
    peer: str,
    announced: Announcements,
) -> int:
    entries = [entry for entry in (_entry(record, peer) for record in records) if entry is not None]
    matches = [announced.by_value.get(entry.row, ()) for entry in entries]
    found = np.array([k for k, match in enumerate(matches) if match], int)
    unverified = 0
    for k, (entry, match) in enumerate(zip(entries, matches, strict=True)):
        if match:
            age_s = _nearest_age(match, robot, entry)
            # a robot that stands announces the same again and again, and the one that was heard may be lost
            if abs((math.inf if age_s is None else age_s) - entry.age_s) > _SAME_AGE_S and _is_lossy(announced, match):
                unverified += 1
            else:
                errors.add("neighbours", entry.sequence, age_s, entry.age_s)
            continue
        before, after = found[found < k], found[found > k]
        bracketed = len(before) > 0 and len(after) > 0
        if bracketed and _complete(announced, matches[before[-1]], matches[after[0]]):
            errors.add("neighbours", entry.sequence, announced.nearest(entry.row), entry.row)
        else:
            unverified += 1
    return unverified


def _complete(announced: Announcements, before: Sequence[PeerMessage], after: Sequence[PeerMessage]) -> bool:
    return _has_all(announced, min(m.sequence for m in before), max(m.sequence for m in after))


def _is_lossy(announced: Announcements, same: Sequence[PeerMessage]) -> bool:
    """Return whether the recorder lost an announcement between the first and last of those, or next to them."""
    first, last = min(m.sequence for m in same) - 1, max(m.sequence for m in same) + 1
    return not _has_all(announced, max(first, int(announced.sequence.min())), min(last, int(announced.sequence.max())))


def _has_all(announced: Announcements, first: int, last: int) -> bool:
    inside = (announced.sequence >= first) & (announced.sequence <= last)
    return int(np.sum(inside)) == last - first + 1


def _nearest_age(messages: Sequence[PeerMessage], robot: str, entry: _Entry) -> float | None:
    """Return the age [s] that an announcement bounds by its echo of the robot's own stamp."""
    ages = [entry.stamp_s - m.echoes[robot][1] for m in messages if robot in m.echoes]
    return min(ages, key=lambda age: abs(age - entry.age_s), default=None)


@dataclass(frozen=True)
class _Entry:
    """What a tick used for one peer."""

    sequence: int
    stamp_s: float
    row: tuple[float, ...]
    """(2D,): control point [m] and its velocity [m/s]."""
    age_s: float


def _entry(record: TickRecord, peer: str) -> _Entry | None:
    if peer not in record.neighbour_names:
        return None
    slot = record.neighbour_names.index(peer)
    columns = (
        record.neighbour_control_point_world,
        record.neighbour_control_velocity_world,
        record.neighbour_age_s,
    )
    if any(slot >= len(column) for column in columns):
        return None
    row = (
        *record.neighbour_control_point_world[slot],
        *record.neighbour_control_velocity_world[slot],
    )
    return _Entry(record.sequence, record.stamp_s, row, record.neighbour_age_s[slot])
