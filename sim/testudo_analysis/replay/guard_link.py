"""Second link of a command's way: the guard passed on what the policy commanded, or sent zero."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np

from testudo_analysis.replay.link_findings import SAME_COMMAND, SAME_STAMP_S, LinkFindings, deviation, rows_of
from testudo_deploy.fleet.fleet import FleetRobot
from testudo_hardware.links.topics import CommandWire
from testudo_runs.tracks import CommandTrack, GuardSample

_CHANGE_S = 0.05  # a report may be this much later than the change that it reports
_UNREAD_S = 0.1  # commands that may still be on their way to the guard when it counts them, in real time


def check_guard(
    findings: LinkFindings,
    robot: FleetRobot,
    policy: CommandTrack,
    reports: Sequence[GuardSample],
    sent: CommandTrack,
    unknown: Sequence[tuple[float, float]] = (),
) -> None:
    """Compare the commands to the driver with those to the guard, and both with what the guard reported.

    In real time messages may be lost on their way to the recorder: then there are times [s] of ``unknown`` decisions.
    """
    lock_step = not unknown
    wire = CommandWire(robot.name, robot.spec, robot.link.profile)
    findings.check_order("guard", "cmd_vel", sent, repeats=True)
    if wire.needs_place or wire.type.endswith("/Twist") or not len(policy.stamp_s):
        return  # set-points that the guard leads along, or commands without a stamp
    codes = _Codes(reports, min(float(sent.stamp_s[-1]), reports[-1].stamp_s) if len(sent.stamp_s) else np.inf)
    codes.unknown = unknown
    found = _compare_sent(findings, policy, codes, sent)
    missed = _check_refused(findings, policy, codes, found > 0, flies=robot.has_flight_phases)
    _check_received(findings, policy, reports, lock_step=lock_step)
    if lock_step and not missed and not robot.has_flight_phases:
        _check_passed(findings, policy.stamp_s, found, reports)


class _Codes:
    """The code of a guard over time, from its reports."""

    def __init__(self, reports: Sequence[GuardSample], end_s: float) -> None:
        """Take the reports; from ``end_s`` on they say nothing: the guard brakes as its last command."""
        self._stamps = [report.stamp_s for report in reports]
        self._reports, self._end_s = reports, end_s - SAME_STAMP_S
        self._braked = [0, *accumulate(bool(report.code) for report in reports)]  # reports with a code, before each
        self.unknown: Sequence[tuple[float, float]] = ()
        """Times [s] at which decisions are not recorded."""

    def around(self, stamp_s: float) -> list[GuardSample]:
        """Return the reports that may be of a moment: the last one before it, and those just around it."""
        first, end = self._span(stamp_s)
        return [*self._reports[first:end]]

    def _span(self, stamp_s: float) -> tuple[int, int]:
        first = max(bisect_right(self._stamps, stamp_s - _CHANGE_S) - 1, 0)
        return first, max(bisect_right(self._stamps, stamp_s + _CHANGE_S), first)

    def brakes(self, stamp_s: float) -> bool:
        """Return whether the guard may have braked."""
        first, end = self._span(stamp_s)
        return first == end or self._braked[end] > self._braked[first] or stamp_s > self._end_s

    def passes(self, stamp_s: float) -> bool:
        """Return whether the guard may have passed commands on."""
        first, end = self._span(stamp_s)
        return first == end or self._braked[end] - self._braked[first] < end - first or stamp_s > self._end_s

    def shares(self, stamp_s: float) -> list[float]:
        """Return by how much the guard may have slowed a command."""
        after = bisect_right(self._stamps, stamp_s)
        return [report.speed_share for report in (*self.around(stamp_s), *self._reports[after : after + 1])]


def _compare_sent(findings: LinkFindings, policy: CommandTrack, codes: _Codes, sent: CommandTrack) -> np.ndarray:
    """Compare every command to the driver.

    Returns:
        (P,) int: 2 for a command of the policy that was passed on, 1 where the found zero may be a brake, 0 for none.
    """
    commands, stamps = rows_of(policy), policy.stamp_s.tolist()
    passed = np.zeros(len(commands), int)
    for stamp_s, command, turn in rows_of(sent):
        findings.compared["guard"] += 1
        zero = not any(command) and not turn
        row = bisect_left(stamps, stamp_s - SAME_STAMP_S)
        if row < len(stamps) and stamps[row] <= stamp_s + SAME_STAMP_S:
            _, asked, asked_turn = commands[row]
            away = deviation((*command, turn), (*asked, asked_turn))
            if away > SAME_COMMAND:  # a guard with a laser scanner slows commands
                slowed = ((*(share * value for value in asked), asked_turn) for share in codes.shares(stamp_s))
                away = min((away, *(deviation((*command, turn), one) for one in slowed)))
            if away <= SAME_COMMAND:
                if passed[row] and not zero:
                    findings.add("guard", "inserted", stamp_s, "cmd_vel holds the command of this stamp twice")
                sure = not zero or not codes.brakes(stamp_s)
                passed[row] = max(passed[row], 2 if sure else int(codes.passes(stamp_s)))
                if not zero and not codes.passes(stamp_s):
                    reason = codes.around(stamp_s)[-1].code
                    findings.add("guard", "changed", stamp_s, f"cmd_vel moves, while the guard braked for {reason!r}")
            elif not (zero and codes.brakes(stamp_s)):
                text = f"cmd_vel is {away:.3g} away from what the policy commanded and the guard passed on"
                findings.add("guard", "changed", stamp_s, text)
                passed[row] = 2
        elif not zero and not any(begin <= stamp_s <= end for begin, end in codes.unknown):
            findings.add("guard", "inserted", stamp_s, "cmd_vel holds a command that the policy did not send")
        elif zero and not codes.brakes(stamp_s):
            text = "cmd_vel holds a brake, while the guard reported that it passes commands on"
            findings.add("guard", "inserted", stamp_s, text)
    return passed


def _check_refused(
    findings: LinkFindings, policy: CommandTrack, codes: _Codes, passed: np.ndarray, *, flies: bool
) -> int:
    """Find commands that are missing behind a guard that passes commands on; return how many."""
    if flies:
        return 0  # the planner on board leads in some phases of a flight, and nothing is sent
    missed = 0
    for row in np.flatnonzero(~passed).tolist():
        stamp_s = float(policy.stamp_s[row])
        if codes.brakes(stamp_s):
            continue
        around = codes.around(stamp_s + _UNREAD_S)
        if around[-1].counts[1] > codes.around(stamp_s)[0].counts[1]:
            continue  # refused by itself, such as one that came too late
        missed += 1
        findings.add("guard", "missing", stamp_s, "the guard passed commands on, and cmd_vel holds none of this stamp")
    return missed


def _check_received(
    findings: LinkFindings, policy: CommandTrack, reports: Sequence[GuardSample], *, lock_step: bool
) -> None:
    """Compare how many commands the guard counted with the recorded ones, in each of its processes.

    In lock-step time stands still when the run ends: the brake that the policy sends then has the stamp of its last
    tick, and no guard takes it any more. A report of that stamp need not count it, but must count all before it.
    """
    late_s, known = 0.0 if lock_step else _UNREAD_S, policy.stamp_s.tolist()
    surely = known[:-1] if _ends_with_brake(policy) else known
    for first, report in _of_one_process(reports):
        most = bisect_right(known, report.stamp_s + SAME_STAMP_S) - bisect_right(
            known, first.stamp_s - late_s + SAME_STAMP_S
        )
        least = bisect_right(surely, report.stamp_s - late_s + SAME_STAMP_S) - bisect_right(
            known, first.stamp_s + SAME_STAMP_S
        )
        received = report.counts[0] - first.counts[0]
        # in real time a guard under load may lose a message of the policy, too
        if received > most or (lock_step and received < least):
            kind, word, count = ("missing", "fewer", most) if received > most else ("inserted", "more", least)
            text = f"cmd_vel_policy holds {word} commands ({count}) than the guard received ({received})"
            findings.add("guard", kind, report.stamp_s, text)
            return


def _ends_with_brake(policy: CommandTrack) -> bool:
    """Return whether the last command is zero and has the stamp of the one before it."""
    turns = policy.yaw_rate is not None and bool(policy.yaw_rate[-1])
    repeats = len(policy.stamp_s) > 1 and policy.stamp_s[-1] - policy.stamp_s[-2] <= SAME_STAMP_S
    return bool(repeats) and not turns and not policy.command[-1].any()


def _check_passed(
    findings: LinkFindings, stamps: np.ndarray, found: np.ndarray, reports: Sequence[GuardSample]
) -> None:
    """Compare how many commands the guard counted as passed on with the recorded ones."""
    known = stamps.tolist()
    surely, maybe = ([0, *accumulate(row.tolist())] for row in (found == 2, found > 0))  # commands before each
    for first, report in _of_one_process(reports):
        end = bisect_right(known, report.stamp_s + SAME_STAMP_S)
        begin = min(bisect_right(known, first.stamp_s + SAME_STAMP_S), end)
        least, most = surely[end] - surely[begin], maybe[end] - maybe[begin]
        counted = report.counts[0] - report.counts[1] - (first.counts[0] - first.counts[1])
        if not least <= counted <= most:
            kind, count = ("missing", most) if counted > most else ("inserted", least)
            text = f"cmd_vel holds {count} commands of the policy, and the guard counted {counted} that it passed on"
            findings.add("guard", kind, report.stamp_s, text)
            return


def _of_one_process(reports: Sequence[GuardSample]) -> Iterator[tuple[GuardSample, GuardSample]]:
    """Yield every report with the first one of its process."""
    first = reports[0]
    for report in reports:
        first = first if report.life == first.life else report
        yield first, report
