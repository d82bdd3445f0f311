"""The gap in sentences: what to know, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator

from testudo_analysis.gap.gap_report import ALL, DEAD_RECKONING, IDENTIFIED, Difference, GapReport, TypeGap
from testudo_analysis.gap.statistics.block_bootstrap import Interval

_FEW = 3
_HARDLY_M = 0.005
_OTHERS = {False: "slip", True: "drag, damping or trim"}


def findings(report: GapReport) -> list[str]:
    """Return what the report says, the most important first."""
    said = []
    for gap in report.types:
        name = f"{gap.robot_type}: " if len(report.types) > 1 else ""
        said += [
            name + sentence
            for sentence in (
                *_sizes(gap, report.horizons_s),
                *_causes(gap),
                *_places(gap),
                *_latency(gap),
                *_margins(gap),
            )
        ]
    if report.against:
        said.append(comparison_text(report))
    return said


def next_steps(report: GapReport) -> list[tuple[str, str]]:
    """Return commands that follow from the report, each with what it is for."""
    run = report.run or "RUN"
    steps = []
    for gap in report.types:
        if IDENTIFIED not in gap.models:
            steps += [
                (
                    f"testudo identify {run} --out {gap.robot_type}_identified.toml",
                    "fits the parameters that this run can determine",
                ),
                (f"testudo gap {run} --identified {gap.robot_type}_identified.toml", "shows what they are worth"),
            ]
    steps.append((f"testudo incident {run}", "looks for the moments at which the run came near to failing"))
    return steps


def comparison_text(report: GapReport) -> str:
    """Return in one sentence how the other run or robot file compares."""
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
    median = row.median
    if not row.significant:
        return (
            f"not surely different ({1e3 * median.value:+.1f} mm, {1e3 * median.low:+.1f} to {1e3 * median.high:+.1f})"
        )
    return (
        f"{abs(row.relative) * 100:.0f} % {'higher' if median.value > 0 else 'lower'} "
        f"({1e3 * median.value:+.1f} mm, {1e3 * median.low:+.1f} to {1e3 * median.high:+.1f})"
    )


def millimetres(interval: Interval) -> str:
    """Return a length with its interval."""
    return f"{1e3 * interval.value:.1f} mm ({1e3 * interval.low:.1f} to {1e3 * interval.high:.1f})"


def _sizes(gap: TypeGap, horizons_s: tuple[float, ...]) -> Iterator[str]:
    horizon = next((h for h in reversed(horizons_s) if gap.find(gap.best, "position", h)), None)
    if horizon is None:
        return
    row = gap.find(gap.best, "position", horizon)
    yield (
        f"After {horizon:g} s the {gap.best} model is off by {millimetres(row.median)} in the median and "
        f"{millimetres(row.p90)} at p90, on a way of {1e3 * row.travel_m:.0f} mm."
    )
    yield from _stillness(gap, horizon)
    reckoned = gap.find(DEAD_RECKONING, "position", horizon)
    if gap.flown and reckoned is not None and row.median.low > reckoned.median.high:
        yield (
            f"Without the controller that holds it a body leaves its attitude soon: at {horizons_s[0]:g} s the "
            "figures say more, and `testudo identify` says what these logs can tell."
        )
    for first in [model for model in gap.models if model != gap.best]:
        change = next(
            (
                d
                for d in gap.differences
                if (d.first, d.second, d.robot, d.channel, d.horizon_s) == (first, gap.best, "all", "position", horizon)
            ),
            None,
        )
        if change is not None:
            other = "dead reckoning" if first == DEAD_RECKONING else f"the {first} model"
            yield f"Against {other} the median after {horizon:g} s is {difference_words(change)}."


def _stillness(gap: TypeGap, horizon: float) -> Iterator[str]:
    """Say which robots stood for most of the time: they pull every median of all robots down."""
    rows = [
        row
        for row in gap.rows
        if (row.model, row.channel, row.horizon_s) == (gap.best, "position", horizon) and row.robot != ALL
    ]
    still = [row.robot for row in rows if row.travel_m < _HARDLY_M]
    if still and len(still) == len(rows):
        yield "The robots hardly moved, so this run says little about how they move."
    elif still:
        moved = max((row for row in rows if row.robot not in still), key=lambda row: row.travel_m)
        own = f"{moved.robot}: {millimetres(moved.median)} on a way of {1e3 * moved.travel_m:.0f} mm"
        yield (
            f"{', '.join(still)}: stood for most of the time, which pulls all medians down; look at the errors by "
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
            f"One of the worst places, {cell.words}: {1e3 * cell.median.value:.1f} mm after "
            f"{gap.state_horizon_s:g} s, {cell.ratio.value:.1f} times the median of all ({cell.count:,} starts)."
        )


def _latency(gap: TypeGap) -> Iterator[str]:
    for channel in dict.fromkeys(latency.channel for latency in gap.latencies):
        own = [latency for latency in gap.latencies if latency.channel == channel]
        real = sorted(latency.real_s.value for latency in own)[len(own) // 2]
        model = sorted(latency.model_s for latency in own)[len(own) // 2]
        yield (
            f"From command to response of the {channel} it takes {1e3 * real:.0f} ms; in the nominal model "
            f"{1e3 * model:.0f} ms."
        )


def _margins(gap: TypeGap) -> Iterator[str]:
    beyond = [check for check in gap.margins if not check.within]
    if gap.margins and not beyond:
        yield f"All {len(gap.margins)} residuals stay within the shield's margins in 99 % of the samples."
    for check in beyond:
        yield (
            f"Beyond a margin of the {check.model} file: "
            f"{check.what} is {_number(check.p99)} {check.unit} at p99; what is covered by "
            f"{check.term} is {_number(check.limit)} {check.unit}. The worst sample is of {check.robot}."
        )


def _number(value: float) -> str:
    return f"{value:.3g}"
