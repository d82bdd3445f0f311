"""The gap report as sections of the page: error of the model, its kinds and places, latency, margins, score."""

import math
from collections.abc import Sequence
from pathlib import Path

from testudo_analysis.gap.block_bootstrap import Interval
from testudo_analysis.gap.error_map import StateErrors
from testudo_analysis.gap.gap_report import ALL, DEAD_RECKONING, IDENTIFIED, Difference, ErrorRow, GapReport, TypeGap
from testudo_analysis.gap.presentation.findings_text import comparison_text, findings
from testudo_analysis.replay.replay_tables import SHOWN_UNITS
from testudo_analysis.run_page.html_markup import Html, chart, code, details, facts, paragraph, pill, table, text
from testudo_analysis.run_page.margin_bars import margin_bars, margin_findings
from testudo_analysis.run_page.page_data import ChartPanel, Curve, Finding, HeatMap, PageSection, Severity

_NAMED = Html('<span class="pill doubt">stands out</span>')
_CHANGE = ("robot", "channel", "horizon", "from, to", "median", "p90", "of the median", "significant")


def gap_findings(report: GapReport) -> list[Finding]:
    """Return margins that do not cover the run, and the largest kind of error of each type of robot."""
    run = str(report.run or "RUN")
    found = []
    for gap in report.types:
        found += margin_findings(gap.margins, run, gap.robot_type)
        found += _model_finding(gap, report, run)
    found += [
        Finding(Severity.DOUBT, f"{row.name} differs: predicted {row.predicted}, real {row.real}")
        for row in report.score.rows
        if row.agrees is False
    ]
    found += [
        Finding(Severity.NOTE, f"{name} is not replayed by the model: {why}") for name, why in report.left_out.items()
    ]
    return found


def _model_finding(gap: TypeGap, report: GapReport, run: str) -> list[Finding]:
    row = next((r for h in reversed(report.horizons_s) if (r := gap.find(gap.best, "position", h))), None)
    if row is None:
        return []
    named = [cause for cause in gap.causes.get(gap.best, ()) if cause.named]
    what = (
        f"The {gap.best} model of {gap.robot_type} is {1e3 * row.median.value:.1f} mm off after {row.horizon_s:g} s "
        f"(median; {1e3 * row.p90.value:.0f} mm at p90), on {1e3 * row.travel_m:.0f} mm of way"
    )
    cause = f"{named[0].words}; {100 * named[0].explains:.0f} % of the squared error" if named else ""
    doubt = (
        f"95 % interval of the median: {1e3 * row.median.low:.1f} to {1e3 * row.median.high:.1f} mm, "
        f"{row.count:,} starts"
    )
    command = "" if IDENTIFIED in gap.models else f"testudo identify {run} --out {gap.robot_type}_identified.toml"
    return [Finding(Severity.NOTE, what, doubt, cause, command, "fits the parameters that this run can determine")]


def gap_sections(report: GapReport) -> list[PageSection]:
    """Return the sections, margins first."""
    several = len(report.types) > 1
    sections = []
    for k, gap in enumerate(report.types):
        of, key = f" of {gap.robot_type}" if several else "", str(k or "")
        sections.append(PageSection(f"margins{key}", f"Margins of the shield{of}", margin_bars(gap.margins)))
        sections.append(_errors(gap, report, key, of))
        sections.append(_where(gap, key, of))
    sections.append(PageSection("against", f"Against {Path(report.against_name).name}", _against(report)))
    sections.append(PageSection("score", "Predicted and real score", _score(report)))
    sections.append(PageSection("gap-details", "Model: all figures", _all_figures(report)))
    return [section for section in sections if section.markup]


def _errors(gap: TypeGap, report: GapReport, key: str, of: str) -> PageSection:
    """Return errors by horizon: one panel for each channel, then one for each robot."""
    charts = {
        f"channels{key}": tuple(_channel_panel(gap, channel, report.horizons_s) for channel in gap.channels),
        f"robots{key}": tuple(_robot_panel(gap, robot, report.horizons_s) for robot in gap.robots),
    }
    sentences = [s for s in findings(report) if len(report.types) == 1 or s.startswith(f"{gap.robot_type}: ")]
    markup = (
        paragraph(
            "The recorded commands are simulated from every recorded pose, and the result is compared with the pose "
            "recorded at its end. Bands are 95 % intervals of the median."
        )
        + "<h3>All robots, by channel</h3>"
        + chart(f"channels{key}")
        + "<h3>Position, by robot</h3>"
        + chart(f"robots{key}")
        + "<h3>Kinds of error</h3>"
        + _kinds(gap)
        + details("In sentences", "<ul>" + "".join(f"<li>{text(s)}</li>" for s in sentences) + "</ul>")
    )
    return PageSection(f"model{key}", f"Error of the model{of}", markup, charts)


def _channel_panel(gap: TypeGap, channel: str, horizons_s: Sequence[float]) -> ChartPanel:
    unit, factor = SHOWN_UNITS[_unit(gap, channel)]
    curves = tuple(_curve(gap, model, channel, ALL, horizons_s, factor) for model in gap.models)
    return ChartPanel(channel, "horizon [s]", unit, curves, logarithmic_x=True)


def _robot_panel(gap: TypeGap, robot: str, horizons_s: Sequence[float]) -> ChartPanel:
    curves = tuple(_curve(gap, model, "position", robot, horizons_s, 1e3) for model in gap.models)
    return ChartPanel(robot, "horizon [s]", "mm", curves, logarithmic_x=True)


def _curve(gap: TypeGap, model: str, channel: str, robot: str, horizons_s: Sequence[float], factor: float) -> Curve:
    rows = [row for h in horizons_s if (row := gap.find(model, channel, h, robot))]
    medians = [row.median for row in rows]
    return Curve(
        model,
        tuple(row.horizon_s for row in rows),
        tuple(factor * one.value for one in medians),
        tuple(factor * one.low for one in medians),
        tuple(factor * one.high for one in medians),
        "dashed" if model == DEAD_RECKONING else "solid",
    )


def _kinds(gap: TypeGap) -> str:
    parts = []
    for model, found in gap.causes.items():
        rows = [
            (cause.kind, cause.words, f"{100 * cause.explains:.1f} %", _NAMED if cause.named else "") for cause in found
        ]
        parts.append(
            paragraph(f"{model}, after {gap.cause_horizon_s[model]:g} s")
            + table(("kind", "description", "explains", ""), rows, numbers=(2,))
        )
    return "".join(parts) or paragraph("Not determined.")


def _where(gap: TypeGap, key: str, of: str) -> PageSection:
    maps, parts = [], []
    for model, state in gap.state.items():
        maps.append(_heat_map(state, model, gap.state_horizon_s))
        rows = [(cell.words, _spread(cell.median, 1e3), _spread(cell.ratio), f"{cell.count:,}") for cell in state.worst]
        heads = ("where", "median [mm]", "times the median of all", "starts")
        parts.append(
            f"<h3>Worst regions, {text(model)}</h3>" + table(heads, rows, numbers=(1, 2, 3))
            if rows
            else paragraph(f"{model}: no region is significantly worse than the whole.")
        )
    markup = chart(f"state{key}") + "".join(parts) if maps else ""
    return PageSection(f"where{key}", f"Where the model is wrong{of}", markup, {f"state{key}": tuple(maps)})


def _heat_map(state: StateErrors, model: str, horizon_s: float) -> HeatMap:
    rows, columns = (curve.axis for curve in state.curves[:2])
    values = tuple(tuple(1e3 * v if math.isfinite(v) else None for v in row) for row in state.grid)
    title = f"Median position error after {horizon_s:g} s, {model}"
    return HeatMap(title, columns.name, rows.name, columns.words, rows.words, values, "mm")


def _against(report: GapReport) -> str:
    if not report.against_name:
        return ""
    rows = [_change(row) for row in report.against]
    pooled, single = [row for row in rows if row[0] == ALL], [row for row in rows if row[0] != ALL]
    by_robot = details("By robot", table(_CHANGE, single, numbers=range(4, 7))) if single else ""
    return paragraph(comparison_text(report)) + table(_CHANGE, pooled, numbers=range(4, 7)) + by_robot


def _score(report: GapReport) -> str:
    rows = [(row.name, row.predicted, row.real, pill(row.agrees, "agrees", "differs")) for row in report.score.rows]
    return (table(("score", "predicted", "real", ""), rows) if rows else "") + paragraph(report.score.note)


def _all_figures(report: GapReport) -> str:
    values = {
        "recorded": f"{report.duration_s:.1f} s",
        "replayed": f"{report.replayed_s:.1f} s",
        "starts": f"{report.starts:,}",
        "source": report.source,
    }
    parts = [facts(values)]
    heads = ("robot", "parameters", "channel", "horizon", "median", "p90", "bias", "unit", "starts")
    for gap in report.types:
        rows = [
            (row.robot, row.model, row.channel, f"{row.horizon_s:g} s", *_numbers(row), f"{row.count:,}")
            for row in gap.rows
        ]
        changes = [_change(row) for row in gap.differences if row.robot == ALL]
        parts += [
            details(
                f"{gap.robot_type}: errors by robot, channel and horizon", table(heads, rows, numbers=(3, 4, 5, 6, 8))
            ),
            details(f"{gap.robot_type}: differences of parameter sets", table(_CHANGE, changes, numbers=range(4, 7))),
            details(f"{gap.robot_type}: latency", _latency(gap)),
            details(f"{gap.robot_type}: parameters", _parameters(gap)),
        ]
    parts += map(paragraph, report.notes)
    return "".join(parts) + (facts(report.versions) if report.versions else "")


def _latency(gap: TypeGap) -> str:
    rows = [
        (
            found.robot,
            found.channel,
            f"{1e3 * found.real_s.value:.0f} ({1e3 * found.real_s.low:.0f} to {1e3 * found.real_s.high:.0f})",
            f"{1e3 * found.model_s:.0f}",
            f"{found.correlation:.2f}",
        )
        for found in gap.latencies
    ]
    if not rows:
        return paragraph("No stretch of the run has enough changes of command for an estimate.")
    heads = ("robot", "channel", "real [ms], 95 %", "nominal model [ms]", "correlation")
    return paragraph("From command to response, delay and lag together.") + table(heads, rows, numbers=(2, 3, 4))


def _parameters(gap: TypeGap) -> str:
    names = list(dict.fromkeys(name for values in gap.parameters.values() for name in values))
    models = [model for model in gap.parameters if model != DEAD_RECKONING]
    rows = [(code(n), *(f"{gap.parameters[model].get(n, math.nan):.4g}" for model in models)) for n in names]
    return table(("parameter", *models), rows, numbers=range(1, len(models) + 1))


def _change(row: Difference) -> tuple[object, ...]:
    unit, factor = SHOWN_UNITS[row.unit]
    spans = [
        f"{factor * i.value:+.2f} ({factor * i.low:+.2f} to {factor * i.high:+.2f}) {unit}"
        for i in (row.median, row.p90)
    ]
    none = Html('<span class="pill none">no</span>')
    sure = pill(row.median.is_below, "lower", "higher") if row.significant else none
    relative = f"{100 * row.relative:+.0f} %"
    return row.robot, row.channel, f"{row.horizon_s:g} s", f"{row.first}, {row.second}", *spans, relative, sure


def _unit(gap: TypeGap, channel: str) -> str:
    return next(row.unit for row in gap.rows if row.channel == channel)


def _spread(interval: Interval, factor: float = 1.0) -> str:
    return f"{factor * interval.value:.1f} ({factor * interval.low:.1f} to {factor * interval.high:.1f})"


def _numbers(row: ErrorRow) -> tuple[str, ...]:
    unit, factor = SHOWN_UNITS[row.unit]
    return (_spread(row.median, factor), _spread(row.p90, factor), f"{factor * row.bias:+.2f}", unit)
