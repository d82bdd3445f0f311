"""Third link of a command's way: what the driver applied is a command that it received, within the robot's limits."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from testudo_analysis.replay.link_findings import SAME_COMMAND, SAME_STAMP_S, LinkFindings
from testudo_hardware.motion import motion_model
from testudo_hardware.schema import VELOCITY_POINT
from testudo_hardware.spec import RobotSpec
from testudo_runs.tracks import CommandTrack

_SLACK_S = 0.05  # a command reaches the driver, and its application the recorder, this much later


def check_driver(
    findings: LinkFindings,
    spec: RobotSpec,
    sent: CommandTrack,
    applied: CommandTrack,
    unknown: Sequence[tuple[float, float]] = (),
) -> None:
    """Compare the applied commands of a ground robot with the sent ones; a drone's firmware has its own set-points.

    In real time messages may be lost on their way to the recorder: then there are times [s] of ``unknown`` decisions,
    and ``sent`` contains what was decided beside what was recorded.
    """
    lock_step = not unknown
    if lock_step:  # in real time a command acts a moment before it is known to
        findings.check_order("driver", "applied_cmd_vel", applied)
    if spec.kind == VELOCITY_POINT or not len(sent.stamp_s):
        return
    received = _Received.of(spec, sent, takes_first=lock_step)
    order = np.argsort(applied.received_s, kind="stable")
    last = -1
    for stamp_s, command in zip(applied.stamp_s[order].tolist(), applied.command[order].tolist(), strict=True):
        findings.compared["driver"] += 1
        row = received.first_same(stamp_s, command, last)
        if row is not None:
            if lock_step and row > last + 1 > 0 and _moves(received.limited[last + 1 : row], received.limited[last]):
                text = f"applied_cmd_vel skips the command of {received.stamp_s[last + 1]:.3f} s"
                findings.add("driver", "missing", stamp_s, text)
            last = row
            continue
        same = received.same(stamp_s, np.array(command))
        if lock_step or not (same.size or received.may_lack(stamp_s, unknown)):
            found = _explained(received, same, stamp_s, np.array(command), spec)
            if found is not None:
                findings.add("driver", found[0], stamp_s, found[1])


@dataclass(frozen=True)
class _Received:
    """The commands that a driver received, within its limits."""

    stamp_s: np.ndarray  # (C,)
    limited: np.ndarray  # (C, D)
    oldest_s: float  # age of a command that may still act

    @classmethod
    def of(cls, spec: RobotSpec, sent: CommandTrack, *, takes_first: bool) -> "_Received":
        """Return the commands; of equal stamps a driver ``takes_first``, if none can be missing in the record."""
        stamps, first = np.unique(sent.stamp_s, return_index=True)
        if not takes_first:
            stamps, first = sent.stamp_s, np.arange(len(sent.stamp_s))
        limited = motion_model(spec).limit_command(sent.command[first].T).T
        return cls(stamps, limited, spec.dead_man_s + spec.command_delay_s + _SLACK_S)

    def first_same(self, stamp_s: float, command: Sequence[float], last: int) -> int | None:
        """Return the first of the rows of `same` from row ``last`` on; None without one."""
        begin = max(bisect_left(self._stamps, stamp_s - self.oldest_s), last)
        for row in range(begin, bisect_left(self._stamps, stamp_s + SAME_STAMP_S)):
            if all(abs(a - b) <= SAME_COMMAND for a, b in zip(self._rows[row], command, strict=True)):
                return row
        return None

    def same(self, stamp_s: float, command: np.ndarray) -> np.ndarray:
        """Return the rows that may act at a time [s] and are equal to a command (D,)."""
        begin = bisect_left(self._stamps, stamp_s - self.oldest_s)
        end = bisect_left(self._stamps, stamp_s + SAME_STAMP_S)
        near = (np.abs(self.limited[begin:end] - command) <= SAME_COMMAND).all(axis=1)
        return begin + near.nonzero()[0]

    @cached_property
    def _rows(self) -> list[list[float]]:
        return self.limited.tolist()

    @cached_property
    def _stamps(self) -> list[float]:
        return self.stamp_s.tolist()

    def may_lack(self, stamp_s: float, unknown: Sequence[tuple[float, float]]) -> bool:
        """Return whether a command that acts at a time [s] may be of an ``unknown`` decision."""
        return any(begin_s <= stamp_s and stamp_s - self.oldest_s <= end_s for begin_s, end_s in unknown)


def _explained(
    received: _Received, same: np.ndarray, stamp_s: float, command: np.ndarray, spec: RobotSpec
) -> tuple[str, str] | None:
    """Return kind and sentence for an applied command that does not follow; None for a brake in silence."""
    if same.size:
        return "moved", "applied_cmd_vel goes back to an earlier command of cmd_vel"
    if np.any(command):
        return "changed", "applied_cmd_vel is no command of cmd_vel within the limits"
    if _is_fed(received.stamp_s, stamp_s, spec):
        return "changed", "applied_cmd_vel is zero, though cmd_vel was not silent"
    return None


def _moves(skipped: np.ndarray, last: np.ndarray) -> bool:
    """Return whether a skipped command differs from the one before, so that its application must show."""
    return bool(np.any(np.abs(skipped - last) > SAME_COMMAND))


def _is_fed(stamps: np.ndarray, stamp_s: float, spec: RobotSpec) -> bool:
    """Return whether a command was recorded at every moment at which the driver could have become silent."""
    near = stamps[(stamps > stamp_s - spec.dead_man_s - _SLACK_S) & (stamps < stamp_s)]
    return len(near) > 1 and bool(np.all(np.diff(near) < spec.dead_man_s / 2)) and stamps[0] < stamp_s - spec.dead_man_s
