"""An identification as tables for the terminal."""

from __future__ import annotations

import math
from typing import Any

from rich.table import Table

from testudo_analysis.identify.estimation.identification_result import HALF, ROBOTS, Estimate, HeldOut, Identification
from testudo_deploy.commands.report import facts, table

_SHOWN = {"m": ("mm", 1e3), "rad": ("deg", 180 / math.pi)}
_SPLITS = {HALF: "fitted to the first half, measured on the second", ROBOTS: "fitted to the other robots"}


def identification_tables(found: Identification) -> tuple[Table, ...]:
    """Return parameters, what is missing, and the held-out errors at the longest horizon."""
    names = ("run", "recorded", "duration_s", "fitted", "left_out", "reference", "windows", "delay_at_start_s")
    head = {name: found.facts[name] for name in names if found.facts.get(name)}
    tables = [facts(f"Identified: {found.robot_type}", head), _parameters(found)]
    missing = [(one.key, one.note) for one in found.estimates if not one.determined]
    if missing:
        tables.append(
            table("Not determined by this run: the robot file keeps what it has", ("parameter", "why"), missing)
        )
    for split, words in _SPLITS.items():
        rows = [row for row in found.held_out if row.split == split]
        if rows:
            tables.append(_held_out(found, rows, words))
    if found.facts.get("residual"):
        tables.append(_residual(found.facts["residual"]))
    return tuple(tables)


def _parameters(found: Identification) -> Table:
    rows = [
        (one.key, f"{one.value:.4g}", f"[{one.low:.4g}, {one.high:.4g}]", one.unit, _robots(one))
        for one in found.estimates
        if one.determined
    ]
    return table("Parameters with 95 % intervals", ("parameter", "value", "interval", "unit", "robots"), rows)


def _robots(estimate: Estimate) -> str:
    return ", ".join(f"{value:.4g}" for value, _, _ in estimate.by_robot.values())


def _held_out(found: Identification, rows: list[HeldOut], words: str) -> Table:
    horizon = max(row.horizon_s for row in rows)
    last = [row for row in rows if row.horizon_s == horizon]
    shown = []
    for row in last:
        unit, factor = _SHOWN[row.unit]
        cells = [f"{q.median * factor:.2f} / {q.p90 * factor:.2f}" for q in (row.baseline, row.nominal, row.identified)]
        median, p90 = row.reduction()
        shown.append((row.robot, f"{row.channel} ({unit})", *cells, f"{-median:+.1%} / {-p90:+.1%}"))
    for channel in dict.fromkeys(row.channel for row in last):
        median, p90 = found.reductions(channel, horizon, last[0].split)
        shown.append(("median of robots", channel, "", "", "", f"{-median:+.1%} / {-p90:+.1%}"))
    return table(
        f"Error after {horizon:g} s, {words}: median / p90",
        ("robot", "channel", "dead reckoning", "robot file", "identified", "against dead reckoning"),
        shown,
    )


def _residual(facts_: dict[str, Any]) -> Table:
    """Return what a residual model is worth, and the verdict."""
    shares = [
        (_SPLITS[split], f"{-median:+.1%}", f"{-p90:+.1%}") for split, (median, p90) in facts_["lower_by"].items()
    ]
    needed = f"{facts_['worth']:.0%}"
    verdict = (
        f"it would help by {needed} or more, but simulation has no place for it: not used"
        if facts_["helps"]
        else f"it does not lower all of them by {needed}: not kept"
    )
    return table(
        f"Residual model, position against the identified model: {verdict}", ("measured", "median", "p90"), shares
    )
