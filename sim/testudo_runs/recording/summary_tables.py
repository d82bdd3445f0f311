"""What a person sees of a recording: series with rates, gaps and clocks, damage and choices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.table import Table

from testudo_deploy.commands.report import facts, table
from testudo_runs.recording.recording import Recording
from testudo_runs.recording.statistics import SeriesFacts

_NANO = 1_000_000_000
_CLOCK_FROM_NS = 100_000_000 * _NANO
"""Stamps below are of a clock since boot."""
_GAPS = 10
_WARNINGS = 30

SeriesByRobot = Mapping[str, Mapping[str, SeriesFacts]]


def head_table(recording: Recording, kind: str, where: str, **more: object) -> Table:
    """Return what the recording is as a whole."""
    return facts(
        "Recording",
        {
            "source": where,
            "kind": kind,
            "start": start_text(recording.start_ns),
            "duration": f"{recording.duration_s:.3f} s",
            "robots": ", ".join(
                f"{name} ({robot.robot_type or 'type not known'})" for name, robot in recording.robots.items()
            )
            or "none",
            "samples": sum(len(series) for robot in recording.robots.values() for series in robot.series.values()),
            "damage": "none" if recording.complete else f"{len(recording.warnings)} kinds, below",
            **more,
        },
    )


def series_table(found: SeriesByRobot) -> Table:
    """Return one row for each series."""
    rows = [
        (
            robot,
            role,
            f"{one.samples:,}",
            _number(one.rate_hz, "{:.1f} Hz"),
            _number(one.mean_hz, "{:.1f} Hz"),
            f"{one.gaps}" + (f" over {one.gap_from_s:.2g} s" if one.gaps else ""),
            f"{one.longest_gap_s:.3f} s" if one.gaps else "",
            one.duplicates or "",
            f"{one.backward}, by up to {one.furthest_back_s:.3g} s" if one.backward else "",
            # an imported log knows no time of record: the stamp stands for it
            _number(one.delay_median_s if one.delay_p99_s else None, "{:.1f} ms", 1000.0),
            len(one.clock_jumps) or "",
            one.not_finite or "",
        )
        for robot, series in found.items()
        for role, one in series.items()
    ]
    columns = (
        "robot",
        "role",
        "samples",
        "rate",
        "mean",
        "gaps",
        "longest",
        "same stamp",
        "stamp goes back",
        "stamp to record",
        "clock jumps",
        "not finite",
    )
    shown = [k for k in range(len(columns)) if k < 6 or any(row[k] not in ("", "-") for row in rows)]
    return table("Series", [columns[k] for k in shown], [[row[k] for k in shown] for row in rows])


def trouble_tables(found: SeriesByRobot, steps: Sequence[Mapping[str, Any]] = ()) -> tuple[Table, ...]:
    """Return the longest gaps, and the moments at which a clock was set.

    Args:
        found: by robot and role.
        steps: of clocks that were set while bags were recorded, as the import noted them.
    """
    roles: dict[tuple[float, float, str], list[str]] = {}
    for robot, series in found.items():
        for role, one in series.items():
            for gap in one.worst_gaps:
                roles.setdefault((gap.length_s, gap.at_s, robot), []).append(role)
    gaps = sorted(roles.items(), reverse=True)
    jumps = [
        (robot, role, f"{jump.at_s:.3f} s", f"{jump.by_s:+.3f} s")
        for robot, series in found.items()
        for role, one in series.items()
        for jump in one.clock_jumps
    ]
    jumps += [
        (
            step["bag"],
            "cut there" if step["cut"] else "mended",
            f"{step['at_s']:.3f} s",
            f"{step['by_s']:+.3f} s, {step['whose']}",
        )
        for step in steps
    ]
    tables = []
    if gaps:
        tables.append(
            table(
                "Longest gaps",
                ("robot", "at", "length", "roles"),
                [
                    (robot, f"{at:.3f} s", f"{length:.3f} s", ", ".join(names))
                    for (length, at, robot), names in gaps[:_GAPS]
                ],
            )
        )
    if jumps:
        tables.append(table("Clock jumps", ("robot or bag", "role", "at", "by how much"), jumps))
    return tuple(tables)


def text_table(title: str, texts: Sequence[str], most: int = _WARNINGS) -> tuple[Table, ...]:
    """Return a table of at most so many sentences; nothing where there are none."""
    if not texts:
        return ()
    more = [f"and {len(texts) - most} more"] if len(texts) > most else []
    # the first column of a table is never broken into lines, sentences are
    return (table(title, ("", ""), [("-", text) for text in (*texts[:most], *more)]),)


def start_text(start_ns: int) -> str:
    """Return a start as a date, or as the time since the robot was switched on."""
    if start_ns < _CLOCK_FROM_NS:
        return f"{start_ns / _NANO:.3f} s after boot; the time of day is not known"
    return datetime.fromtimestamp(start_ns / _NANO, UTC).isoformat(timespec="milliseconds")


def _number(value: float | None, form: str, scale: float = 1.0) -> str:
    return "-" if value is None else form.format(value * scale)
