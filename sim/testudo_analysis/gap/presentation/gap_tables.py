"""The gap report in the terminal."""

from __future__ import annotations

from rich import box
from rich.table import Table

from testudo_analysis.gap.gap_report import DEAD_RECKONING, NOMINAL, GapReport, TypeGap
from testudo_analysis.replay.replay_tables import SHOWN_UNITS

_SHORT = {DEAD_RECKONING: "dead reck."}


def gap_tables(report: GapReport) -> list[Table]:
    """Return for each type of robot the errors by horizon, and the margins."""
    found = []
    for gap in report.types:
        found += [_errors(gap, report), *([_margins(gap)] if gap.margins else [])]
    return found


def _errors(gap: TypeGap, report: GapReport) -> Table:
    table = _table(f"Open-loop error of {len(gap.robots)} {gap.robot_type}: median / p90")
    table.add_column("channel", no_wrap=True)
    table.add_column("model", no_wrap=True)
    for horizon in report.horizons_s:
        table.add_column(f"{horizon:g} s", justify="right", no_wrap=True)
    for channel in gap.channels:
        unit, factor = SHOWN_UNITS[next(row.unit for row in gap.rows if row.channel == channel)]
        for k, model in enumerate(gap.models):
            rows = [gap.find(model, channel, horizon) for horizon in report.horizons_s]
            cells = [
                "-" if row is None else f"{_short(row.median.value * factor)}/{_short(row.p90.value * factor)}"
                for row in rows
            ]
            table.add_row(f"{channel} {unit}" if k == 0 else "", _SHORT.get(model, model), *cells)
    return table


def _margins(gap: TypeGap) -> Table:
    table = _table(f"Residuals against the shield's margins, {gap.robot_type}")
    for name in ("term", "covers", "p50", "p99", "worst", "within"):
        table.add_column(name, justify="left" if name == "term" else "right", overflow="fold")
    for check in gap.margins:
        within = "[green]yes[/]" if check.within else "[red]no[/]"
        term = check.term if check.model == NOMINAL else f"{check.term} ({check.model})"
        table.add_row(
            term,
            f"{check.limit:.3g} {check.unit}",
            f"{check.p50:.3g}",
            f"{check.p99:.3g}",
            f"{check.worst:.3g}",
            within,
        )
    return table


def _short(value: float) -> str:
    return f"{value:.1f}" if value < 9.95 else f"{value:.0f}"


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
