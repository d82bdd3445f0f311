"""Cleans series: samples in order and once, gaps, and stamps on the clock of the recorder.

A message is never received before its stamp, and some are received almost immediately: the line below the points
(stamp, received - stamp) that touches them gives offset and drift of the clock of the sender; above it is transport.
The shortest transport cannot be separated from the offset.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from testudo_hardware import frames
from testudo_runs.recording.recording import RecordingError, Series

_GAP_PERIODS = 5.0
_SHORTEST_GAP_S = 0.1
_SHOWN_GAPS = 1000


@dataclass(frozen=True)
class CleaningReport:
    """Faults of a series and their corrections."""

    samples: int  # before
    kept: int
    not_finite: int  # dropped: a stamp or a value is not a number
    backward: int  # stamps before that of an earlier sample; sorted
    duplicate: int  # dropped: a repeated stamp; the sample recorded first is kept
    period_s: float  # median time between samples; NaN for fewer than two
    gap_limit_s: float  # a longer time between samples is a gap
    gaps: tuple[tuple[float, float], ...]  # (begin, end) [s] of each gap, the first thousand
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

    A time between samples above ``gap_s`` is a gap; without it above 5 median periods and 0.1 s.

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


def heading(quaternion_xyzw: np.ndarray) -> np.ndarray:
    """Return the yaw (T,) [rad], unwrapped, of orientations (T, 4)."""
    return np.unwrap(frames.heading(np.asarray(quaternion_xyzw, float).T))


LATEST_S = 0.5
"""A longer delay is an error of a clock, not of the network."""
EARLIEST_S = -1e-3
"""Reception before the stamp by more than rounding: two clocks."""
LARGEST_DRIFT = 1e-4
"""More than the drift of quartz: a faulty clock, or two clocks."""
_BINS = 200
_FEWEST = 20
_SHORTEST_S = 10.0


@dataclass(frozen=True)
class ClockFit:
    """Clock of the recorder by that of a sender: received = stamp + offset + drift * (stamp - begin) + transport."""

    begin_s: float  # stamp at which the offset holds
    offset_s: float
    drift: float  # [s/s]; zero for a short series
    transport_median_s: float  # median transport beyond the shortest one
    transport_p99_s: float
    samples: int
    corrected: bool = False  # the stamps were converted to the clock of the recorder

    @property
    def another_clock(self) -> bool:
        """Return whether the stamps cannot be of the clock of the recorder."""
        return not (EARLIEST_S <= self.offset_s <= LATEST_S and abs(self.drift) <= LARGEST_DRIFT)

    def to_recorder(self, stamp_s: np.ndarray) -> np.ndarray:
        """Return stamps (T,) of the sender on the clock of the recorder, plus the shortest transport."""
        return stamp_s + self.offset_s + self.drift * (stamp_s - self.begin_s)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self) | {"another_clock": self.another_clock}


def clock_fit(stamp_s: np.ndarray, received_s: np.ndarray) -> ClockFit | None:
    """Return the line along the lower envelope of received (T,) minus stamp (T,); None for fewer than two samples.

    The points of the envelope are the least delays of 200 intervals; the robust line through them (Theil-Sen) is
    lowered until one thousandth of the samples is below it.
    """
    finite = np.isfinite(stamp_s) & np.isfinite(received_s)
    stamp, late = stamp_s[finite], (received_s - stamp_s)[finite]
    if len(stamp) < 2:
        return None
    begin, span = float(stamp.min()), float(np.ptp(stamp))
    drift = 0.0
    if len(stamp) >= _FEWEST and span >= _SHORTEST_S:
        # time and value of the least delay in each interval
        time = stamp - begin
        part = np.minimum((time / span * _BINS).astype(int), _BINS - 1)
        order = np.lexsort((late, part))
        first = order[np.unique(part[order], return_index=True)[1]]
        drift = _slope(time[first], late[first])
    above = late - drift * (stamp - begin)
    # a quantile, as a single wrong stamp would determine the minimum
    offset = float(np.quantile(above, 0.001, method="lower"))
    above = above - offset
    return ClockFit(begin, offset, drift, float(np.median(above)), float(np.quantile(above, 0.99)), len(stamp))


def on_recorder_clock(series: Series) -> tuple[Series, ClockFit | None]:
    """Return the series with stamps on the clock of the recorder if they are of another one, and the fit."""
    if series.received_s is None:
        return series, None
    fit = clock_fit(series.stamp_s, series.received_s)
    if fit is None or not fit.another_clock:
        return series, fit
    return replace(series, stamp_s=fit.to_recorder(series.stamp_s)), replace(fit, corrected=True)


def _slope(time: np.ndarray, value: np.ndarray) -> float:
    """Return the median slope of all pairs at least a third of the time apart."""
    apart = time[None, :] - time[:, None]
    far = apart > (time[-1] - time[0]) / 3
    return float(np.median((value[None, :] - value[:, None])[far] / apart[far])) if far.any() else 0.0
