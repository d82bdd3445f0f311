"""Bootstrap by blocks of time: the errors of neighbouring starts are correlated, so whole blocks are drawn.

Drawing single starts would count one disturbance hundreds of times (Künsch, Annals of Statistics 1989, on blocks). For
fast samples of many quantiles, each block stores its errors as counts in common bins: a sample is a sum of counts.
"""

from dataclasses import dataclass

import numpy as np

BLOCK_S = 10.0
LEAST_BLOCKS = 10
"""Blocks of a shorter run are shorter."""
REPEATS = 300
_BINS = 400
_ENDS = (2.5, 97.5)


@dataclass(frozen=True)
class Interval:
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def is_above(self) -> bool:
        """Return whether the interval is above zero."""
        return self.low > 0

    @property
    def is_below(self) -> bool:
        """Return whether the interval is below zero."""
        return self.high < 0

    @classmethod
    def of_samples(cls, value: float, samples: np.ndarray) -> "Interval":
        """Return a figure with the interval of bootstrap samples (R,)."""
        usable = samples[np.isfinite(samples)]
        if not len(usable):
            return cls(value, value, value)
        low, high = np.percentile(usable, _ENDS)
        return cls(float(value), min(float(low), float(value)), max(float(high), float(value)))


@dataclass(frozen=True)
class TimeBlocks:
    """The block of each start, and the blocks of each bootstrap sample."""

    index: np.ndarray  # (S,) int
    weights: np.ndarray  # (R, B): count of each block

    @classmethod
    def create(cls, times_s: list[np.ndarray], seed: int = 0) -> "TimeBlocks":
        """Cut the starts (S_k,) [s] of each robot into blocks of time, one robot after the other."""
        longest = max((times.max() - times.min() for times in times_s if len(times)), default=0.0)
        size = max(min(BLOCK_S, longest / LEAST_BLOCKS), 1e-3)
        parts, offset = [], 0
        for times in times_s:
            _, inverse = np.unique(np.floor(times / size), return_inverse=True)
            parts.append(inverse + offset)
            offset += int(inverse.max(initial=-1)) + 1
        weights = np.random.default_rng(seed).multinomial(offset, np.full(offset, 1 / max(offset, 1)), size=REPEATS)
        return cls(np.concatenate(parts) if parts else np.zeros(0, int), weights.astype(np.float32))

    def part(self, begin: int, end: int) -> "TimeBlocks":
        """Return the blocks of the starts of one robot, with the counts of their blocks."""
        index = self.index[begin:end]
        low, high = (int(index.min()), int(index.max()) + 1) if len(index) else (0, 0)
        return TimeBlocks(index - low, self.weights[:, low:high])


def quantiles(blocks: TimeBlocks, values: np.ndarray, shares: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return quantiles (Q,) of the values (S,), and of each bootstrap sample (Q, R).

    NaN counts as missing; without any value all results are NaN.
    """
    good = np.flatnonzero(np.isfinite(values))
    if not len(good):
        return np.full(len(shares), np.nan), np.full((len(shares), len(blocks.weights)), np.nan)
    order = good[np.argsort(values[good])]
    used = values[order]
    exact = _of_sorted(used, np.array(shares))
    edges = np.unique(_of_sorted(used, np.linspace(0, 1, _BINS + 1)))
    if len(edges) < 2:
        return exact, np.tile(exact[:, None], len(blocks.weights))
    # the values rise: a search of few borders among many values
    borders = np.searchsorted(used, edges[1:-1], side="left")
    bins = np.repeat(np.arange(len(edges) - 1), np.diff(borders, prepend=0, append=len(used)))
    count = blocks.weights.shape[1]
    counts = np.bincount(blocks.index[order] * (len(edges) - 1) + bins, minlength=count * (len(edges) - 1))
    # summed over the bins before the samples are drawn: there are far fewer blocks than samples
    rising = np.zeros((count, len(edges)))
    np.cumsum(counts.reshape(count, -1), axis=1, out=rising[:, 1:])
    rising = blocks.weights.astype(float) @ rising
    return exact, np.array([_inverse(rising, edges, share) for share in shares])


def _of_sorted(values: np.ndarray, shares: np.ndarray) -> np.ndarray:
    at = shares * (len(values) - 1)
    low = at.astype(int)
    high = np.minimum(low + 1, len(values) - 1)
    return values[low] + (at - low) * (values[high] - values[low])


def _inverse(rising: np.ndarray, edges: np.ndarray, share: float) -> np.ndarray:
    """Return where each cumulative count (R, E) reaches a share of its end: a vectorised `np.interp`."""
    wanted = share * rising[:, -1]
    rows, last = np.arange(len(rising)), rising.shape[1] - 1
    low = np.count_nonzero(rising <= wanted[:, None], axis=1) - 1
    high = np.minimum(low + 1, last)
    here, rise = rising[rows, low], rising[rows, high] - rising[rows, low]
    slope = np.divide(edges[high] - edges[low], rise, out=np.zeros_like(rise), where=rise > 0)
    return np.where(rising[:, -1] > 0, slope * (wanted - here) + edges[low], np.nan)
