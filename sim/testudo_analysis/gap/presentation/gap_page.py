"""The gap report as one self-contained HTML page with plots and player."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from testudo_analysis.gap.block_bootstrap import Interval
from testudo_analysis.gap.gap_analysis import TypeReplay
from testudo_analysis.gap.gap_report import ALL, Difference, ErrorRow, GapReport, TypeGap
from testudo_analysis.gap.presentation import gap_plots
from testudo_analysis.gap.presentation.findings_text import comparison_text, findings, next_steps
from testudo_analysis.gap.presentation.top_view import ReplayedCourse, top_view
from testudo_analysis.replay.replay_tables import SHOWN_UNITS
from testudo_analysis.report.html_markup import (
    Html,
    code,
    details,
    document,
    facts,
    figure,
    paragraph,
    pill,
    table,
    text,
)


@dataclass(frozen=True)
class PageData:
    """Contents of the page."""

    report: GapReport
    replays: tuple[TypeReplay, ...]
    courses: tuple[tuple[ReplayedCourse, ...], ...]  # by type of robot


def write_page(data: PageData, path: Path) -> Path:
    """Write the page and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(data), encoding="utf-8")
    return path


def page(data: PageData) -> str:
    """Return the page."""
    report = data.report
    items = "".join(f"<li>{text(sentence)}</li>" for sentence in findings(report))
    types = ", ".join(dict.fromkeys(gap.robot_type for gap in report.types))
    values = {
        "robots": ", ".join(name for gap in report.types for name in gap.robots),
        "type": types,
        "recorded": f"{report.duration_s:.1f} s",
        "starts replayed": f"{report.starts:,}",
        "horizons": ", ".join(f"{h:g}" for h in report.horizons_s) + " s",
    }
    sections = [("summary", "Summary", facts(values) + f"<ul>{items}</ul>")]
    for k, gap in enumerate(report.types):
        of = f" of {gap.robot_type}" if len(report.types) > 1 else ""
        replay, courses = data.replays[k], data.courses[k]
        sections += [
            (f"{name}{k or ''}", title + of, content)
            for name, title, content in (
                ("view", "From above", _view(courses, replay)),
                ("errors", "Error by horizon", _errors(gap, report.horizons_s)),
                ("kind", "Kinds of error", _kinds(gap)),
                ("where", "Errors over the state space", _where(gap)),
                ("time", "Error over the run", _time(gap, replay)),
                ("latency", "Latency", _latency(gap)),
                ("margins", "Margins of the shield", _margins(gap)),
                ("parameters", "Parameters", _parameters(gap)),
            )
        ]
    remarks = [*(f"{name} cannot be replayed: {why}" for name, why in report.left_out.items()), *report.notes]
    sections += [
        ("against", f"Against {report.against_name}", _against(report)),
        ("score", "Score", _score(report)),
        ("notes", "Notes", "".join(map(paragraph, remarks)) + (facts(report.versions) if report.versions else "")),
        ("next", "Next steps", _next(report)),
    ]
    name = Path(report.run).name or "recording"
    robots = sum(len(gap.robots) for gap in report.types)
    subtitle = f"{robots} robot{'s' if robots != 1 else ''}, {report.replayed_s:.0f} s replayed, {report.source}"
    return document(f"Gap of {name}", subtitle, sections, heading=f"Gap between model and robots: {name}")


def _view(courses: Sequence[ReplayedCourse], replay: TypeReplay) -> str:
    if not courses:
        return ""
    return (
        top_view(courses, replay.spec.body_radius_m)
        + figure(
            gap_plots.excerpt_plot(courses),
            "Each robot in its stretch of largest deviation: the real path (broad), the replayed one (thin), and the "
            "restarts on the real pose (dots).",
        )
        + details("All paths", figure(gap_plots.paths_plot(courses), "Real paths of all robots."))
    )


def _errors(gap: TypeGap, horizons_s: Sequence[float]) -> str:
    note = (
        "The commands are simulated open loop from every recorded pose, and the prediction is compared with the pose "
        "recorded at its end. Bands and brackets are 95 % intervals by blocks of time. Along and across are relative "
        "to the real heading."
    )
    columns = ("channel", "parameters", *(f"{h:g} s" for h in horizons_s))
    pooled = [
        (
            channel + f" [{SHOWN_UNITS[_unit(gap, channel)][0]}]" if k == 0 else "",
            model,
            *(_cell(gap.find(model, channel, h)) for h in horizons_s),
        )
        for channel in gap.channels
        for k, model in enumerate(gap.models)
    ]
    whole = [
        (row.robot, row.model, row.channel, f"{row.horizon_s:g} s", *_numbers(row), f"{row.count:,}")
        for row in gap.rows
        if row.robot != ALL
    ]
    heads = ("robot", "parameters", "channel", "horizon", "median", "p90", "bias", "unit", "starts")
    changes = [_change(row) for row in gap.differences if row.robot == ALL]
    return (
        paragraph(note)
        + figure(gap_plots.horizon_plot(gap, horizons_s), "Solid: median with its interval. Dashed: p90.")
        + table(columns, pooled, numbers=range(2, 7))
        + paragraph("Median / p90 of the size of the error.")
        + figure(gap_plots.robots_plot(gap, horizons_s), "By robot.")
        + details("Differences of parameter sets, on the same starts", table(_CHANGE, changes, numbers=range(4, 7)))
        + details("By robot, channel and horizon", table(heads, whole, numbers=(3, 4, 5, 6, 8)))
    )


def _kinds(gap: TypeGap) -> str:
    if not gap.causes:
        return ""
    parts = []
    for model, found in gap.causes.items():
        after = f", after {gap.cause_horizon_s[model]:g} s"
        rows = [
            (
                Html(f"<strong>{text(cause.kind)}</strong>") if cause.named else cause.kind,
                cause.words,
                f"{100 * cause.explains:.1f} %",
                _NAMED if cause.named else pill(None),
            )
            for cause in found
        ]
        heads = ("kind", "description", "explains", "")
        parts.append(f"<h3>{text(model + after)}</h3>" + table(heads, rows, numbers=(2,)))
    how = (
        "each kind is the effect of a small change of one parameter on the same predictions, for positions and "
        "attitudes separately; reactions of the flight controller (to gusts, downwash, its trim) appear as drag, "
        "damping or trim"
        if gap.flown
        else "a wrong scale is proportional to the distance, a wrong lag or delay to changes of velocity, slip to "
        "distance times turn rate"
    )
    beside = "after the larger ones" if gap.flown else "in addition to the others"
    note = f"Least squares on the error: {how}. A kind explains a share of the squared error of its channel, {beside}."
    return paragraph(note) + "".join(parts)


def _where(gap: TypeGap) -> str:
    parts = [
        figure(
            gap_plots.state_plot(gap),
            "Above: every bin with enough starts. Below: along one quantity, with intervals.",
        )
    ]
    for model, state in gap.state.items():
        rows = [(cell.words, _spread(cell.median, 1e3), _spread(cell.ratio), f"{cell.count:,}") for cell in state.worst]
        if rows:
            parts.append(
                f"<h3>Worst regions, {text(model)}</h3>"
                + table(("where", "median [mm]", "times the median of all", "starts"), rows, numbers=(1, 2, 3))
            )
        else:
            parts.append(paragraph(f"{model}: no region is significantly worse than the whole."))
    return "".join(parts)


def _spread(interval: Interval, factor: float = 1.0) -> str:
    return f"{factor * interval.value:.1f} ({factor * interval.low:.1f} to {factor * interval.high:.1f})"


def _time(gap: TypeGap, replay: TypeReplay) -> str:
    valid = [out.windows.valid for out in replay.outs]
    at = int(np.argmax([sum(mask[h].sum() for mask in valid) * h for h in range(len(valid[0]))]))
    horizon = float(np.median(replay.outs[0].windows.end_s[at] - replay.outs[0].windows.start_s))
    errors = [{name: values[at] for name, values in own.items()} for own in replay.errors[gap.best]]
    times = [out.windows.start_s for out in replay.outs]
    return figure(
        gap_plots.time_plot(replay.names, times, errors, round(horizon, 1)),
        f"Signed error of the {gap.best} model; bands hold 80 % of the starts of a time bin.",
    )


def _latency(gap: TypeGap) -> str:
    rows = []
    for found in gap.latencies:
        real, low, high, model = (
            f"{1e3 * value:.0f}" for value in (found.real_s.value, found.real_s.low, found.real_s.high, found.model_s)
        )
        rows.append((found.robot, found.channel, real, f"{low} to {high}", model, f"{found.correlation:.2f}"))
    if not rows and not gap.causes:
        return ""
    if not rows:
        return paragraph("No stretch of the run has enough changes of command for an estimate.")
    what = (
        "Delay and lag of the rotors that explain most of the fast part of the rates (5 to 25 Hz)"
        if gap.flown
        else "The shift of best correlation between changes of the command and of the real velocity"
    )
    return paragraph(
        f"{what}, and the same estimate for the nominal model's response to the same commands. It contains delay "
        "and lag."
    ) + table(
        ("robot", "channel", "real [ms]", "95 %", "nominal model [ms]", "correlation"), rows, numbers=(2, 3, 4, 5)
    )


def _margins(gap: TypeGap) -> str:
    if not gap.margins:
        return ""
    rows = []
    for check in gap.margins:
        figures = (f"{value:.3g}" for value in (check.p50, check.p99, check.worst))
        limit, beyond = f"{check.limit:.3g} {check.unit}", f"{100 * check.beyond:.2f} %"
        within = pill(check.within, "within", "beyond")
        rows.append((check.model, check.term, check.what, limit, *figures, beyond, check.robot, within))
    note = (
        "Residuals of the run compared with the terms of the shield's margins for a robot file; for an identified "
        "file those that depend on identified parameters. Within means: in 99 % of the samples. A margin is for top "
        "speed, so a slow run has little information on it."
    )
    heads = ("file", "term", "residual", "covers", "p50", "p99", "worst", "beyond", "robot", "")
    return paragraph(note) + table(heads, rows, numbers=range(3, 8))


def _parameters(gap: TypeGap) -> str:
    names = list(dict.fromkeys(name for values in gap.parameters.values() for name in values))
    models = [model for model in gap.parameters if model != "dead reckoning"]
    rows = [
        (code(name), *(f"{gap.parameters[model].get(name, float('nan')):.4g}" for model in models)) for name in names
    ]
    return table(("parameter", *models), rows, numbers=range(1, len(models) + 1))


def _against(report: GapReport) -> str:
    if not report.against_name:
        return ""
    rows = [_change(row) for row in report.against]
    return (
        paragraph(comparison_text(report))
        + table(_CHANGE, [row for row in rows if row[0] == ALL], numbers=range(4, 7))
        + (
            details("By robot", table(_CHANGE, [row for row in rows if row[0] != ALL], numbers=range(4, 7)))
            if any(row[0] != ALL for row in rows)
            else ""
        )
    )


def _score(report: GapReport) -> str:
    rows = [(row.name, row.predicted, row.real, pill(row.agrees, "agrees", "differs")) for row in report.score.rows]
    return (table(("score", "predicted", "real", ""), rows) if rows else "") + paragraph(report.score.note)


def _next(report: GapReport) -> str:
    return table(("command", "purpose"), [(code(command), what) for command, what in next_steps(report)])


_NAMED = Html('<span class="pill warn">named</span>')
_CHANGE = ("robot", "channel", "horizon", "from, to", "median", "p90", "of the median", "significant")


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


def _cell(row: ErrorRow | None) -> object:
    if row is None:
        return None
    factor = SHOWN_UNITS[row.unit][1]
    return f"{_short(row.median.value * factor)} / {_short(row.p90.value * factor)}"


def _numbers(row: ErrorRow) -> tuple[str, ...]:
    unit, factor = SHOWN_UNITS[row.unit]
    spans = [
        f"{_short(i.value * factor)} ({_short(i.low * factor)} to {_short(i.high * factor)})"
        for i in (row.median, row.p90)
    ]
    return (*spans, f"{factor * row.bias:+.2f}", unit)


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"
