"""Sources of a tick's inputs: fleet file, odometry topic, announcements of the peers.

A changed input need not change the command (a far neighbour, a held decision); the comparison with its source shows it.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from testudo_analysis.replay.reinference_checks import FieldErrors
from testudo_deploy.contract.contract import Signal
from testudo_deploy.contract.messages import EnvelopeError, PeerMessage, TaskMessage, TickRecord, Vector
from testudo_deploy.contract.task_values import numbers_for
from testudo_deploy.fleet.policy_groups import Follow
from testudo_hardware.frames import wrap_angle
from testudo_runs.tracks import SensedSample, Track

_SAME_GOAL_M = 1e-9
_SAME_STAMP_S = 2e-9  # ROS stamps are whole nanoseconds
_SAME_AGE_S = 1e-6
_SAME_SENSOR_S = 0.05  # a message without a stamp arrives at the recorder this much earlier or later


@dataclass(frozen=True)
class Announcements:
    """Messages of one robot to its peers."""

    values: np.ndarray  # (M, 2D + S): control point [m] and its velocity [m/s], world; numbers of a learned message
    sequence: np.ndarray  # (M,) int: number of each message
    by_value: Mapping[tuple[float, ...], tuple[PeerMessage, ...]]
    """Messages by their values; a robot that stands repeats them."""

    @classmethod
    def of(cls, messages: Sequence[PeerMessage]) -> "Announcements":
        """Return the announcements of a robot's recorded messages."""
        by_value: dict[tuple[float, ...], tuple[PeerMessage, ...]] = {}
        rows = [(*m.control_point_world, *m.control_velocity_world, *m.message) for m in messages]
        for row, message in zip(rows, messages, strict=True):
            by_value[row] = (*by_value.get(row, ()), message)
        return cls(np.array(rows), np.array([m.sequence for m in messages], int), by_value)

    def nearest(self, row: tuple[float, ...]) -> np.ndarray:
        """Return the announcement (2D + S,) whose largest deviation from ``row`` is least."""
        return self.values[np.argmin(np.max(np.abs(self.values - np.array(row)), axis=1))]


def check_goals(
    errors: FieldErrors,
    records: Sequence[TickRecord],
    goal_world: tuple[float, ...],
    leader: Sequence[PeerMessage] = (),
    follows: Follow | None = None,
) -> int:
    """Compare the goals (D,) [m] with that of the fleet file, or with the places that a leader announced.

    ``errors`` takes the deviations in the ticks ``records``; ``goal_world`` is that of the fleet file, and of a robot
    that follows, its goal until the first message of its ``leader``; ``follows`` None keeps the goal.

    Returns:
        Number of ticks with the goal of an announcement that the recorder lost: as near to a recorded one as the
        distance that the leader travelled while messages were lost.
    """
    told = () if follows is None else tuple(follows.goal_world(said.position_world, len(goal_world)) for said in leader)
    goals, lost_m, unverified = np.array([goal_world, *told]), 0.0, 0
    for before, after in pairwise(range(len(told))):
        if leader[after].sequence != leader[before].sequence + 1:
            lost_m = max(lost_m, float(np.max(np.abs(goals[1 + after] - goals[1 + before]))))
    known: dict[tuple[float, ...], tuple[float, tuple[float, ...]]] = {}
    for record in records:
        if record.goal_world not in known:  # a goal stays for many ticks
            away = np.max(np.abs(goals - np.array(record.goal_world)), axis=1)
            known[record.goal_world] = float(away.min()), tuple(goals[np.argmin(away)].tolist())
        away_m, nearest = known[record.goal_world]
        if _SAME_GOAL_M < away_m <= lost_m:
            unverified += 1
            continue
        errors.add("goal", record.sequence, nearest, record.goal_world)
    return unverified


def check_task(
    errors: FieldErrors, records: Sequence[TickRecord], messages: Sequence[TaskMessage], signals: Sequence[Signal]
) -> int:
    """Compare the values of the task, and their ages, with the recorded messages of the task node.

    Returns:
        Number of ticks with a message that the recorder lost.
    """
    sent = {(message.epoch, message.sequence): message for message in messages}
    unverified = 0
    known: dict[tuple[str, int, tuple[str, ...]], dict[str, Vector]] = {}
    for record in records:
        if not record.task_epoch:
            continue
        message = sent.get((record.task_epoch, record.task_sequence))
        if message is None:
            unverified += 1
            continue
        try:
            key = (record.task_epoch, record.task_sequence, record.neighbour_names)
            if key not in known:  # several ticks use one message
                known[key] = numbers_for(signals, message, record.neighbour_names)
        except EnvelopeError:
            errors.add("task", record.sequence, None, record.task_age_s)
            continue
        expected, found = [record.stamp_s - (message.echo[1] - message.sample_age_s)], [record.task_age_s]
        if record.decided:
            for name, numbers in known[key].items():
                if name not in record.sensed_age_s:
                    expected += numbers
                    found += record.task_values.get(name, ())
        errors.add("task", record.sequence, expected, found)
        errors.add("task", record.sequence, 0.0, float(message.contract != record.task_contract))
    return unverified


def check_sensors(
    errors: FieldErrors, records: Sequence[TickRecord], sensed: Mapping[str, Sequence[SensedSample]]
) -> int:
    """Compare the values of a robot's sensors with the recorded messages of the same stamps.

    Returns:
        Number of values without such a message in the recording.
    """
    unverified = 0
    stamps = {name: np.array([sample.stamp_s for sample in samples]) for name, samples in sensed.items()}
    for record in records:
        for name, age_s in record.sensed_age_s.items() if record.decided else ():
            found, used = stamps.get(name, np.zeros(0)), record.task_values.get(name)
            away_s = np.abs(found - (record.stamp_s - age_s))
            if not len(found) or away_s.min() > _SAME_SENSOR_S:
                unverified += 1
                continue
            # stamps of arrival differ between robot and recorder: of the near ones the most similar counts
            near = [np.array(sensed[name][row].values) for row in np.flatnonzero(away_s <= _SAME_SENSOR_S).tolist()]
            same = [values for values in near if used is not None and len(values) == len(used)]
            best = min(same, key=lambda values: float(np.abs(values - np.array(used)).max()), default=None)
            errors.add("sensor", record.sequence, best, used)
    return unverified


def check_poses(errors: FieldErrors, records: Sequence[TickRecord], odometry: Track) -> int:
    """Compare the measured poses with the odometry samples of the same stamps.

    Returns:
        Number of ticks without such a sample in the record.
    """
    unverified = 0
    order = np.argsort(odometry.stamp_s, kind="stable")
    stamps = odometry.stamp_s[order].tolist()
    places, yaws, velocities = (column[order].tolist() for column in _measured(odometry))
    for record in records:
        if record.pose_stamp_s is None:
            continue
        after = bisect_left(stamps, record.pose_stamp_s - _SAME_STAMP_S)
        if after == len(stamps) or stamps[after] > record.pose_stamp_s + _SAME_STAMP_S:
            unverified += 1
            continue
        sample, used = [*places[after], 0.0, *velocities[after]], None
        position, yaw, velocity = record.measured_position_world, record.measured_yaw, record.measured_velocity
        if position is not None and yaw is not None and velocity is not None:
            turned = yaws[after] - yaw
            used = [*position, float(wrap_angle(np.array(turned))) if turned else 0.0, *velocity]
        errors.add("pose", record.sequence, sample, used)
    return unverified


def _measured(track: Track) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return track.position_world, track.yaw, track.velocity


def check_neighbours(
    errors: FieldErrors,
    robot: str,
    records: Sequence[TickRecord],
    announced: Mapping[str, Announcements],
) -> int:
    """Compare the neighbour entries of a robot, with their ages, with the announcements of the peers.

    An entry without a match counts as an error only if no announcement is missing between the matches before and after
    it; otherwise the recorder may have lost the message.

    Returns:
        Number of entries that could not be verified.
    """
    peers = sorted(set().union(*{record.neighbour_names for record in records}))
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
        if len(match) == 1 and (echo := match[0].echoes.get(robot)) and entry.stamp_s - echo[1] == entry.age_s:
            errors.add("neighbours", entry.sequence, entry.age_s, entry.age_s)  # the usual case
            continue
        if match:
            # age [s] bounded by the echo of the robot's own stamp, the nearest to the recorded age
            ages = [entry.stamp_s - m.echoes[robot][1] for m in match if robot in m.echoes]
            age_s = min(ages, key=lambda age: abs(age - entry.age_s), default=None)
            # a robot that stands repeats its values, and the received message may be a lost one
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
    """Return whether the recorder lost an announcement between the first and last of these, or next to them."""
    first, last = min(m.sequence for m in same) - 1, max(m.sequence for m in same) + 1
    return not _has_all(announced, max(first, int(announced.sequence.min())), min(last, int(announced.sequence.max())))


def _has_all(announced: Announcements, first: int, last: int) -> bool:
    inside = (announced.sequence >= first) & (announced.sequence <= last)
    return int(np.sum(inside)) == last - first + 1


class _Entry(NamedTuple):
    """Entry of one peer in a tick."""

    sequence: int
    stamp_s: float
    row: tuple[float, ...]  # (2D + S,): control point [m], its velocity [m/s], and the numbers of a learned message
    age_s: float


def _entry(record: TickRecord, peer: str) -> _Entry | None:
    if peer not in record.neighbour_names:
        return None
    slot = record.neighbour_names.index(peer)
    points, velocities = record.neighbour_control_point_world, record.neighbour_control_velocity_world
    if slot >= min(len(points), len(velocities), len(record.neighbour_age_s)):
        return None
    said = record.neighbour_message[slot : slot + 1]
    row = (*points[slot], *velocities[slot], *(said[0] if said else ()))
    return _Entry(record.sequence, record.stamp_s, row, record.neighbour_age_s[slot])
