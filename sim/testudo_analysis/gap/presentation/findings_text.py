"""The gap report in sentences and as tables for the terminal, with next steps."""

from collections.abc import Iterator

from rich import box
from rich.table import Table

from testudo_analysis.gap.block_bootstrap import Interval
from testudo_analysis.gap.gap_report import ALL, DEAD_RECKONING, IDENTIFIED, NOMINAL, Difference, GapReport, TypeGap
from testudo_analysis.identify.residual_motion.coverage_table import coverage_table
from testudo_analysis.replay.replay_tables import SHOWN_UNITS

_FEW = 3
_HARDLY_M = 0.005
_OTHERS = {False: "slip", True: "drag, damping or trim"}


def findings(report: GapReport) -> list[str]:
    """Return the findings, the most important first."""
    sentences = []
    for gap in report.types:
        name = f"{gap.robot_type}: " if len(report.types) > 1 else ""
        parts = (_sizes(gap, report.horizons_s), _causes(gap), _places(gap), _latency(gap), _margin_findings(gap))
        sentences += [name + sentence for sentences in parts for sentence in sentences]
    if report.against:
        sentences.append(comparison_text(report))
    return sentences


def next_steps(report: GapReport) -> list[tuple[str, str]]:
    """Return commands for the next steps, each with its purpose."""
    run = report.run or "RUN"
    steps = []
    for gap in report.types:
        if IDENTIFIED not in gap.models:
            steps += [
                (
                    f"testudo identify {run} --out {gap.robot_type}_identified.toml",
                    "fits the parameters that this run can determine",
                ),
                (f"testudo gap {run} --identified {gap.robot_type}_identified.toml", "shows their benefit"),
            ]
    steps.append((f"testudo incident {run}", "lists incidents of the run with likely causes"))
    return steps


def comparison_text(report: GapReport) -> str:
    """Return the comparison with the other run or robot file in one sentence."""
    rows = [row for row in report.against if row.channel == "position" and row.robot == "all"]
    row = max(rows, key=lambda one: one.horizon_s, default=None)
    if row is None:
        return f"Nothing of {report.against_name} can be compared with this run."
    return (
        f"Against {report.against_name}: the median position error there after {row.horizon_s:g} s is "
        f"{difference_words(row)}."
    )


def difference_words(row: Difference) -> str:
    """Return a difference of lengths in words."""
    value, low, high = (1e3 * end for end in (row.median.value, row.median.low, row.median.high))
    change = f"{abs(row.relative) * 100:.0f} % {'higher' if value > 0 else 'lower'}"
    if not row.significant:
        change = "not significantly different"
    return f"{change} ({value:+.1f} mm, {low:+.1f} to {high:+.1f})"


def millimetres(interval: Interval) -> str:
    """Return a length with its interval."""
    return f"{1e3 * interval.value:.1f} mm ({1e3 * interval.low:.1f} to {1e3 * interval.high:.1f})"


def _sizes(gap: TypeGap, horizons_s: tuple[float, ...]) -> Iterator[str]:
    row = next((row for h in reversed(horizons_s) if (row := gap.find(gap.best, "position", h))), None)
    if row is None:
        return
    horizon = row.horizon_s
    yield (
        f"After {horizon:g} s the {gap.best} model has an error of {millimetres(row.median)} in the median and "
        f"{millimetres(row.p90)} at p90, on a distance of {1e3 * row.travel_m:.0f} mm."
    )
    yield from _stillness(gap, horizon)
    reckoned = gap.find(DEAD_RECKONING, "position", horizon)
    if gap.flown and reckoned is not None and row.median.low > reckoned.median.high:
        yield (
            "Without its attitude controller the predicted attitude diverges soon: the errors at "
            f"{horizons_s[0]:g} s are more informative; `testudo identify` fits the model to these logs."
        )
    for first in [model for model in gap.models if model != gap.best]:
        wanted, other = (first, gap.best, "all", "position", horizon), f"the {first} model"
        for change in gap.differences:
            if (change.first, change.second, change.robot, change.channel, change.horizon_s) == wanted:
                other = first if first == DEAD_RECKONING else other
                yield f"Against {other} the median after {horizon:g} s is {difference_words(change)}."


def _stillness(gap: TypeGap, horizon: float) -> Iterator[str]:
    """Yield the robots that stood for most of the time, which lowers the pooled medians."""
    rows = [
        row
        for row in gap.rows
        if (row.model, row.channel, row.horizon_s) == (gap.best, "position", horizon) and row.robot != ALL
    ]
    still = [row.robot for row in rows if row.travel_m < _HARDLY_M]
    if still and len(still) == len(rows):
        yield "The robots hardly moved, so this run has little information on their motion."
    elif still:
        moved = max((row for row in rows if row.robot not in still), key=lambda row: row.travel_m)
        own = f"{moved.robot}: {millimetres(moved.median)} on a distance of {1e3 * moved.travel_m:.0f} mm"
        yield (
            f"{', '.join(still)}: stood for most of the time, which lowers the pooled medians; see the errors by "
            f"robot ({own})."
        )


def _causes(gap: TypeGap) -> Iterator[str]:
    named = [cause for cause in gap.causes.get(gap.best, ()) if cause.named]
    if gap.best in gap.causes and not named:
        yield (
            f"No kind of error of the {gap.best} model stands out after "
            f"{gap.cause_horizon_s[gap.best]:g} s: neither scale, nor lag or delay, nor "
            f"{_OTHERS[gap.flown]}."
        )
    for cause in named[:_FEW]:
        yield f"{cause.words[0].upper()}{cause.words[1:]}; {100 * cause.explains:.0f} % of the squared error."


def _places(gap: TypeGap) -> Iterator[str]:
    state = gap.state.get(gap.best)
    for cell in state.worst[:_FEW] if state else ():
        yield (
            f"One of the worst regions, {cell.words}: {1e3 * cell.median.value:.1f} mm after "
            f"{gap.state_horizon_s:g} s, {cell.ratio.value:.1f} times the median of all ({cell.count:,} starts)."
        )


def _latency(gap: TypeGap) -> Iterator[str]:
    for channel in dict.fromkeys(latency.channel for latency in gap.latencies):
        own = [latency for latency in gap.latencies if latency.channel == channel]
        real = sorted(latency.real_s.value for latency in own)[len(own) // 2]
        model = sorted(latency.model_s for latency in own)[len(own) // 2]
        yield (
            f"The latency from command to response of the {channel} is {1e3 * real:.0f} ms; in the nominal model "
            f"{1e3 * model:.0f} ms."
        )


def _margin_findings(gap: TypeGap) -> Iterator[str]:
    beyond = [check for check in gap.margins if not check.within]
    if gap.margins and not beyond:
        yield f"All {len(gap.margins)} residuals stay within the shield's margins in 99 % of the samples."
    for check in beyond:
        yield (
            f"Beyond a margin of the {check.model} file: "
            f"{check.what} is {check.p99:.3g} {check.unit} at p99; {check.term} covers {check.limit:.3g} {check.unit}. "
            f"The worst sample is of {check.robot}."
        )


def gap_tables(report: GapReport) -> list[Table]:
    """Return tables of the errors by horizon, of the margins and of the coverage, for each type of robot."""
    found = []
    for gap in report.types:
        found += [_errors(gap, report), *([_margins(gap)] if gap.margins else [])]
        found += [
            coverage_table(f"Recorded motions inside the 95 % bands of the {model} robot file", rows)
            for model, rows in gap.coverage.items()
        ]
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
            table.add_row(
                f"{channel} {unit}" if k == 0 else "", "dead reck." if model == DEAD_RECKONING else model, *cells
            )
    return table


def _margins(gap: TypeGap) -> Table:
    table = _table(f"Residuals against the shield's margins, {gap.robot_type}")
    for name in ("term", "covers", "p50", "p99", "worst", "within"):
        table.add_column(name, justify="left" if name == "term" else "right", overflow="fold")
    for check in gap.margins:
        within = "[green]yes[/]" if check.within else "[red]no[/]"
        term = check.term if check.model == NOMINAL else f"{check.term} ({check.model})"
        figures = (f"{value:.3g}" for value in (check.p50, check.p99, check.worst))
        table.add_row(term, f"{check.limit:.3g} {check.unit}", *figures, within)
    return table


def _short(value: float) -> str:
    return f"{value:.1f}" if value < 9.95 else f"{value:.0f}"


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
