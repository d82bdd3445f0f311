"""Incidents as a table for the terminal."""

from collections import Counter
from collections.abc import Sequence

from rich import box
from rich.markup import escape
from rich.table import Table

from testudo_analysis.incident.incident import Incident, IncidentKind

_COLOURS = {IncidentKind.CONTACT: "red", IncidentKind.NEAR_CONTACT: "yellow", IncidentKind.DEADLOCK: "yellow"}


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
