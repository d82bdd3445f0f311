"""What the links of a command's way find: messages that contradict the topic before them."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from testudo_runs.tracks import CommandTrack

LINKS = {
    "decision": "cmd_vel_policy is what the tick of its stamp decided",
    "judgement": "what the guard reported of itself: its counts, codes and stamps",
    "guard": "cmd_vel is what the policy commanded while the guard passed commands on, and zero while it braked",
    "driver": "applied_cmd_vel is a command of cmd_vel within the limits, in their order, and zero in silence",
}
"""By link: what is compared."""
SAME_STAMP_S = 1e-6
SAME_COMMAND = 1e-9  # [m/s or rad/s]


@dataclass(frozen=True)
class LinkDeviation:
    """One message that contradicts the topic before it."""

    robot: str
    link: str  # of `LINKS`
    kind: str  # changed, missing, inserted or moved
    stamp_s: float  # steady clock
    sentence: str


@dataclass
class LinkFindings:
    """Collects what is found on one robot."""

    robot: str
    compared: Counter[str] = field(default_factory=Counter)
    deviations: list[LinkDeviation] = field(default_factory=list)

    def add(self, link: str, kind: str, stamp_s: float, sentence: str) -> None:
        """Add a deviation; ``sentence`` is without robot and time."""
        text = f"{self.robot}, {stamp_s:.3f} s: {sentence}"
        self.deviations.append(LinkDeviation(self.robot, link, kind, float(stamp_s), text))

    def check_order(self, link: str, topic: str, track: CommandTrack, *, repeats: bool = False) -> None:
        """Find messages that arrived before one of an earlier stamp; equal stamps are found unless it ``repeats``."""
        for row in np.flatnonzero(np.diff(track.received_s) < 0).tolist():
            stamps = track.stamp_s[row : row + 2].tolist()
            self.add(link, "moved", stamps[1], f"{topic} was recorded before that of {stamps[0]:.3f} s")
        for row in np.flatnonzero(np.diff(track.stamp_s) < SAME_STAMP_S).tolist() if not repeats else ():
            self.add(link, "inserted", float(track.stamp_s[row]), f"{topic} holds two messages of this stamp")


def deviation(found: Sequence[float], expected: Sequence[float]) -> float:
    """Return the largest deviation of two commands; infinite if one is not finite or they differ in size."""
    if len(found) != len(expected):
        return np.inf
    if found == expected and math.isfinite(sum(found)):
        return 0.0
    away = [abs(a - b) for a, b in zip(found, expected, strict=True)]
    return max(away, default=0.0) if math.isfinite(sum(away)) else math.inf


def rows_of(track: CommandTrack) -> list[tuple[float, list[float], float]]:
    """Return stamp [s], command (D,) and yaw rate [rad/s] of each command."""
    turns = np.zeros(len(track.stamp_s)) if track.yaw_rate is None else track.yaw_rate
    return list(zip(track.stamp_s.tolist(), track.command.tolist(), turns.tolist(), strict=True))


def merged(first: CommandTrack, second: CommandTrack) -> CommandTrack:
    """Return the commands of both, by stamp."""
    stamps = np.concatenate([first.stamp_s, second.stamp_s])
    order = np.argsort(stamps, kind="stable")
    turns = [np.zeros(len(one.stamp_s)) if one.yaw_rate is None else one.yaw_rate for one in (first, second)]
    return CommandTrack(
        stamps[order],
        np.concatenate([first.received_s, second.received_s])[order],
        np.concatenate([first.command, second.command])[order],
        np.concatenate(turns)[order],
    )
