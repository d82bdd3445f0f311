"""Incidents as tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.markup import escape
from rich.table import Table

from testudo_analysis.incident.incident import Incident, IncidentKind

COLOURS = {IncidentKind.CONTACT: "red", IncidentKind.NEAR_CONTACT: "yellow", IncidentKind.DEADLOCK: "yellow"}


def incident_table(incidents: Sequence[Incident], shown: int) -> Table:
    """Return the timeline, with at most ``shown`` of each kind; the number is what `--incident` takes."""
    table = Table(title=f"{len(incidents)} incidents", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for name in ("no.", "time (s)"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("what", overflow="fold", ratio=1)
    table.add_column("likely cause", overflow="fold", ratio=1)
    left_out: dict[IncidentKind, int] = {}
    for number in chosen(incidents, shown, left_out):
        item = incidents[number]
        colour = COLOURS.get(item.kind, "cyan")
        table.add_row(
            str(number), f"{item.at_s:.2f}", f"[{colour}]{item.kind}[/] {escape(item.what)}", escape(item.cause)
        )
    more = ", ".join(f"{count} x {kind}" for kind, count in left_out.items())
    if more:
        table.caption = f"and {more}; --shown shows more of each kind, --json all"
        table.caption_justify = "left"
    return table


def chosen(incidents: Sequence[Incident], shown: int, left_out: dict[IncidentKind, int]) -> list[int]:
    """Return the numbers of the worst incidents of each kind, in the order of time; ``left_out`` counts the others."""
    picked: list[int] = []
    for kind in IncidentKind:
        numbers = sorted(
            (k for k, item in enumerate(incidents) if item.kind is kind), key=lambda k: incidents[k].weight
        )
        picked += numbers[:shown]
        if len(numbers) > shown:
            left_out[kind] = len(numbers) - shown
    return sorted(picked)
