"""Whether an identification is better than its baseline on held-out data, and otherwise the likely reason."""

from collections.abc import Iterable, Sequence

import numpy as np

from testudo_analysis.identify.estimation.identification_result import Identification
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import RobotSpec
from testudo_runs.alignment import TeamRecording
from testudo_runs.importing.plausibility.checks import implausible
from testudo_runs.recording.recording import RobotRecording

LOST = 0.05
"""Relative increase of the median held-out error, median over robots, from which an identification loses."""
_CORRELATED = 0.3  # least correlation of commands and motion of one robot
_WORDS = {"half": "second half of the run", "robots": "other robots", "runs": "other runs"}


def refuse_worse(found: Identification, teams: Sequence[TeamRecording], spec: RobotSpec) -> None:
    """Check an identification against its baseline.

    Raises:
        TestudoError: on held-out data its error is larger than that of dead reckoning or ballistic flight; with the
            likely reason.
    """
    lost = _lost(found)
    if lost:
        robots = [robot for team in teams for robot in team.source.robots.values()]
        named = [robot for robot in robots if any(name.split("/")[-1] == robot.name for name in found.robots)]
        raise TestudoError(f"identify: {lost}: nothing is written; likely reason: {_reason(named, teams, spec)}")


def _lost(found: Identification) -> str:
    """Return in what an identification loses to its baseline; empty if it does not."""
    horizon = max((row.horizon_s for row in found.held_out), default=0.0)
    last = [row for row in found.held_out if row.horizon_s == horizon and " with " not in row.channel]
    for split, channel in dict.fromkeys((row.split, row.channel) for row in last):
        median, _ = found.reductions(channel, horizon, split)
        if median < -LOST:
            return (
                f"found a held-out {channel} error after {horizon:g} s that is {-median:.0%} larger than that of the "
                f"baseline ({_WORDS[split]}), expected a smaller one"
            )
    return ""


def _reason(robots: Iterable[RobotRecording], teams: Sequence[TeamRecording], spec: RobotSpec) -> str:
    """Return the likely reason: implausible motion (axes, degrees), a wrong topic, a clock, or too little data."""
    robots = list(robots)
    for robot in robots:
        for finding in implausible(robot, spec):
            return f"axes or units: {finding}"
    known = {robot.name for robot in robots}
    for aligned in (robot for team in teams for robot in team.robots if robot.name in known):
        if aligned.latency is None:
            continue
        if abs(aligned.latency.correlation) < _CORRELATED:
            return (
                f"wrong topic: the commands of {aligned.name} hardly correlate with its motion "
                f"({aligned.latency.correlation:.2f}); map the topic that drives this robot"
            )
        if not aligned.latency.determined:
            low, high = aligned.latency.searched_s
            return (
                f"clock: no delay of {aligned.name} behind its commands is found between {low:g} and {high:g} s; "
                "correct the stamps with --offset of `testudo import`"
            )
    seconds = float(np.sum([team.source.duration_s for team in teams]))
    return f"too little data ({seconds:.0f} s) for what it varies; record more driving, or give more runs"
