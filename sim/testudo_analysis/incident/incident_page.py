"""The page of a run's incidents: self-contained, like the report of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from testudo_analysis.incident.incident import Incident, IncidentKind, IncidentThresholds
from testudo_analysis.incident.incident_plots import incident_plot, timeline_plot
from testudo_analysis.incident.incident_replay import IncidentReplay
from testudo_analysis.incident.incident_tables import chosen
from testudo_analysis.replay.variants import VariantOutcome
from testudo_analysis.report.html_markup import Html, details, facts, figure, paragraph, pill, table, text
from testudo_hardware.errors import TestudoError
from testudo_runs.alignment import TeamRecording
from testudo_runs.progress_bar import Share, quiet

PAGE = "incidents.html"
_SHOWN = 12
"""Of each kind, before the rest is folded away."""


def write_page(
    recording: TeamRecording,
    incidents: Sequence[Incident],
    aftermaths: Sequence[IncidentReplay],
    bounds: IncidentThresholds,
    folder: Path,
    share: Share = quiet,
) -> Path:
    """Write the page into a folder and return its path; ``share`` is told the share that is done.

    Raises:
        TestudoError: it cannot be written.
    """
    file = folder / PAGE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(page(recording, incidents, aftermaths, bounds, share), encoding="utf-8")
    except OSError as error:
        raise TestudoError(f"--out {folder}: cannot be written: {error.strerror}") from error
    return file


def page(
    recording: TeamRecording,
    incidents: Sequence[Incident],
    aftermaths: Sequence[IncidentReplay],
    bounds: IncidentThresholds,
    share: Share = quiet,
) -> str:
    """Return the page; ``share`` is told the share that is done."""
    style = (resources.files("testudo_analysis.report") / "page.css").read_text(encoding="utf-8")
    title = f"Incidents of {'/'.join(recording.folder.parts[-2:])}"
    parts = [_section("timeline", "Timeline", _timeline(recording, incidents, bounds))]
    for k, item in enumerate(aftermaths, 1):
        share(k / (len(aftermaths) + 1))
        parts.append(
            _section(f"worst-{k}", f"{item.incident.kind} at {item.incident.at_s:.1f} s", _aftermath(item, bounds))
        )
    parts.append(_section("all", "All incidents", _all(incidents)))
    begin, end = recording.span_s
    subtitle = f"{len(recording.robots)} {recording.spec.name}, {end - begin:.1f} s: {', '.join(recording.names)}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(title)}</title><style>{style}</style></head><body><header><div><h1>{text(title)}</h1>"
        f"<p>{text(subtitle)}</p></div>{_banner(incidents)}</header><main>{''.join(parts)}</main></body></html>\n"
    )


def _section(anchor: str, title: str, content: str) -> str:
    return f'<section id="{anchor}"><h2>{text(title)}</h2>{content}</section>'


def _banner(incidents: Sequence[Incident]) -> str:
    touched = sum(item.kind is IncidentKind.CONTACT for item in incidents)
    word = f"{touched} contact{'' if touched == 1 else 's'}"
    return (
        f'<div class="banner {"bad" if touched else "good"}"><strong>{word}</strong>'
        f"{len(incidents)} incident{'' if len(incidents) == 1 else 's'}</div>"
    )


def _timeline(recording: TeamRecording, incidents: Sequence[Incident], bounds: IncidentThresholds) -> str:
    counts = Counter(item.kind for item in incidents)
    values = {str(kind): counts[kind] for kind in IncidentKind if counts[kind]}
    content = facts(values) if values else paragraph("Nothing went wrong in this run, as far as it was recorded.")
    content += figure(timeline_plot(recording, incidents), "When what happened.")
    content += paragraph(
        f"Two centres are near below {bounds.near_m:.3f} m (contact at {2 * recording.spec.body_radius_m:.3f} m)."
    )
    return content + "".join(paragraph(f"Warning: {line}") for line in recording.warnings)


def _aftermath(item: IncidentReplay, bounds: IncidentThresholds) -> str:
    incident = item.incident
    rows = [_row(outcome) for outcome in incident.aftermath]
    columns = (
        "From there on",
        "Worlds that touch",
        "Least distance",
        "Off at the end",
        "All arrive",
        "Shield acts",
        "Braked",
    )
    caption = (
        f"The team goes on from {incident.from_s:.1f} s: what happened (solid), and the world with the dynamics "
        "as described; the bands hold all drawn worlds. Off: how far the robots end from where they really "
        "were."
    )
    return (
        f"<p><strong>{text(incident.what)}.</strong></p>"
        + paragraph(f"Likely cause: {incident.cause}.")
        + figure(incident_plot(item, bounds), caption)
        + table(columns, rows, numbers=range(1, 7))
    )


def _row(outcome: VariantOutcome) -> tuple[object, ...]:
    touched = f"{outcome.touched} of {outcome.worlds}"
    least = None if outcome.least_separation_m is None else f"{1e3 * outcome.least_separation_m:.0f} mm"
    arrived = None if outcome.arrived is None else f"{outcome.arrived} of {outcome.worlds}"
    off = None if outcome.off_m is None else f"{1e3 * outcome.off_m:.0f} mm"
    return (
        outcome.way,
        pill(not outcome.touched, touched, touched),
        least,
        off,
        arrived,
        _share(outcome.interventions),
        _share(outcome.braked),
    )


def _share(value: float | None) -> str | None:
    return None if value is None else f"{100 * value:.0f} %"


def _all(incidents: Sequence[Incident]) -> str:
    if not incidents:
        return paragraph("None.")
    columns = ("No.", "Time", "Kind", "What", "Likely cause")
    picked = chosen(incidents, _SHOWN, {})
    rest = [k for k in range(len(incidents)) if k not in set(picked)]
    content = table(columns, [_line(k, incidents[k]) for k in picked], numbers=(0, 1))
    if rest:
        content += details(
            f"{len(rest)} more, less bad of their kinds",
            table(columns, [_line(k, incidents[k]) for k in rest], numbers=(0, 1)),
        )
    return content


def _line(number: int, item: Incident) -> tuple[object, ...]:
    mark = {IncidentKind.CONTACT: "bad", IncidentKind.NEAR_CONTACT: "warn", IncidentKind.DEADLOCK: "warn"}.get(
        item.kind, "none"
    )
    kind = Html(f'<span class="pill {mark}">{text(item.kind)}</span>')
    return (number, f"{item.at_s:.2f} s", kind, item.what, item.cause)
