"""Clocks: how a sender's clock runs against the recorder's.

A message is never received before it was stamped, and some are received almost at once: the line below the points
(stamp, received - stamp) that touches them is offset and drift of the clock, and what lies above it is transport. The
shortest transport cannot be told from an offset.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from testudo_runs.recording.recording import Series

LATEST_S = 0.5
"""A later arrival than this is a clock's fault rather than a network's."""
EARLIEST_S = -1e-3
"""Received before it was stamped by more than rounding: two clocks."""
LARGEST_DRIFT = 1e-4
"""Quartz is better than that; more is a clock that runs wrong, or two."""
_BINS = 200
_FEWEST = 20
_SHORTEST_S = 10.0


@dataclass(frozen=True)
class ClockFit:
    """The recorder's clock over a sender's: received = stamp + offset + drift * (stamp - begin) + transport."""

    begin_s: float
    """Stamp at which the offset holds."""
    offset_s: float
    drift: float
    """Seconds per second; zero for a series too short to tell."""
    transport_median_s: float
    """Median of what is above the line: transport beyond the shortest one."""
    transport_p99_s: float
    samples: int
    corrected: bool = False
    """Stamps were put on the recorder's clock."""

    @property
    def another_clock(self) -> bool:
        """Return whether these cannot be stamps of the recorder's own clock."""
        return not (EARLIEST_S <= self.offset_s <= LATEST_S and abs(self.drift) <= LARGEST_DRIFT)

    def to_recorder(self, stamp_s: np.ndarray) -> np.ndarray:
        """Return stamps (T,) of the sender's clock in the recorder's time, but for the shortest transport."""
        return stamp_s + self.offset_s + self.drift * (stamp_s - self.begin_s)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self) | {"another_clock": self.another_clock}


def clock_fit(stamp_s: np.ndarray, received_s: np.ndarray) -> ClockFit | None:
    """Return the line along the lower envelope of received minus stamp; None for fewer than two samples.

    The envelope's points are the least delay of each of 200 stretches of time; the line through them is fitted
    robustly (Theil-Sen), then lowered until one thousandth of the samples is below it.

    Args:
        stamp_s: (T,) by the sender's clock.
        received_s: (T,) by the recorder's clock.
    """
    finite = np.isfinite(stamp_s) & np.isfinite(received_s)
    stamp, late = stamp_s[finite], (received_s - stamp_s)[finite]
    if len(stamp) < 2:
        return None
    begin, span = float(stamp.min()), float(np.ptp(stamp))
    drift = 0.0
    if len(stamp) >= _FEWEST and span >= _SHORTEST_S:
        drift = _slope(*_envelope(stamp - begin, late, span))
    above = late - drift * (stamp - begin)
    # not the least of all, which a single wrong stamp would set
    offset = float(np.quantile(above, 0.001, method="lower"))
    above = above - offset
    return ClockFit(begin, offset, drift, float(np.median(above)), float(np.quantile(above, 0.99)), len(stamp))


def on_recorder_clock(series: Series) -> tuple[Series, ClockFit | None]:
    """Return the series with stamps of the recorder's clock if its own are those of another one, and the fit."""
    if series.received_s is None:
        return series, None
    fit = clock_fit(series.stamp_s, series.received_s)
    if fit is None or not fit.another_clock:
        return series, fit
    return replace(series, stamp_s=fit.to_recorder(series.stamp_s)), replace(fit, corrected=True)


def _envelope(time: np.ndarray, late: np.ndarray, span: float) -> tuple[np.ndarray, np.ndarray]:
    """Return time and value of the least delay in each stretch."""
    part = np.minimum((time / span * _BINS).astype(int), _BINS - 1)
    order = np.lexsort((late, part))
    first = order[np.unique(part[order], return_index=True)[1]]
    return time[first], late[first]


def _slope(time: np.ndarray, value: np.ndarray) -> float:
    """Return the median slope of all pairs that are at least a third of the time apart."""
    apart = time[None, :] - time[:, None]
    far = apart > (time[-1] - time[0]) / 3
    return float(np.median((value[None, :] - value[:, None])[far] / apart[far])) if far.any() else 0.0
