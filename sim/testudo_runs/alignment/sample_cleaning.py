"""Samples in order, each once, with the gaps between them listed; angles without jumps of a turn."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from testudo_runs.recording.recording import RecordingError, Series

_GAP_PERIODS = 5.0
_SHORTEST_GAP_S = 0.1
_SHOWN_GAPS = 1000


@dataclass(frozen=True)
class CleaningReport:
    """What was found in a series and what was done about it."""

    samples: int
    """Before."""
    kept: int
    not_finite: int
    """Dropped: a stamp or a value is not a number."""
    backward: int
    """Stamps that lie before an earlier sample's; put in their place."""
    duplicate: int
    """Dropped: the stamp was there already; the sample that was recorded first is kept."""
    period_s: float
    """Median time between samples; NaN for fewer than two."""
    gap_limit_s: float
    """A longer time between samples is a gap."""
    gaps: tuple[tuple[float, float], ...]
    """(begin, end) [s] of each gap, the first thousand."""
    gap_count: int

    @property
    def missing_s(self) -> float:
        """Return the time in the gaps."""
        return sum(end - begin for begin, end in self.gaps)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        values = asdict(self) | {"gaps": [list(gap) for gap in self.gaps], "missing_s": self.missing_s}
        return values | {"period_s": None if np.isnan(self.period_s) else self.period_s}


def tidy(series: Series, *, gap_s: float | None = None) -> tuple[Series, CleaningReport]:
    """Return a series with rising stamps and finite values, and a report.

    Args:
        series: as recorded.
        gap_s: a longer time between samples is a gap; 5 median periods, at least 0.1 s, if not given.

    Raises:
        RecordingError: stamps and values are not equally many.
    """
    stamp, values = np.asarray(series.stamp_s, float), np.asarray(series.values, float)
    if len(stamp) != len(values):
        raise RecordingError(f"series: found {len(stamp)} stamps and {len(values)} samples, expected equally many")
    finite = np.isfinite(stamp) & np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
    kept = np.flatnonzero(finite)
    backward = int(np.sum(stamp[kept] < np.maximum.accumulate(stamp[kept]))) if len(kept) else 0
    kept = kept[np.argsort(stamp[kept], kind="stable")]
    first = np.ones(len(kept), bool)
    first[1:] = np.diff(stamp[kept]) > 0
    duplicate = int(np.sum(~first))
    kept = kept[first]
    clean = Series(
        stamp[kept],
        values[kept],
        None if series.received_s is None else np.asarray(series.received_s, float)[kept],
        series.frame,
    )
    steps = np.diff(clean.stamp_s)
    period = float(np.median(steps)) if len(steps) else float("nan")
    limit = gap_s if gap_s is not None else max(_GAP_PERIODS * period, _SHORTEST_GAP_S) if len(steps) else np.inf
    wide = np.flatnonzero(steps > limit)
    gaps = tuple((float(clean.stamp_s[k]), float(clean.stamp_s[k + 1])) for k in wide[:_SHOWN_GAPS])
    return clean, CleaningReport(
        len(stamp), len(kept), int(np.sum(~finite)), backward, duplicate, period, float(limit), gaps, len(wide)
    )


def unwrapped(angle_rad: np.ndarray) -> np.ndarray:
    """Return angles (T,) without jumps of a turn: each next to the one before it."""
    return np.unwrap(angle_rad)


def heading(quaternion_xyzw: np.ndarray) -> np.ndarray:
    """Return the yaw (T,) [rad], unwrapped, of orientations (T, 4)."""
    x, y, z, w = np.asarray(quaternion_xyzw, float).T
    return unwrapped(np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z)))
