"""Tables and the plot of a forecast and its score."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from rich.markup import escape
from rich.table import Table

from testudo_analysis.forecast.forecast import Forecast, QuantityForecast
from testudo_analysis.forecast.ledger import FORECAST, LedgerEntry
from testudo_analysis.forecast.outcomes import INTERVENTIONS, LATENCY, SEPARATION, TIME_TO_GOAL, base_name
from testudo_analysis.forecast.past_runs import FEWEST_RUNS
from testudo_analysis.forecast.score_forecast import ForecastScore, ScoredQuantity
from testudo_analysis.forecast.scoring import LEVELS
from testudo_analysis.report.plot_style import BAD, FAINT, GOOD, INK, LIGHT, PlotImage, drawing, picture

_TITLES = {
    TIME_TO_GOAL: ("time to goal [s]", 1.0),
    SEPARATION: ("separation [m]", 1.0),
    INTERVENTIONS: ("interventions [%]", 100.0),
    LATENCY: ("latency [ms]", 1000.0),
}


def forecast_table(forecast: Forecast) -> Table:
    """Return the table of a forecast."""
    inputs = forecast.inputs
    table = Table(title=f"The next run, from {inputs.fleets} sampled fleets")
    for name in ("quantity", "median", "80 %", "95 %", "nominal", "last"):
        table.add_column(name, justify="left" if name == "quantity" else "right", no_wrap=True)
    for one in forecast.quantities:
        nominal = float(np.mean(one.nominal))
        before = "" if one.last is None else _text(one, one.last)
        if one.is_chance:
            table.add_row(_label(one), f"{one.mean:.1%}", "", "", f"{nominal:.1%}", "yes" if one.last == 1 else before)
            continue
        spans = ["-".join(_text(one, end) for end in one.interval(level)) for level in LEVELS]
        table.add_row(_label(one), _text(one, one.median), *spans, _text(one, nominal), before)
    return table


def past_text(forecast: Forecast) -> str:
    """Return what past runs showed beyond their fleets, which the forecast contains."""
    found = forecast.inputs.past
    if not found:
        return f"past runs: fewer than {FEWEST_RUNS} of this policy and length, so that the fleets alone scatter"
    parts = [f"{_TITLES[one.kind][0].partition(' [')[0]} {one.bias:+.2f} ± {one.deviation:.2f}" for one in found]
    own = f"{found[0].runs} past runs against their own fleets, beyond the scatter of these, in their deviations: "
    held, left = forecast.inputs.past_coverage, ""
    if held.numbers:
        left = f"; each left out once: {held.in_80} of {held.numbers} numbers within 80 %, {held.in_95} within 95 %"
    return own + ", ".join(parts) + left


def score_table(score: ForecastScore) -> Table:
    """Return the table of a score."""
    table = Table(title=f"Forecast {score.forecast_sha256[:12]} against {score.run}")
    for name in ("quantity", "observed", "in 80 %", "in 95 %", "CRPS", "nominal"):
        table.add_column(name, justify="left" if name == "quantity" else "right", no_wrap=True)
    for one in score.quantities:
        shown = ("yes" if one.observed else "no") if one.is_chance else _text(one, one.observed)
        inside = ["" if not one.counts else "yes" if held else "[red]no[/]" for held in (one.in_80, one.in_95)]
        table.add_row(_label(one), shown, *inside, f"{one.crps:.2g}", f"{one.crps_nominal:.2g}")
    return table


def ledger_table(entries: Sequence[LedgerEntry]) -> Table:
    """Return the table of a ledger."""
    table = Table(title="Ledger of forecasts")
    for name in ("", "when, UTC", "what", "forecast", "of", "in 80 %", "CRPS ratio"):
        table.add_column(name, no_wrap=True)
    for number, entry in enumerate(entries, start=1):
        values = entry.content
        when = str(values["made"])[5:16].replace("T", " ")
        row = (str(number), when, entry.kind, str(values["forecast"])[:8])
        if entry.kind == FORECAST:
            table.add_row(*row, f"{values['fleets']} fleets", "", "")
            continue
        found = values["summary"]
        coverage, ratio = found["coverage_80"], found["crps_over_nominal"]
        shown = ("-" if coverage is None else f"{coverage:.0%} of {found['covered_of']}", _ratio(ratio))
        table.add_row(*row, "/".join(Path(values["run"]).parts[-2:]), *shown)
    return table


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def forecast_plot(quantities: Sequence[QuantityForecast], observed: Mapping[str, float]) -> PlotImage:
    """Return intervals as bars, the nominal file as a line, and what was observed as points, by kind of quantity."""
    kinds = [kind for kind in _TITLES if any(base_name(one.name) == kind for one in quantities)]
    rows = [[one for one in quantities if base_name(one.name) == kind] for kind in kinds]
    heights = [0.55 + 0.3 * len(of) for of in rows]
    with drawing(6.4, 0.4 + sum(heights)) as figure:
        every = np.atleast_1d(figure.subplots(len(kinds), 1, height_ratios=heights)) if kinds else []
        for axes, kind, of in zip(every, kinds, rows, strict=True):
            title, factor = _TITLES[kind]
            axes.use_sticky_edges = False  # bars keep clear of the frame
            for level, one in enumerate(reversed(of)):
                _draw(axes, level, one, factor, observed.get(one.name))
            names = [one.name.partition(".")[2] or "team" for one in reversed(of)]
            axes.set_yticks(range(len(of)), names)
            axes.set_ylim(-0.6, len(of) - 0.4)
            axes.set_title(title)
        text = "Intervals of 80 % and 95 % of each forecast quantity"
        return picture(figure, f"{text}, with what the run showed" if observed else text)


def _draw(axes: Axes, level: int, one: QuantityForecast, factor: float, value: float | None) -> None:
    """Draw one quantity in its row."""
    (low_80, high_80), (low_95, high_95) = ([factor * end for end in one.interval(share)] for share in LEVELS)
    axes.barh(level, high_95 - low_95, left=low_95, height=0.34, color=LIGHT)
    axes.barh(level, high_80 - low_80, left=low_80, height=0.34, color="#9db4c8")
    middle, nominal = factor * one.median, factor * float(np.mean(one.nominal))
    axes.plot([middle] * 2, [level - 0.17, level + 0.17], color=INK)
    axes.plot([nominal] * 2, [level - 0.26, level + 0.26], color=FAINT, linestyle=":")
    if value is not None:
        colour = GOOD if low_95 <= factor * value <= high_95 else BAD
        axes.plot(factor * value, level, "o", color=colour, markersize=5)


def _label(one: QuantityForecast | ScoredQuantity) -> str:
    kind, _, robot = one.name.partition(".")
    return escape((f"{robot} " if robot else "") + (_TITLES[kind][0] if kind in _TITLES else kind))


def _text(one: QuantityForecast | ScoredQuantity, value: float) -> str:
    """Return a value in the unit of its label."""
    if one.is_chance:
        return "yes" if value else "no"
    kind = base_name(one.name)
    return f"{value * _TITLES[kind][1]:.{3 if kind == SEPARATION else 1}f}"
