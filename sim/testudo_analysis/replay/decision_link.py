"""First link of a command's way: what a tick decided is what its robot sent to the guard."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from testudo_analysis.replay.link_findings import SAME_COMMAND, SAME_STAMP_S, LinkFindings, deviation, merged, rows_of
from testudo_deploy.contract.messages import TickRecord
from testudo_hardware.links.wire import body_forward_command
from testudo_hardware.spec import RobotSpec
from testudo_runs.tracks import CommandTrack


def check_decisions(
    findings: LinkFindings, spec: RobotSpec, records: Sequence[TickRecord], policy: CommandTrack
) -> None:
    """Compare the commands to the guard with the decisions of the ticks."""
    findings.check_order("decision", "cmd_vel_policy", policy, repeats=True)
    ticks = {round(record.stamp_s / SAME_STAMP_S): record for record in records}
    commanded, ended = set[float](), False
    for stamp_s, command, turn in rows_of(policy):
        findings.compared["decision"] += 1
        record = _near(ticks, stamp_s)
        if record is None or record.stamp_s in commanded:
            # one more at the last stamp may be the brake at the end
            if ended or any(command) or turn or stamp_s < policy.stamp_s[-1]:
                findings.add("decision", "inserted", stamp_s, "cmd_vel_policy holds a command that no tick decided")
            ended = stamp_s >= policy.stamp_s[-1]
            continue
        commanded.add(record.stamp_s)
        decided = body_forward_command(spec, record.sent_command, record.estimate_yaw or 0.0)
        away = deviation((*command, turn), (*decided, record.sent_yaw_rate or 0.0))
        if away > SAME_COMMAND:
            text = f"cmd_vel_policy is {away:.3g} away from what tick {record.sequence} decided"
            findings.add("decision", "changed", stamp_s, text)
    for before, record, after in zip(records, records[1:], records[2:], strict=False):
        between = before.stamp_s in commanded and after.stamp_s in commanded
        if record.stamp_s not in commanded and (between or not record.reason):
            text = f"tick {record.sequence} decided a command, and cmd_vel_policy holds none"
            findings.add("decision", "missing", record.stamp_s, text)


def check_ticks(findings: LinkFindings, records: Sequence[TickRecord]) -> None:
    """Find missing, repeated and moved ticks by their sequence numbers; zero begins a new process."""
    for before, after in pairwise(records):
        if after.sequence == before.sequence + 1 and after.stamp_s > before.stamp_s:
            continue
        if after.sequence > before.sequence + 1:
            lost = after.sequence - before.sequence - 1
            findings.add("decision", "missing", after.stamp_s, f"{lost} ticks before tick {after.sequence} are missing")
        elif after.sequence == before.sequence:
            findings.add("decision", "inserted", after.stamp_s, f"tick {after.sequence} is recorded twice")
        elif after.sequence:
            text = f"tick {after.sequence} is recorded after tick {before.sequence}"
            findings.add("decision", "moved", after.stamp_s, text)


def with_decisions(policy: CommandTrack, spec: RobotSpec, records: Sequence[TickRecord]) -> CommandTrack:
    """Return the commands to the guard, with those of ticks whose message the recorder lost."""
    there = {round(stamp_s / SAME_STAMP_S) for stamp_s in policy.stamp_s.tolist()}
    rows = [
        (
            record.stamp_s,
            record.stamp_s,
            *body_forward_command(spec, record.sent_command, record.estimate_yaw or 0.0),
            record.sent_yaw_rate or 0.0,
        )
        for record in records
        if round(record.stamp_s / SAME_STAMP_S) not in there
    ]
    lost = np.array(rows, float).reshape(len(rows), 3 + spec.dimension)
    return merged(policy, CommandTrack(lost[:, 0], lost[:, 1], lost[:, 2:-1], lost[:, -1]))


def lost_spans(records: Sequence[TickRecord]) -> tuple[tuple[float, float], ...]:
    """Return the times [s] between which ticks are missing, and those before the first tick and after the last."""
    if not records:
        return ((-np.inf, np.inf),)
    gaps = [(a.stamp_s, b.stamp_s) for a, b in pairwise(records) if b.sequence != a.sequence + 1]
    return ((-np.inf, records[0].stamp_s), *gaps, (records[-1].stamp_s, np.inf))


def _near(ticks: dict[int, TickRecord], stamp_s: float) -> TickRecord | None:
    slot = round(stamp_s / SAME_STAMP_S)
    return next((ticks[k] for k in (slot, slot - 1, slot + 1) if k in ticks), None)
