"""The way of every command: decision, `cmd_vel_policy`, the guard's judgement, `cmd_vel`, what the driver applied.

Each link is compared with the one before, message by message, so that a command that was changed, left out, added or
moved on one topic contradicts another topic, whatever the chain of hashes says.
"""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from testudo_analysis.replay.decision_link import check_decisions, check_ticks, lost_spans, with_decisions
from testudo_analysis.replay.driver_link import check_driver
from testudo_analysis.replay.guard_link import check_guard
from testudo_analysis.replay.guard_reports import check_reports
from testudo_analysis.replay.link_findings import LINKS, LinkDeviation, LinkFindings, merged
from testudo_deploy.fleet.fleet import FleetRobot
from testudo_runs.run_reader import RecordedRun

_SHOWN = 5


@dataclass(frozen=True)
class CommandChain:
    """The verdict on a run."""

    compared: dict[str, int]  # messages by link
    deviations: tuple[LinkDeviation, ...]
    loses_nothing: bool  # recorded in lock-step, where no message can be lost on its way to the recorder

    @property
    def passed(self) -> bool:
        """Return whether nothing deviates, apart from messages that the recorder may have lost."""
        return all(one.kind == "missing" and not self.loses_nothing for one in self.deviations)

    @property
    def sentences(self) -> tuple[str, ...]:
        """Return the first deviations of each robot, link and kind, and how many more there are."""
        found: dict[tuple[str, str, str], list[str]] = {}
        for one in self.deviations:
            found.setdefault((one.robot, one.link, one.kind), []).append(one.sentence)
        lines = []
        for (robot, link, kind), texts in found.items():
            lines += texts[:_SHOWN]
            if len(texts) > _SHOWN:
                lines.append(f"{robot}: and {len(texts) - _SHOWN} more {kind} messages of the link {link}")
        return tuple(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "passed": self.passed,
            "loses_nothing": self.loses_nothing,
            "compared": self.compared,
            "what": LINKS,
            "deviations": [asdict(one) for one in self.deviations],
        }


def compare_chain(run: RecordedRun) -> CommandChain:
    """Compare the links of all robots of a run; a topic that was not recorded is not compared."""
    lock_step = bool(run.info.get("lock_step"))
    found = [_compare_robot(run, robot, lock_step=lock_step) for robot in run.fleet.robots]
    compared: Counter[str] = Counter()
    for findings in found:
        compared.update(findings.compared)
    return CommandChain(dict(compared), tuple(one for findings in found for one in findings.deviations), lock_step)


def _compare_robot(run: RecordedRun, robot: FleetRobot, *, lock_step: bool) -> LinkFindings:
    findings, name, spec = LinkFindings(robot.name), robot.name, robot.spec
    records, reports = run.ticks.get(name, ()), run.guard.get(name, ())
    policy, sent, applied = run.commanded.get(name), run.sent[name], run.applied[name]
    check_ticks(findings, records)
    if reports:
        check_reports(findings, reports, lock_step=lock_step)
    if policy is None or not len(policy.stamp_s) or not records:
        return findings
    check_decisions(findings, spec, records, policy)
    unknown = () if lock_step else lost_spans(records)
    known = policy if lock_step else with_decisions(policy, spec, records)
    if reports:
        check_guard(findings, robot, known, reports, sent, unknown)
    if len(applied.stamp_s):
        check_driver(findings, spec, sent if lock_step else merged(sent, known), applied, unknown)
    return findings
