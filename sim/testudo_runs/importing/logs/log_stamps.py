"""Stamps of a log: from numbers of any unit to nanoseconds, and which of them can be right."""

from __future__ import annotations

import bisect
from dataclasses import replace

import numpy as np

from testudo_runs.importing.mapping.import_losses import FileLosses
from testudo_runs.importing.mapping.mapping_file import AUTO, TimeMap, time_factor

_NANO = 1_000_000_000
_UNIX_NS = (100_000_000 * _NANO, 4_102_444_800 * _NANO)
"""1973 to 2100."""
_LONGEST_NS = 365 * 86_400 * _NANO
"""Of a robot that stays switched on."""
_BREAK_NS = 86_400 * _NANO
"""A recording does not pause for longer."""
_FASTEST_HZ = 20_000.0
"""No robot logs faster: the unit is another one."""
MOST_COUNTS = 500
"""Counts between two records: a log that steps by more has a unit a thousand times smaller, as none is slower than
2 Hz."""


def with_unit(values: np.ndarray, time: TimeMap, losses: FileLosses) -> TimeMap:
    """Return the time column with its unit: `auto` is told by how far the stamps step.

    Args:
        values: (R,) as they stand in the log.
        time: unit, clock and width of the counter.
        losses: is told of a unit that cannot be the right one.
    """
    steps = np.abs(np.diff(values[np.isfinite(values)]))
    step = float(np.median(steps[steps > 0])) if (steps > 0).any() else 1.0
    if time.unit == AUTO:
        fits = (unit for unit, most in (("s", MOST_COUNTS / 1e3), ("ms", MOST_COUNTS)) if step <= most)
        return replace(time, unit=next(fits, "us"))
    rate_hz = _NANO / (step * time_factor(time))
    if rate_hz > _FASTEST_HZ:
        losses.add(
            f"{rate_hz:.0f} records a second by the unit {time.unit} of the mapping: it is another one; `auto` finds it"
        )
    return time


def to_ns(values: np.ndarray, time: TimeMap) -> np.ndarray:
    """Return stamps in nanoseconds, to the digits that a double can hold; -1 for what can be no stamp.

    Args:
        values: (R,) as they stand in the log.
        time: unit, clock and width of the counter.
    """
    values = np.asarray(values, float)
    factor = time_factor(time)
    low, high = _UNIX_NS if time.clock == "unix" else (0, _LONGEST_NS)
    with np.errstate(over="ignore"):
        rough = values * float(factor)
    fits = np.isfinite(values) & (rough >= low) & (rough <= high)
    safe = np.where(fits, values, 0.0)
    whole = np.floor(safe)
    step_ns = np.spacing(max(1.0, safe.max(initial=0.0))) * factor
    unit = 10 ** max(0, int(np.ceil(np.log10(step_ns))))  # below it a double's digits are noise
    ns = whole.astype(np.int64) * factor + np.rint((safe - whole) * factor / unit).astype(np.int64) * unit
    if time.bits is not None:
        ns = unwrapped(ns, (1 << time.bits) * factor, fits)
    return np.where(fits, ns, -1)


def unwrapped(ns: np.ndarray, period_ns: int, fits: np.ndarray) -> np.ndarray:
    """Return stamps (R,) of a counter that starts again, with every start again added.

    A step back by more than half the period is a start again; smaller ones are left as they are.
    """
    found = ns.copy()
    steps = np.diff(ns[fits], prepend=ns[fits][:1])
    found[fits] += np.cumsum(steps < -(period_ns // 2)) * period_ns
    return found


def in_order(time_ns: np.ndarray, places: np.ndarray, losses: FileLosses) -> np.ndarray:
    """Return the indices of the samples whose stamps never go back, as many as there can be.

    Args:
        time_ns: (R,), -1 where there is no stamp.
        places: (R,) where each stands.
        losses: takes those that are left out.
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
    """Return the indices of a longest subsequence that never falls."""
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
