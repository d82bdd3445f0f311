"""Converts the stamps of a log to nanoseconds and removes impossible ones."""

import bisect
from dataclasses import replace

import numpy as np

from testudo_runs.importing.mapping.column_conversion import FileLosses
from testudo_runs.importing.mapping.mapping_file import AUTO, TimeMap
from testudo_runs.recording.recording import TIME_UNITS

_NANO = 1_000_000_000
_UNIX_NS = (100_000_000 * _NANO, 4_102_444_800 * _NANO)  # 1973 to 2100
_LONGEST_NS = 365 * 86_400 * _NANO  # longest time since power-on of a robot
_BREAK_NS = 86_400 * _NANO  # longest pause within a recording
_FASTEST_HZ = 20_000.0  # highest logging rate; a higher one means a wrong unit
MOST_COUNTS = 500
"""Most counts between two records: a larger step means a unit a thousand times smaller, as logs are at least 2 Hz."""


def with_unit(values: np.ndarray, time: TimeMap, losses: FileLosses) -> TimeMap:
    """Return the time column with its unit; `auto` is derived from the median step of the logged numbers (R,).

    ``losses`` collects an impossible unit.
    """
    steps = np.abs(np.diff(values[np.isfinite(values)]))
    step = float(np.median(steps[steps > 0])) if (steps > 0).any() else 1.0
    if time.unit == AUTO:
        fits = (unit for unit, most in (("s", MOST_COUNTS / 1e3), ("ms", MOST_COUNTS)) if step <= most)
        return replace(time, unit=next(fits, "us"))
    rate_hz = _NANO / (step * TIME_UNITS[time.unit])
    if rate_hz > _FASTEST_HZ:
        losses.add(
            f"{rate_hz:.0f} records a second by the unit {time.unit} of the mapping: it is another one; `auto` finds it"
        )
    return time


def to_ns(values: np.ndarray, time: TimeMap) -> np.ndarray:
    """Return stamps (R,) [ns] of logged numbers (R,), to the precision of a double; -1 for impossible stamps."""
    values = np.asarray(values, float)
    factor = TIME_UNITS[time.unit]
    low, high = _UNIX_NS if time.clock == "unix" else (0, _LONGEST_NS)
    with np.errstate(over="ignore"):
        rough = values * float(factor)
    fits = np.isfinite(values) & (rough >= low) & (rough <= high)
    safe = np.where(fits, values, 0.0)
    whole = np.floor(safe)
    step_ns = np.spacing(max(1.0, safe.max(initial=0.0))) * factor
    unit = 10 ** max(0, int(np.ceil(np.log10(step_ns))))  # the digits of a double below it are noise
    ns = whole.astype(np.int64) * factor + np.rint((safe - whole) * factor / unit).astype(np.int64) * unit
    if time.bits is not None:
        ns = unwrapped(ns, (1 << time.bits) * factor, fits)
    return np.where(fits, ns, -1)


def unwrapped(ns: np.ndarray, period_ns: int, fits: np.ndarray) -> np.ndarray:
    """Return stamps (R,) of a wrapping counter without the wraps.

    A step back by more than half the period is a wrap; smaller ones stay.
    """
    found = ns.copy()
    steps = np.diff(ns[fits], prepend=ns[fits][:1])
    found[fits] += np.cumsum(steps < -(period_ns // 2)) * period_ns
    return found


def in_order(time_ns: np.ndarray, places: np.ndarray, losses: FileLosses) -> np.ndarray:
    """Return the indices of the largest set of samples whose stamps (R,) never decrease; -1 is no stamp.

    ``losses`` collects the others by their lines or records ``places`` (R,).
    """
    keep = np.flatnonzero(time_ns >= 0)
    if len(keep) < len(time_ns):
        losses.add("the stamp is no time of the clock that the mapping names", places[time_ns < 0])
    steps = np.diff(time_ns[keep])
    if (steps < 0).any():
        chosen = longest_rise(time_ns[keep])
        losses.add("the stamp goes back against its neighbours", np.delete(places[keep], chosen))
        keep = keep[chosen]
        steps = np.diff(time_ns[keep])
    breaks = np.flatnonzero(steps > _BREAK_NS)
    if len(breaks):
        edges = np.r_[0, breaks + 1, len(keep)]
        best = int(np.diff(edges).argmax())
        chosen = np.arange(edges[best], edges[best + 1])
        losses.add("the stamp is more than a day from the others", np.delete(places[keep], chosen))
        keep = keep[chosen]
    return keep


def longest_rise(values: np.ndarray) -> np.ndarray:
    """Return the indices of a longest non-decreasing subsequence (patience sorting)."""
    tails: list[int] = []
    ends: list[int] = []
    before = np.full(len(values), -1)
    for k, value in enumerate(values.tolist()):
        at = bisect.bisect_right(tails, value)
        before[k] = ends[at - 1] if at else -1
        if at == len(tails):
            tails.append(value)
            ends.append(k)
        else:
            tails[at], ends[at] = value, k
    found, k = [], ends[-1] if ends else -1
    while k >= 0:
        found.append(k)
        k = int(before[k])
    return np.array(found[::-1], int)
