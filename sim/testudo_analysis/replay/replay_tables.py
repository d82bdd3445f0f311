"""Replay results as tables for the terminal; lengths in millimetres, angles in degrees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from testudo_analysis.replay.gap_names import ALL_ROBOTS
from testudo_analysis.replay.reinference_checks import Reinference

if TYPE_CHECKING:  # JAX and SciPy take seconds to start, and re-inference needs neither
    from testudo_analysis.replay.open_loop import OpenLoopGap
    from testudo_analysis.replay.variants import VariantOutcome

SHOWN_UNITS = {"m": ("mm", 1e3), "rad": ("deg", 180 / math.pi), "m/s": ("mm/s", 1e3)}
"""By SI unit: the unit that is shown, and its factor."""


def reinference_tables(result: Reinference) -> list[Table]:
    """Return one table by robot and one by field."""
    robots = _table("Re-inference by robot")
    for name in ("robot", "ticks", "lost", "decisions", "inferred"):
        robots.add_column(name, justify="left" if name == "robot" else "right")
    robots.add_column("skipped", overflow="fold")
    robots.add_column("largest error", justify="right")
    for robot in result.robots:
        skipped = ", ".join(f"{reason} {count}" for reason, count in robot.skipped.items())
        counts = (robot.ticks, robot.lost, robot.decisions, robot.reinferred)
        robots.add_row(robot.robot, *map(str, counts), skipped or "-", _error(robot.error, result.tolerance))
    fields = _table("Re-inference by quantity")
    fields.add_column("quantity")
    fields.add_column("compared with", overflow="fold")
    fields.add_column("ticks", justify="right")
    fields.add_column("largest error", justify="right")
    for check in result.fields:
        error = _error(check.error, result.tolerance) if check.compared else "-"
        fields.add_row(check.name, check.what, str(check.compared), error)
    return [robots, fields]


def gap_tables(gap: OpenLoopGap) -> list[Table]:
    """Return one table by channel, robots pooled, and one of the position by robot."""
    channels = _table(f"Open-loop error against {gap.reference}, all robots: median / p90")
    channels.add_column("channel")
    robots = _table("Open-loop position error by robot (mm): median / p90")
    robots.add_column("robot")
    for horizon in gap.horizons_s:
        channels.add_column(f"{horizon:g} s", justify="right")
        robots.add_column(f"{horizon:g} s", justify="right")
    for channel in gap.channels:
        unit = next(row.unit for row in gap.rows if row.channel == channel)
        cells = [_quantiles(gap, channel, horizon, ALL_ROBOTS) for horizon in gap.horizons_s]
        channels.add_row(f"{channel} ({SHOWN_UNITS[unit][0]})", *cells)
    channels.add_row("distance travelled (mm)", *(_travel(gap, horizon) for horizon in gap.horizons_s))
    for robot in gap.robots:
        cells = [_quantiles(gap, "position", horizon, robot) for horizon in gap.horizons_s]
        robots.add_row(robot, *cells)
    return [channels, robots]


def counterfactual_tables(outcomes: Sequence[VariantOutcome]) -> list[Table]:
    """Return one table for each start time: the outcome of each variant."""
    return [
        _counterfactual_table(time_s, [item for item in outcomes if item.from_s == time_s])
        for time_s in sorted({item.from_s for item in outcomes})
    ]


def _counterfactual_table(time_s: float, outcomes: Sequence[VariantOutcome]) -> Table:
    horizon_s = max(item.horizon_s for item in outcomes)
    table = _table(f"From {time_s:.2f} s on, {horizon_s:.1f} s ahead (mm, s)")
    table.add_column("variant", no_wrap=True)
    goals, tasks = (any(getattr(item, name) is not None for item in outcomes) for name in ("arrived", "task_return"))
    columns = ["touch", "least", "off", *(["arrive", "after"] if goals else []), "acts", "brakes"]
    for name in [*columns, *(["return"] if tasks else [])]:
        table.add_column(name, justify="right", no_wrap=True)
    for item in outcomes:
        table.add_row(item.way, *_counterfactual_cells(item, goals=goals, tasks=tasks))
    return table


def _counterfactual_cells(item: VariantOutcome, *, goals: bool, tasks: bool) -> list[str]:
    colour = "red" if item.touched else "green"
    arrived = "-" if item.arrived is None else f"{item.arrived} of {item.worlds}"
    return [
        f"[{colour}]{item.touched} of {item.worlds}[/]",
        "-" if item.least_separation_m is None else f"{item.least_separation_m * 1e3:.0f}",
        "-" if item.off_m is None else f"{item.off_m * 1e3:.0f}",
        *([arrived, "-" if item.arrival_s is None else f"{item.arrival_s:.1f}"] if goals else []),
        _share(item.interventions),
        _share(item.braked),
        *(["-" if item.task_return is None else f"{item.task_return:.2f}"] if tasks else []),
    ]


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)


def _quantiles(gap: OpenLoopGap, channel: str, horizon_s: float, robot: str) -> str:
    row = gap.find(channel, horizon_s, robot)
    if row is None:
        return "-"
    factor = SHOWN_UNITS[row.unit][1]
    return f"{_short(row.errors.median * factor)} / {_short(row.errors.p90 * factor)}"


def _travel(gap: OpenLoopGap, horizon_s: float) -> str:
    row = gap.find("position", horizon_s)
    return _short(row.travel_m * 1e3) if row else "-"


def _short(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _error(value: float, tolerance: float) -> str:
    colour = "green" if value <= tolerance else "red"
    return f"[{colour}]{value:.1e}[/]"
