"""Margins as bars: what 99 % of the samples need and the worst one, against what the margin covers."""

from collections.abc import Sequence

from testudo_analysis.gap.margin_checks import MarginCheck
from testudo_analysis.run_page.html_markup import paragraph, text
from testudo_analysis.run_page.page_data import Finding, Severity

_REACH = 3.0  # the bar ends at so many times the cover
_WORDS = {Severity.GOOD: "✔ covers all", Severity.DOUBT: "▲ not the worst", Severity.BAD: "✖ does not cover"}


def margin_severity(check: MarginCheck) -> Severity:
    """Return whether a margin covers all samples, 99 % of them but not the worst, or not even those."""
    if not check.within:
        return Severity.BAD
    return Severity.DOUBT if check.worst > check.limit else Severity.GOOD


def margin_bars(checks: Sequence[MarginCheck]) -> str:
    """Return the bars as markup."""
    if not checks:
        return ""
    order = sorted(checks, key=lambda check: (margin_severity(check).rank, -_times(check)))
    key = (
        '<p class="key"><span>blue: 99 % of the samples</span><span>thin mark: the worst sample</span>'
        "<span>dashed line: what the margin covers; red ground beyond it</span></p>"
    )
    note = (
        "Residuals of this run against the terms of the shield's margins. A margin is for top speed, so a slow run has "
        "little information on it. A worst sample may be a jump of the tracker: go to its robot in the timeline."
    )
    return paragraph(note) + key + "".join(map(_bar, order))


def margin_findings(checks: Sequence[MarginCheck], run: str, robot_type: str) -> list[Finding]:
    """Return a finding for each margin that does not cover 99 % of the samples, and one for exceeded worst cases."""
    command = f"testudo identify {run} --out {robot_type}_identified.toml"
    purpose = "fits the robot file, from which the margins follow"
    found = [
        Finding(
            Severity.BAD,
            f"The margin {check.term} of the {check.model} file does not cover this run: {check.what} needs "
            f"{_figure(check, check.p99)} for 99 % of the samples, and {_figure(check, check.limit)} is covered",
            f"{check.count:,} samples, {100 * check.beyond:.2f} % beyond; the worst, of {check.robot}, is "
            f"{_times(check):.1f} times the cover",
            command=command,
            purpose=purpose,
        )
        for check in checks
        if margin_severity(check) is Severity.BAD
    ]
    beyond = sorted((c for c in checks if margin_severity(c) is Severity.DOUBT), key=_times, reverse=True)
    if beyond:
        first = beyond[0]
        found.append(
            Finding(
                Severity.DOUBT,
                f"The worst sample exceeds {len(beyond)} of {len(checks)} margins: most of all {first.what} of "
                f"{first.robot}, {_figure(first, first.worst)}, {_times(first):.1f} times what {first.term} covers",
                f"{100 * first.beyond:.3g} % of {first.count:,} samples are beyond; single jumps of a tracker look the "
                "same",
                command=f"testudo inspect {run}",
                purpose="shows gaps and losses of the poses; the bars are below",
            )
        )
    return found


def _bar(check: MarginCheck) -> str:
    severity = margin_severity(check)
    p99, worst = (min(value / check.limit, _REACH) / _REACH * 100 for value in (check.p99, check.worst))
    out = " out" if check.worst > check.limit else ""
    label = (
        f"99 % {_figure(check, check.p99)}, worst {_figure(check, check.worst)}, covered {_figure(check, check.limit)}"
    )
    figures = (
        f"99 % {_figure(check, check.p99)} · worst {_figure(check, check.worst)} ({_times(check):.1f} x) · covers "
        f"{_figure(check, check.limit)}"
    )
    model = "" if check.model == "nominal" else f" ({check.model} file)"
    return (
        f'<div class="margin"><div class="name">{text(check.term + model)}<small>{text(check.what)}, worst: '
        f'{text(check.robot)}</small></div><div class="bar" role="img" aria-label="{text(label)}">'
        f'<i class="p99" style="width:{p99:.1f}%"></i><i class="cover"></i>'
        f'<i class="worst{out}" style="left:{min(worst, 99.4):.1f}%"></i></div>'
        f'<div class="figures"><span class="pill {severity}">{_WORDS[severity]}</span><br>{text(figures)}</div></div>'
    )


def _times(check: MarginCheck) -> float:
    return check.worst / check.limit if check.limit > 0 else float("inf")


def _figure(check: MarginCheck, value: float) -> str:
    unit, factor = {"m": ("mm", 1e3), "s": ("ms", 1e3)}.get(check.unit, (check.unit.replace("^2", "²"), 1.0))
    shown = factor * value
    return f"{shown:,.0f} {unit}" if shown >= 100 else f"{shown:.3g} {unit}"
