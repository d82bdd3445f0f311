"""Estimates offset and drift between the clocks of several bags.

The two record times of a message in two bags differ by the clock offset and the difference of the two delays. Bags
without common messages are aligned by the motion of a robot in both: speed and turn rate are correlated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit

from testudo_runs.bags.bag_contents import NANO, BagError
from testudo_runs.importing.bags.motion_matching import STEP_S, SampledMotion, follow

_LEAST_COMMON, _LEAST_SCORE, _WINDOW_S = 5, 0.6, 15.0
_DRIFT_SPAN_S, _MOST_DRIFT = 30.0, 1e-3
_LEAST_FOR_DRIFT, _MANY = 4, 30
_FLOOR_S = 5e-4  # lower bound of the uncertainty of an offset
_MAX_SPREAD_S, _LEAST_SPAN_S = 0.5, 1.0
_Z95 = 1.96


@dataclass(frozen=True)
class BagClock:
    """Conversion from the clock of a bag to that of the first one: ``t + offset_s + drift * (t - at_s)``."""

    bag: str
    to: str
    offset_s: float
    drift: float  # [s/s]; 0 where it is not significant
    at_s: float  # reference time of the offset on the clock of the bag [s since the epoch]
    within_s: float  # half-width of the 95 % interval of the offset
    spread_s: float  # median absolute deviation of single measurements
    how: str
    count: int  # number of measurements

    def apply(self, times_ns: np.ndarray) -> np.ndarray:
        """Return times [ns] on the clock of the first bag."""
        passed_s = (times_ns - np.int64(round(self.at_s * NANO))) / NANO
        return times_ns + np.rint((self.offset_s + self.drift * passed_s) * NANO).astype(np.int64)

    def then(self, other: "BagClock") -> "BagClock":
        """Return the conversion to the target clock of ``other``, which starts at the target of this one."""
        at_ns = np.array([round(self.at_s * NANO)])
        moved = float(other.apply(self.apply(at_ns))[0] - at_ns[0]) / NANO
        within = float(np.hypot(self.within_s, other.within_s))
        return replace(
            self,
            to=other.to,
            offset_s=moved,
            drift=self.drift + other.drift,
            within_s=within,
            spread_s=max(self.spread_s, other.spread_s),
            how=f"{self.how}, by way of {other.bag}",
            count=min(self.count, other.count),
        )

    def sentence(self) -> str:
        """Return the conversion as a sentence."""
        drift = f", drift {self.drift * 1e6:+.1f} ppm" if self.drift else ""
        known = "as given" if self.how == _GIVEN else f"within {1e3 * self.within_s:.1f} ms (95 %), {self.how}"
        return f"clock of {self.bag}: {self.offset_s:+.4f} s to that of {self.to}{drift}, {known}"


_GIVEN = "given by --offset"


@dataclass(frozen=True)
class ClockMarks:
    """Messages and motions of a bag that can be matched with another bag."""

    name: str
    hashes: np.ndarray  # (M,) hashes of messages that occur once in the bag
    log_ns: np.ndarray  # (M,) their times of recording [ns]
    motions: Mapping[str, Sequence[SampledMotion]]  # measured motions by robot


def clocks_of(bags: Sequence[ClockMarks], given: Mapping[str, float]) -> dict[str, BagClock]:
    """Return the conversion from the clock of every bag to that of the first one.

    ``given`` are known offsets [s] by bag.

    Raises:
        BagError: an offset names no bag, or a bag shares no messages and no motion with the others.
    """
    names = [bag.name for bag in bags]
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise BagError(f"--offset {unknown[0]}: no such bag; there are {', '.join(names)}")
    first = names[0]
    found = {first: BagClock(first, first, 0.0, 0.0, 0.0, 0.0, 0.0, "the reference", 0)}
    for name, offset_s in given.items():
        found[name] = BagClock(name, first, offset_s, 0.0, 0.0, 0.0, 0.0, _GIVEN, 0)
    grown = True
    while grown and len(found) < len(bags):
        grown = False
        for bag in bags:
            links = [
                link if other.name == first else link.then(found[other.name])
                for other in bags
                if bag.name not in found and other.name in found and (link := between(bag, other))
            ]
            if links:
                found[bag.name] = min(links, key=lambda link: link.within_s)
                grown = True
    missing = [name for name in names if name not in found]
    if missing:
        raise BagError(
            f"the clock of {', '.join(missing)} cannot be related to that of {first}: they have no common message and "
            "no clear common motion of a robot; give the seconds to add, if you know them: "
            f"--offset {missing[0]}=SECONDS (0 for the same clock)"
        )
    return found


def between(bag: ClockMarks, other: ClockMarks) -> BagClock | None:
    """Return the conversion from the clock of ``bag`` to that of ``other``; None without common data."""
    return _by_messages(bag, other) or _by_motion(bag, other)


def _by_messages(bag: ClockMarks, other: ClockMarks) -> BagClock | None:
    _, mine, theirs = np.intersect1d(bag.hashes, other.hashes, assume_unique=True, return_indices=True)
    if len(mine) < _LEAST_COMMON:
        return None
    times_s, ahead_s = bag.log_ns[mine] / NANO, (other.log_ns[theirs] - bag.log_ns[mine]) / NANO
    if np.ptp(times_s) < _LEAST_SPAN_S:  # such as the latched messages at the start of a recorder
        return None
    clear = np.abs(ahead_s - np.median(ahead_s)) < 10 * max(_spread(ahead_s), 1e-4)
    times_s, ahead_s = times_s[clear], ahead_s[clear]
    clock = _fit(bag.name, other.name, times_s, ahead_s, f"from {len(times_s)} common messages")
    return clock if clock.spread_s < _MAX_SPREAD_S and len(times_s) >= _LEAST_COMMON else None


def _by_motion(bag: ClockMarks, other: ClockMarks) -> BagClock | None:
    found = [
        clock
        for robot in sorted(set(bag.motions) & set(other.motions))
        for mine in bag.motions[robot]
        for theirs in other.motions[robot]
        if (clock := _motion_clock(bag.name, other.name, robot, mine, theirs))
    ]
    return min(found, key=lambda clock: clock.within_s, default=None)


def _motion_clock(name: str, to: str, robot: str, mine: SampledMotion, theirs: SampledMotion) -> BagClock | None:
    """Correlate the whole motions, then parts of them for drift and uncertainty."""
    whole = follow(mine, theirs)
    if whole is None or whole.score < _LEAST_SCORE or whole.rival > 0.9 * whole.score:
        return None
    steps = round(_WINDOW_S / STEP_S)
    times, lags = [], []
    for begin in range(0, mine.steps - steps // 2, steps):
        part = mine.part(begin, begin + steps)
        at = part.begin_s + whole.lag_s - theirs.begin_s
        low = max(0, round((at - 1.0) / STEP_S))
        high = max(0, round((at + _WINDOW_S + 1.0) / STEP_S))
        beside = theirs.part(low, high)
        if beside.steps < steps // 2:
            continue
        match = follow(part, beside, (whole.lag_s - 1.0, whole.lag_s + 1.0))
        if match is not None and match.score > _LEAST_SCORE:
            times.append(part.begin_s + _WINDOW_S / 2)
            lags.append(match.lag_s)
    how = f"from the motion of {robot} in both (correlation {whole.score:.2f})"
    if len(times) < 3:
        return BagClock(name, to, whole.lag_s, 0.0, mine.begin_s, 2 * STEP_S, STEP_S, how, 1)
    return _fit(name, to, np.array(times), np.array(lags), how)


def _fit(name: str, to: str, times_s: np.ndarray, ahead_s: np.ndarray, how: str) -> BagClock:
    """Return the robust line (least absolute values) through differences of two clocks."""
    at_s = float(np.median(times_s))
    passed = times_s - at_s
    design = np.stack([np.ones_like(passed), passed], axis=1)
    weight = np.ones_like(passed)
    if np.ptp(passed) < _DRIFT_SPAN_S or len(passed) < _LEAST_FOR_DRIFT:
        design = design[:, :1]
    for _ in range(20):  # iteratively reweighted: delays have a long tail
        root = np.sqrt(weight)[:, None]
        line = np.linalg.lstsq(design * root, ahead_s * root[:, 0], rcond=None)[0]
        weight = 1 / np.maximum(np.abs(ahead_s - design @ line), 1e-5)
    left = ahead_s - design @ line
    spread = _spread(left)
    error = _error(left, len(line))
    drift = float(line[1]) if len(line) > 1 else 0.0
    if abs(drift) < error / max(float(passed.std()), 1e-9) or abs(drift) > _MOST_DRIFT:
        drift = 0.0
        line = np.array([np.median(ahead_s)])
        error = _error(ahead_s - line[0], 1)
    return BagClock(name, to, float(line[0]), drift, at_s, float(np.hypot(error, _FLOOR_S)), spread, how, len(left))


def _error(left: np.ndarray, parameters: int) -> float:
    """Return the half-width of the 95 % interval of the mean of residuals."""
    if len(left) > _MANY:
        # standard error of a median; delays are correlated: a tenth of the messages counts
        return float(_Z95 * 1.2533 * 1.4826 * _spread(left) / np.sqrt(len(left) / 10))
    free = len(left) - parameters
    return float(stdtrit(free, 0.975) * np.sqrt((left**2).sum() / free / len(left))) if free > 0 else STEP_S


def _spread(values: np.ndarray) -> float:
    return float(np.median(np.abs(values - np.median(values))))
