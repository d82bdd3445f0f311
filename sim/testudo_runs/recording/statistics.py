"""Statistics of recorded series (rates, gaps, clock jumps), and their tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from rich.table import Table

from testudo_deploy.commands.report import facts, table
from testudo_runs.recording.recording import Recording, Series

SHORTEST_GAP_S = 0.1
_GAP_INTERVALS = 5.0
_STEP_S = 0.05
_WINDOW = 25
_SHOWN = 5


@dataclass(frozen=True)
class SampleGap:
    """An interval without samples."""

    at_s: float  # its beginning, since the start of the recording
    length_s: float


@dataclass(frozen=True)
class ClockJump:
    """A permanent change of the time from stamp to record."""

    at_s: float
    by_s: float  # step of the clock of the stamps, positive forward


@dataclass(frozen=True)
class SeriesFacts:
    """Statistics of one series."""

    samples: int
    first_s: float | None
    last_s: float | None
    rate_hz: float | None  # of the median interval; None below two different stamps
    mean_hz: float | None  # samples over time, gaps included
    gap_from_s: float  # a longer interval is a gap
    gaps: int
    longest_gap_s: float
    gap_time_s: float
    worst_gaps: tuple[SampleGap, ...]
    duplicates: int  # stamps that equal the one before
    backward: int  # stamps before the one before
    furthest_back_s: float
    delay_median_s: float | None  # from stamp to record; None without times of recording
    delay_p99_s: float | None
    clock_jumps: tuple[ClockJump, ...]
    not_finite: int  # samples with a value that is not finite


def series_facts(series: Series) -> SeriesFacts:
    """Return the statistics of one series; a gap is longer than 0.1 s and than five median intervals."""
    stamps = np.asarray(series.stamp_s, float)
    steps = np.diff(stamps)
    forward = steps[steps > 0]
    median = float(np.median(forward)) if len(forward) else None
    limit = max(SHORTEST_GAP_S, _GAP_INTERVALS * (median or 0.0))
    at = np.flatnonzero(steps > limit)
    worst = at[np.argsort(steps[at], kind="stable")[::-1][:_SHOWN]]
    span = float(np.ptp(stamps)) if len(stamps) else 0.0
    delay = None if series.received_s is None or not len(stamps) else np.asarray(series.received_s) - stamps
    return SeriesFacts(
        samples=len(stamps),
        first_s=float(stamps.min()) if len(stamps) else None,
        last_s=float(stamps.max()) if len(stamps) else None,
        rate_hz=None if median is None else 1.0 / median,
        mean_hz=None if span <= 0 else (len(stamps) - 1) / span,
        gap_from_s=limit,
        gaps=len(at),
        longest_gap_s=float(steps[at].max(initial=0.0)),
        gap_time_s=float(steps[at].sum()),
        worst_gaps=tuple(SampleGap(float(stamps[k]), float(steps[k])) for k in worst),
        duplicates=int((steps == 0).sum()),
        backward=int((steps < 0).sum()),
        furthest_back_s=float(-steps.min(initial=0.0)) + 0.0,
        delay_median_s=None if delay is None else float(np.median(delay)),
        delay_p99_s=None if delay is None else float(np.quantile(delay, 0.99)),
        clock_jumps=() if delay is None else clock_jumps(stamps, delay),
        not_finite=int((~np.isfinite(series.values).all(axis=1)).sum()) if len(stamps) else 0,
    )


def clock_jumps(stamps: np.ndarray, delay: np.ndarray) -> tuple[ClockJump, ...]:
    """Return the steps of more than 50 ms in the median delay of 25 samples, which late messages do not change.

    ``stamps`` and ``delay``, from stamp to record, are (T,) [s].
    """
    if len(delay) < 2 * _WINDOW:
        return ()
    medians = np.median(np.lib.stride_tricks.sliding_window_view(delay, _WINDOW), axis=1)
    change = medians[_WINDOW:] - medians[:-_WINDOW]
    beyond = np.flatnonzero(np.abs(change) > _STEP_S)
    found = []
    for group in np.split(beyond, np.flatnonzero(np.diff(beyond) > 1) + 1) if len(beyond) else []:
        height = np.abs(change[group])
        k = int(np.median(group[height >= height.max() - 1e-9]))
        found.append(ClockJump(float(stamps[k + _WINDOW]), -float(change[k])))
    return tuple(found)


def recording_facts(recording: Recording) -> dict[str, dict[str, SeriesFacts]]:
    """Return the facts of every series by robot and role."""
    return {
        name: {role: series_facts(series) for role, series in robot.series.items()}
        for name, robot in recording.robots.items()
    }


_NANO = 1_000_000_000
_CLOCK_FROM_NS = 100_000_000 * _NANO  # stamps below are of a clock since boot
_GAPS = 10
_WARNINGS = 30

SeriesByRobot = Mapping[str, Mapping[str, SeriesFacts]]


def head_table(recording: Recording, kind: str, where: str, **more: object) -> Table:
    """Return the table of a recording as a whole."""
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
            # an imported log has no time of record but its stamp
            _number(one.delay_median_s if one.delay_p99_s else None, "{:.1f} ms", 1000.0),
            len(one.clock_jumps) or "",
            one.not_finite or "",
        )
        for robot, series in found.items()
        for role, one in series.items()
    ]
    columns = ("robot", "role", "samples", "rate", "mean", "gaps", "longest")
    columns += ("same stamp", "stamp goes back", "stamp to record", "clock jumps", "not finite")
    shown = [k for k in range(len(columns)) if k < 6 or any(row[k] not in ("", "-") for row in rows)]
    return table("Series", [columns[k] for k in shown], [[row[k] for k in shown] for row in rows])


def trouble_tables(found: SeriesByRobot, steps: Sequence[Mapping[str, Any]] = ()) -> tuple[Table, ...]:
    """Return the tables of the longest gaps and of the clock jumps; ``steps`` are those of an import of bags."""
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
            "cut there" if step["cut"] else "corrected",
            f"{step['at_s']:.3f} s",
            f"{step['by_s']:+.3f} s, {step['whose']}",
        )
        for step in steps
    ]
    tables = []
    if gaps:
        rows = [(robot, f"{at:.3f} s", f"{size:.3f} s", ", ".join(names)) for (size, at, robot), names in gaps[:_GAPS]]
        tables.append(table("Longest gaps", ("robot", "at", "length", "roles"), rows))
    if jumps:
        tables.append(table("Clock jumps", ("robot or bag", "role", "at", "by how much"), jumps))
    return tuple(tables)


def text_table(title: str, texts: Sequence[str], most: int = _WARNINGS) -> tuple[Table, ...]:
    """Return a table of at most ``most`` sentences; nothing without sentences."""
    if not texts:
        return ()
    more = [f"and {len(texts) - most} more"] if len(texts) > most else []
    # the first column of a table is never wrapped, the second is
    return (table(title, ("", ""), [("-", text) for text in (*texts[:most], *more)]),)


def start_text(start_ns: int) -> str:
    """Return a start as a date, or as the time since power-on of the robot."""
    if start_ns < _CLOCK_FROM_NS:
        return f"{start_ns / _NANO:.3f} s after boot; the time of day is not known"
    return datetime.fromtimestamp(start_ns / _NANO, UTC).isoformat(timespec="milliseconds")


def _number(value: float | None, form: str, scale: float = 1.0) -> str:
    return "-" if value is None else form.format(value * scale)
