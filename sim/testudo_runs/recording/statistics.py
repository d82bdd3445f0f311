"""What the stamps of a series say: rate, gaps, and what is wrong with its clock."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from testudo_runs.recording.recording import Recording, Series

SHORTEST_GAP_S = 0.1
_GAP_INTERVALS = 5.0
_STEP_S = 0.05
_WINDOW = 25
_SHOWN = 5


@dataclass(frozen=True)
class SampleGap:
    """A time without samples."""

    at_s: float
    """Its beginning, since the start of the recording."""
    length_s: float


@dataclass(frozen=True)
class ClockJump:
    """A lasting change of the time from stamp to record."""

    at_s: float
    by_s: float
    """By how much the clock of the stamps went forward."""


@dataclass(frozen=True)
class SeriesFacts:
    """One series in numbers."""

    samples: int
    first_s: float | None
    last_s: float | None
    rate_hz: float | None
    """Of the median interval; None below two different stamps."""
    mean_hz: float | None
    """Samples over time, gaps included."""
    gap_from_s: float
    """An interval of more counts as a gap."""
    gaps: int
    longest_gap_s: float
    gap_time_s: float
    worst_gaps: tuple[SampleGap, ...]
    duplicates: int
    """Stamps that equal the one before."""
    backward: int
    """Stamps before the one before."""
    furthest_back_s: float
    delay_median_s: float | None
    """From stamp to record; None where no record time is known."""
    delay_p99_s: float | None
    clock_jumps: tuple[ClockJump, ...]
    not_finite: int
    """Samples with a value that is no finite number."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


def series_facts(series: Series) -> SeriesFacts:
    """Measure one series.

    A gap is an interval that is longer than 0.1 s and than five times the median interval.
    """
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
    """Return where the median delay of 25 samples differs by more than 50 ms from that of the 25 before.

    Late messages make single delays long; a clock that was set changes them all.

    Args:
        stamps: (T,) [s].
        delay: (T,) from stamp to record [s].
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
