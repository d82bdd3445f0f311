"""Incidents for people: the page of a run, self-contained, and the table for the terminal."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.markup import escape
from rich.table import Table

from testudo_analysis.incident.incident import Incident, IncidentKind, IncidentThresholds
from testudo_analysis.incident.incident_plots import incident_plot, timeline_plot
from testudo_analysis.incident.incident_replay import IncidentReplay
from testudo_analysis.replay.variants import VariantOutcome
from testudo_analysis.report.html_markup import Html, details, document, facts, figure, paragraph, pill, table, text
from testudo_hardware.errors import TestudoError
from testudo_runs.alignment import TeamRecording
from testudo_runs.progress_bar import Share, quiet

PAGE = "incidents.html"
_SHOWN = 12  # incidents of each kind outside the collapsed part
_COLOURS = {IncidentKind.CONTACT: "red", IncidentKind.NEAR_CONTACT: "yellow", IncidentKind.DEADLOCK: "yellow"}
_MARKS = {IncidentKind.CONTACT: "bad", IncidentKind.NEAR_CONTACT: "warn", IncidentKind.DEADLOCK: "warn"}


def incident_table(incidents: Sequence[Incident], shown: int) -> Table:
    """Return the timeline with at most ``shown`` incidents of each kind; `--incident` takes the number."""
    made = Table(title=f"{len(incidents)} incidents", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for name in ("no.", "time (s)"):
        made.add_column(name, justify="right", no_wrap=True)
    made.add_column("what", overflow="fold", ratio=1)
    made.add_column("likely cause", overflow="fold", ratio=1)
    picked = chosen(incidents, shown)
    for number in picked:
        item = incidents[number]
        what = f"[{_COLOURS.get(item.kind, 'cyan')}]{item.kind}[/] {escape(item.what)}"
        made.add_row(str(number), f"{item.at_s:.2f}", what, escape(item.cause))
    left_out = Counter(item.kind for k, item in enumerate(incidents) if k not in picked)
    more = ", ".join(f"{left_out[kind]} x {kind}" for kind in IncidentKind if left_out[kind])
    if more:
        made.caption = f"and {more}; --shown shows more of each kind, --json all"
        made.caption_justify = "left"
    return made


def chosen(incidents: Sequence[Incident], shown: int) -> list[int]:
    """Return the numbers of the worst ``shown`` incidents of each kind, in the order of time."""
    picked: list[int] = []
    for kind in IncidentKind:
        numbers = [k for k, item in enumerate(incidents) if item.kind is kind]
        picked += sorted(numbers, key=lambda k: incidents[k].weight)[:shown]
    return sorted(picked)


def write_page(
    recording: TeamRecording,
    incidents: Sequence[Incident],
    aftermaths: Sequence[IncidentReplay],
    bounds: IncidentThresholds,
    folder: Path,
    share: Share = quiet,
) -> Path:
    """Write the page into a folder and return its path; ``share`` is called with the completed fraction.

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
    """Return the page; ``share`` is called with the completed fraction."""
    sections = [("timeline", "Timeline", _timeline(recording, incidents, bounds))]
    for k, item in enumerate(aftermaths, 1):
        share(k / (len(aftermaths) + 1))
        title = f"{item.incident.kind} at {item.incident.at_s:.1f} s"
        sections.append((f"worst-{k}", title, _aftermath(item, bounds)))
    sections.append(("all", "All incidents", _all(incidents)))
    begin, end = recording.span_s
    subtitle = f"{len(recording.robots)} {recording.spec.name}, {end - begin:.1f} s: {', '.join(recording.names)}"
    touched = sum(item.kind is IncidentKind.CONTACT for item in incidents)
    banner = (
        f'<div class="banner {"bad" if touched else "good"}"><strong>{touched} contact{"" if touched == 1 else "s"}'
        f"</strong>{len(incidents)} incident{'' if len(incidents) == 1 else 's'}</div>"
    )
    return document(f"Incidents of {'/'.join(recording.folder.parts[-2:])}", subtitle, sections, banner=banner)


def _timeline(recording: TeamRecording, incidents: Sequence[Incident], bounds: IncidentThresholds) -> str:
    counts = Counter(item.kind for item in incidents)
    values = {str(kind): counts[kind] for kind in IncidentKind if counts[kind]}
    content = facts(values) if values else paragraph("No incidents found in the recording.")
    content += figure(timeline_plot(recording, incidents), "Incidents over time.")
    content += paragraph(
        f"Two centres are near below {bounds.near_m:.3f} m (contact at {2 * recording.spec.body_radius_m:.3f} m)."
    )
    return content + "".join(paragraph(f"Warning: {line}") for line in recording.warnings)


def _aftermath(item: IncidentReplay, bounds: IncidentThresholds) -> str:
    incident = item.incident
    columns = ("Variant", "Worlds with contact", "Least distance", "Deviation at the end", "All arrive",
               "Shield acts", "Braked")  # fmt: skip
    caption = (
        f"From {incident.from_s:.1f} s on: the recording (solid), and the simulated world with the dynamics of the "
        "robot file; the bands hold all random worlds. Deviation: distance from the recorded position."
    )
    return (
        f"<p><strong>{text(incident.what)}.</strong></p>"
        + paragraph(f"Likely cause: {incident.cause}.")
        + figure(incident_plot(item, bounds), caption)
        + table(columns, [_row(outcome) for outcome in incident.aftermath], numbers=range(1, 7))
    )


def _row(outcome: VariantOutcome) -> tuple[object, ...]:
    touched = f"{outcome.touched} of {outcome.worlds}"
    lengths = (outcome.least_separation_m, outcome.off_m)
    least, off = (None if value is None else f"{1e3 * value:.0f} mm" for value in lengths)
    arrived = None if outcome.arrived is None else f"{outcome.arrived} of {outcome.worlds}"
    shares = (outcome.interventions, outcome.braked)
    acts, braked = (None if value is None else f"{100 * value:.0f} %" for value in shares)
    return outcome.way, pill(not outcome.touched, touched, touched), least, off, arrived, acts, braked


def _all(incidents: Sequence[Incident]) -> str:
    if not incidents:
        return paragraph("None.")
    picked = chosen(incidents, _SHOWN)
    rest = [k for k in range(len(incidents)) if k not in set(picked)]

    def shown(numbers: Sequence[int]) -> str:
        rows = [_line(k, incidents[k]) for k in numbers]
        return table(("No.", "Time", "Kind", "What", "Likely cause"), rows, numbers=(0, 1))

    return shown(picked) + (details(f"{len(rest)} more, less severe of their kinds", shown(rest)) if rest else "")


def _line(number: int, item: Incident) -> tuple[object, ...]:
    kind = Html(f'<span class="pill {_MARKS.get(item.kind, "none")}">{text(item.kind)}</span>')
    return number, f"{item.at_s:.2f} s", kind, item.what, item.cause
