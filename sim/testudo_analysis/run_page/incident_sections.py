"""What else could have followed from the worst incidents: counterfactual outcomes with the error of the model."""

from collections.abc import Sequence

import numpy as np

from testudo_analysis.incident.incident_replay import IncidentReplay
from testudo_analysis.replay.variants import VariantOutcome, VariantPaths, least_distances
from testudo_analysis.run_page.html_markup import Html, chart, paragraph, pill, table, text
from testudo_analysis.run_page.page_data import CANNOT_TELL, ChartPanel, Curve, PageSection
from testudo_analysis.run_page.run_events import claim_of, doubt_of

_MOST_POINTS = 240
_COLUMNS = ("variant", "worlds with contact", "least distance", "drift of the model", "can it be told", "all arrive",
            "shield acts", "braked")  # fmt: skip


def incident_sections(aftermaths: Sequence[IncidentReplay]) -> list[PageSection]:
    """Return one section with a table and a chart of distances for each incident; none without counterfactuals."""
    if not aftermaths:
        return []
    parts, charts = [], {}
    for k, item in enumerate(aftermaths):
        incident = item.incident
        charts[f"aftermath{k}"] = (_distances(item),)
        rows = [_row(outcome, item) for outcome in incident.aftermath]
        parts.append(
            f"<h3>{text(incident.kind)} at {incident.at_s:.1f} s: {text(claim_of(item.recording, incident))}</h3>"
            + paragraph(f"Simulated from {incident.from_s or 0.0:.1f} s on.")
            + table(_COLUMNS, rows, numbers=(1, 2, 3, 5, 6, 7))
            + chart(f"aftermath{k}")
        )
    note = (
        "Drift of the model: distance of the simulated robots from their recorded places at the end, the least of the "
        "variants. A least distance nearer to contact than this drift cannot be told "
        "from a contact."
    )
    return [PageSection("aftermath", "What else could have followed", paragraph(note) + "".join(parts), charts)]


def _row(outcome: VariantOutcome, item: IncidentReplay) -> tuple[object, ...]:
    arrived = None if outcome.arrived is None else f"{outcome.arrived} of {outcome.worlds}"
    least, drift = outcome.least_separation_m, _drift_m(item)
    return (
        outcome.way,
        _touched(outcome, item),
        _millimetres(least),
        "-" if outcome is item.incident.aftermath[0] else _millimetres(drift),
        _told(outcome, item, drift),
        arrived,
        _share(outcome.interventions),
        _share(outcome.braked),
    )


def _touched(outcome: VariantOutcome, item: IncidentReplay) -> Html:
    words = f"{outcome.touched} of {outcome.worlds}"
    is_recorded = outcome is item.incident.aftermath[0]
    if outcome.touched and is_recorded and CANNOT_TELL in doubt_of(item.recording, item.incident):
        return Html(f'<span class="pill doubt">▲ {text(words)}</span>')
    return pill(not outcome.touched, words, words)


def _drift_m(item: IncidentReplay) -> float | None:
    """Return the drift of the model [m]: the least of the variants, as others also show the effect of the variant."""
    known = [outcome.off_m for outcome in item.incident.aftermath[1:] if outcome.off_m is not None]
    return min(known, default=None)


def _told(outcome: VariantOutcome, item: IncidentReplay, drift: float | None) -> object:
    if outcome is item.incident.aftermath[0]:
        return doubt_of(item.recording, item.incident) or "recorded"
    if drift is None or outcome.least_separation_m is None:
        return Html('<span class="pill doubt">▲ drift unknown</span>')
    away = abs(outcome.least_separation_m - 2 * item.recording.spec.body_radius_m)
    return Html('<span class="pill good">✔ yes</span>' if away >= drift else '<span class="pill doubt">▲ no</span>')


def _distances(item: IncidentReplay) -> ChartPanel:
    curves = [_curve(item, outcome, paths) for outcome, paths in item.variants]
    radius = item.recording.spec.body_radius_m
    ends = [curve.x[0] for curve in curves], [curve.x[-1] for curve in curves]
    span = (min(ends[0]), max(ends[1]))
    contact = Curve("contact", span, (2e3 * radius, 2e3 * radius), style="dashed")
    about = "Line: first world, with the dynamics of the robot file. Band: all worlds."
    return ChartPanel("Least distance of two centres", "s since the start of the run", "mm", (*curves, contact), about)


def _curve(item: IncidentReplay, outcome: VariantOutcome, paths: VariantPaths) -> Curve:
    distance = 1e3 * least_distances(paths.position_world)
    period = item.recording.spec.control_period_s
    times = (item.incident.from_s or 0.0) + period * (1 + np.arange(len(distance)))
    picked = slice(None, None, max(1, len(times) // _MOST_POINTS))
    low, high = distance.min(axis=1)[picked], distance.max(axis=1)[picked]
    band = (tuple(low.tolist()), tuple(high.tolist())) if distance.shape[1] > 1 else ((), ())
    return Curve(outcome.way, tuple(times[picked].tolist()), tuple(distance[picked, 0].tolist()), *band)


def _millimetres(value: float | None) -> str | None:
    return None if value is None else f"{1e3 * value:.0f} mm"


def _share(value: float | None) -> str | None:
    return None if value is None else f"{100 * value:.0f} %"
