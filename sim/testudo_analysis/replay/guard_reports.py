"""What a guard reports of itself: codes, counts and stamps that fit each other from report to report."""

from collections.abc import Sequence
from itertools import pairwise

from testudo_analysis.replay.link_findings import LinkFindings
from testudo_deploy.guard.command_guard import SENTENCES
from testudo_deploy.monitoring.diagnostics import Level
from testudo_runs.tracks import GuardSample

_LONGEST_S = 0.2  # between two reports in lock-step, which are published every 0.1 s
_ROUNDED_S = 0.002  # since_s is rounded


def check_reports(findings: LinkFindings, reports: Sequence[GuardSample], *, lock_step: bool) -> None:
    """Compare the reports of a guard, in the order of recording, with each other."""
    name = findings.robot
    for report in reports:
        findings.compared["judgement"] += 1
        level = Level.ERROR if report.code else Level.OK
        names = (report.name, report.hardware) == (f"{name}: guard", name)
        sentence = SENTENCES.get(report.code)
        if sentence is None or not report.sentence.startswith(sentence) or report.level != int(level) or not names:
            text = f"the guard's report of code {report.code!r} does not fit its sentence, level or name"
            findings.add("judgement", "changed", report.stamp_s, text)
        if abs(report.stamp_s - report.received_s) > 1.0 or (lock_step and report.stamp_s > report.received_s + 1e-6):
            findings.add(
                "judgement", "changed", report.stamp_s, "the guard's report is of another time than its record"
            )
    for before, after in pairwise(reports):
        if before.life != after.life:
            if lock_step:
                findings.add("judgement", "changed", after.stamp_s, "the guard's process changed in lock-step")
            continue
        _check_pair(findings, before, after, lock_step=lock_step)


def _check_pair(findings: LinkFindings, before: GuardSample, after: GuardSample, *, lock_step: bool) -> None:
    at_s = after.stamp_s
    if after.stamp_s < before.stamp_s:
        findings.add("judgement", "moved", at_s, f"the guard's report is recorded after that of {before.stamp_s:.3f} s")
        return
    if after.stamp_s == before.stamp_s and after.code == before.code and before.since_s:  # a change is reported at once
        findings.add("judgement", "inserted", at_s, "the guard's report is recorded twice")
    if lock_step and after.stamp_s - before.stamp_s > _LONGEST_S:
        findings.add("judgement", "missing", at_s, f"the guard reported nothing for {at_s - before.stamp_s:.2f} s")
    if min(*(b - a for a, b in zip(before.counts, after.counts, strict=True))) < 0:
        findings.add("judgement", "changed", at_s, "the guard's counts went down")
    commands, refused = (b - a for a, b in zip(before.counts[:2], after.counts[:2], strict=True))
    if refused > commands:
        findings.add("judgement", "changed", at_s, f"the guard refused {refused} of {commands} commands")
    kept = before.code == after.code
    since_s = before.stamp_s - before.since_s if kept else after.stamp_s
    if abs(after.stamp_s - after.since_s - since_s) > _ROUNDED_S + 1e-3 * after.since_s:
        text = "the guard's report names another time since which its code holds than the report before"
        findings.add("judgement", "changed", at_s, text)
