"""Latency between a command and its response, by cross-correlation with interpolated peak."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from testudo_runs.recording.recording import RecordingError

_STEP_S = 0.01
_FEWEST_SAMPLES = 50
_LEAST_CORRELATION = 0.3


@dataclass(frozen=True)
class LatencyEstimate:
    """Delay of one signal after another."""

    delay_s: float  # NaN if not determined
    correlation: float  # at the peak, -1 to 1
    step_s: float  # sampling of both signals; the peak is that of a parabola through three samples
    searched_s: tuple[float, float]
    determined: bool  # the peak is high enough and inside the searched range

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self) | {
            "delay_s": None if np.isnan(self.delay_s) else self.delay_s,
            "searched_s": list(self.searched_s),
        }


def response_latency(
    command_s: np.ndarray,
    command: np.ndarray,
    response_s: np.ndarray,
    response: np.ndarray,
    *,
    longest_s: float = 1.0,
    earliest_s: float = 0.0,
    step_s: float = _STEP_S,
) -> LatencyEstimate:
    """Return the shift of the highest mean correlation of the channels of command and response.

    A first-order lag adds about its time constant to the delay.

    ``command`` (T,) or (T, C) at rising ``command_s`` is interpolated between samples; ``response`` (S,) or (S, C) at
    rising ``response_s`` is NaN where unknown. Delays from ``earliest_s`` to ``longest_s`` are searched; ``step_s`` is
    the sampling of both.

    Raises:
        RecordingError: stamps do not rise.
    """
    first, second = _columns(command), _columns(response)
    for stamps in (command_s, response_s):
        if np.any(np.diff(stamps) <= 0):
            raise RecordingError("latency: stamps do not rise; clean the series with `tidy` first")
    searched = (earliest_s, longest_s)
    begin, end = max(command_s[0], response_s[0] - longest_s), min(command_s[-1], response_s[-1] - longest_s)
    times = np.arange(begin + max(0.0, -earliest_s), end, step_s)
    if len(times) < _FEWEST_SAMPLES:
        return LatencyEstimate(float("nan"), 0.0, step_s, searched, False)
    asked = _sampled(times, command_s, first)
    shifts = np.arange(np.floor(earliest_s / step_s) - 1, np.ceil(longest_s / step_s) + 2) * step_s
    score = np.array([_correlation(asked, _sampled(times + shift, response_s, second)) for shift in shifts])
    best = int(np.argmax(score))
    inside = 0 < best < len(shifts) - 1
    peak = _vertex(score[best - 1 : best + 2]) if inside else 0.0
    determined = bool(inside and score[best] >= _LEAST_CORRELATION)
    return LatencyEstimate(
        float(shifts[best] + peak * step_s) if determined else float("nan"),
        float(score[best]),
        step_s,
        searched,
        determined,
    )


def _columns(values: np.ndarray) -> np.ndarray:
    values = np.asarray(values, float)
    return values[:, None] if values.ndim == 1 else values


def _sampled(times: np.ndarray, stamps: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return values (len(times), C); NaN outside of the stamps."""
    return np.stack([np.interp(times, stamps, column, np.nan, np.nan) for column in values.T], axis=1)


def _correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Return the mean correlation of the channels that vary in both."""
    known = np.isfinite(first) & np.isfinite(second)
    total, weight = 0.0, 0.0
    for k in range(first.shape[1]):
        a, b = first[known[:, k], k], second[known[:, k], k]
        if len(a) < _FEWEST_SAMPLES:
            continue
        a, b = a - a.mean(), b - b.mean()  # once: `std` would take the means again
        spread_a, spread_b = np.sqrt(a @ a / len(a)), np.sqrt(b @ b / len(b))
        if spread_a < 1e-9 or spread_b < 1e-9:
            continue
        total += float(a @ b / len(a) / (spread_a * spread_b))
        weight += 1
    return total / weight if weight else 0.0


def _vertex(values: np.ndarray) -> float:
    """Return where a parabola through values at -1, 0, 1 is highest."""
    left, middle, right = values
    bend = left - 2 * middle + right
    return float(np.clip(0.5 * (left - right) / bend, -0.5, 0.5)) if bend < 0 else 0.0
