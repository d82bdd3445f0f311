"""Errors over the state space: by speed, turn rate and acceleration, and the worst regions in words."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from testudo_analysis.gap.batch_rollout import StartFeatures
from testudo_analysis.gap.block_bootstrap import Interval, TimeBlocks, quantiles

LEAST_STARTS, LEAST_BLOCKS = 100, 4
_STANDS_SHARE = 0.04  # share of the highest speed below which a robot stands
_STEPS = 4
_OVERLAP = 0.6
_SHOWN = 6


@dataclass(frozen=True)
class StateAxis:
    """One quantity of the state, cut into bins."""

    name: str
    unit: str
    edges: np.ndarray  # (B + 1,) rising
    words: tuple[str, ...]  # (B,), one phrase for each bin

    def bins(self, values: np.ndarray) -> np.ndarray:
        """Return the bin (S,) of each value; values beyond the ends are in the outermost bins."""
        return np.clip(np.searchsorted(self.edges, values, side="right") - 1, 0, len(self.words) - 1)


@dataclass(frozen=True)
class StateBin:
    """The errors of the starts in one region of the state space."""

    where: tuple[tuple[str, str], ...]  # axis and phrase; the axis `robot` has names
    count: int
    median: Interval  # in the unit of the error
    ratio: Interval  # to the median of all starts

    @property
    def words(self) -> str:
        """Return the region in words."""
        return ", ".join(phrase for _, phrase in self.where)


@dataclass(frozen=True)
class ErrorCurve:
    """The error along one axis."""

    axis: StateAxis
    medians: tuple[Interval | None, ...]  # by bin; None with too few starts
    counts: tuple[int, ...]


@dataclass(frozen=True)
class StateErrors:
    """Errors over the state space, of one channel, horizon and parameter set."""

    curves: tuple[ErrorCurve, ...]
    grid: np.ndarray  # (speed bins, turn bins) median error; NaN with too few starts
    worst: tuple[StateBin, ...]  # regions significantly worse than the whole, the worst first
    overall: Interval


def axes_of(features: StartFeatures) -> tuple[StateAxis, StateAxis, StateAxis]:
    """Return the axes of speed, turn rate and acceleration, with bins for the recorded range."""
    return _speed_axis(features.speed_m_s), _turn_axis(features.turn_rad_s), _pace_axis(features.acceleration_m_s2)


def state_errors(
    blocks: TimeBlocks,
    robots: np.ndarray,
    names: Sequence[str],
    features: StartFeatures,
    axes: Sequence[StateAxis],
    error: np.ndarray,
) -> StateErrors:
    """Return the error over the state space.

    ``robots`` (S,) int is the robot of each start, ``features`` (S,) are those of the starts, ``axes`` those of
    `axes_of`, and ``error`` (S,) is not negative, NaN where missing.
    """
    used = np.isfinite(error)
    values = features.speed_m_s, features.turn_rad_s, features.acceleration_m_s2
    bins = [axis.bins(column) for axis, column in zip(axes, values, strict=True)]
    overall, samples = _median(blocks, error)
    places = [
        ((axis.name, phrase), used & (index == k))
        for axis, index in zip(axes, bins, strict=True)
        for k, phrase in enumerate(axis.words)
    ]
    owners = [(("robot", name), used & (robots == k)) for k, name in enumerate(names)]
    curves = []
    for axis in axes:
        masks = [mask for (name, _), mask in places if name == axis.name]
        found = [_median(blocks, np.where(mask, error, np.nan))[0] if _enough(blocks, mask) else None for mask in masks]
        curves.append(ErrorCurve(axis, tuple(found), tuple(int(mask.sum()) for mask in masks)))
    grid = np.full((len(axes[0].words), len(axes[1].words)), np.nan)
    for row, column in np.ndindex(*grid.shape):
        mask = used & (bins[0] == row) & (bins[1] == column)
        if _enough(blocks, mask):
            grid[row, column] = np.median(error[mask])
    candidates = list(_cells(blocks, owners, places, error, samples, overall.value))
    return StateErrors(tuple(curves), grid, _worst(candidates), overall)


def _cells(
    blocks: TimeBlocks,
    owners: Sequence[tuple[tuple[str, str], np.ndarray]],
    places: Sequence[tuple[tuple[str, str], np.ndarray]],
    error: np.ndarray,
    all_samples: np.ndarray,
    overall: float,
) -> Iterator[tuple[StateBin, np.ndarray]]:
    """Yield every region by one quantity, by two, and by robot and one quantity."""
    single = [((place,), mask) for place, mask in (*(owners if len(owners) > 1 else ()), *places)]
    pairs = [
        ((one, other), mask & second)
        for k, (one, mask) in enumerate(places)
        for other, second in places[k + 1 :]
        if one[0] != other[0]
    ]
    mixed = [((owner, place), mask & second) for owner, mask in owners for place, second in places if len(owners) > 1]
    for where, mask in (*single, *pairs, *mixed):
        if not _enough(blocks, mask) or np.median(error[mask]) <= overall:
            continue
        median, samples = _median(blocks, np.where(mask, error, np.nan))
        ratio = Interval.of_samples(median.value / max(overall, 1e-12), samples / np.maximum(all_samples, 1e-12))
        yield StateBin(where, int(mask.sum()), median, ratio), mask


def _worst(candidates: Sequence[tuple[StateBin, np.ndarray]]) -> tuple[StateBin, ...]:
    """Return the regions significantly above the whole, without those that mostly overlap a worse one."""
    named: list[tuple[StateBin, np.ndarray]] = []
    for cell, mask in sorted(candidates, key=lambda found: -found[0].ratio.low):
        if cell.ratio.low <= 1.0 or len(named) == _SHOWN:
            break
        share = max(((mask & other).sum() / mask.sum() for _, other in named), default=0.0)
        if share < _OVERLAP:
            named.append((cell, mask))
    return tuple(sorted((cell for cell, _ in named), key=lambda cell: -cell.ratio.value))


def _enough(blocks: TimeBlocks, mask: np.ndarray) -> bool:
    return int(mask.sum()) >= LEAST_STARTS and len(np.unique(blocks.index[mask])) >= LEAST_BLOCKS


def _median(blocks: TimeBlocks, error: np.ndarray) -> tuple[Interval, np.ndarray]:
    (value,), (samples,) = quantiles(blocks, error, (0.5,))
    return Interval.of_samples(float(value), samples), samples


def _speed_axis(speed: np.ndarray) -> StateAxis:
    top = max(float(np.quantile(speed, 0.995)), 1e-3)
    edges = np.append(0.0, np.linspace(_STANDS_SHARE, 1.0, _STEPS + 1)) * top
    spans = [f"at {low:.2g} to {high:.2g} m/s" for low, high in itertools.pairwise(edges[1:])]
    return StateAxis("speed", "m/s", edges, ("standing", *spans))


def _turn_axis(turn: np.ndarray) -> StateAxis:
    top = max(float(np.quantile(np.abs(turn), 0.995)), 1e-3)
    ends = np.array([0.1, 0.4, 0.7, 1.0]) * top
    spans = [f"{low:.2g} to {high:.2g} rad/s" for low, high in itertools.pairwise(ends)]
    right, left = ([f"turning {side} at {span}" for span in spans] for side in ("right", "left"))
    return StateAxis("turn rate", "rad/s", np.concatenate([-ends[::-1], ends]), (*right[::-1], "not turning", *left))


def _pace_axis(acceleration: np.ndarray) -> StateAxis:
    top = max(float(np.quantile(np.abs(acceleration), 0.99)), 1e-3)
    ends = np.array([0.15, 0.5, 1.0]) * top
    spans = [f"{low:.2g} to {high:.2g} m/s^2" for low, high in itertools.pairwise(ends)]
    down, up = ([f"{change} at {span}" for span in spans] for change in ("slowing down", "speeding up"))
    words = (*down[::-1], "at steady speed", *up)
    return StateAxis("acceleration", "m/s^2", np.concatenate([-ends[::-1], ends]), words)
