"""Scores of several training runs in several cells: interquartile mean, optimality gap, probability of improvement.

After Agarwal et al., Deep reinforcement learning at the edge of the statistical precipice (NeurIPS 2021), by their
library `rliable`: 95 % intervals are percentiles of a bootstrap over the runs of each cell.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from testudo_hardware.errors import TestudoError
from testudo_policies.evaluation.evaluation import Evaluation

_REPEATS = 2000
_SEED = 0
SUCCESS, RETURN = "success", "return"


@dataclass(frozen=True)
class Score:
    """What counts of an evaluation: `success`, `return` or the name of a metric, on a scale where 1 is the optimum."""

    name: str
    low: float = 0.0
    high: float = 1.0
    has_optimum: bool = True  # false for a figure of which the optimum is not known

    @classmethod
    def parsed(cls, text: str, example: Evaluation) -> "Score":
        """Return the score of a text NAME or NAME:LOW:HIGH; an empty one is success, or return without it.

        Raises:
            TestudoError: no figure of the ``example`` has this name, or the scale is none.
        """
        name, *scale = text.split(":")
        name = name or (SUCCESS if example.has_success else RETURN)
        known = [*([SUCCESS] if example.has_success else []), RETURN, *example.metrics]
        try:
            bounds = [float(word) for word in scale]
        except ValueError:
            bounds = [math.nan]
        is_scale = len(bounds) == 2 and all(map(math.isfinite, bounds)) and bounds[0] != bounds[1]
        if name not in known or (bounds and not is_scale):
            raise TestudoError(
                f"--score: found {text!r}, expected NAME or NAME:LOW:HIGH with one of {', '.join(known)}"
            )
        if bounds:
            return cls(name, bounds[0], bounds[1])
        return cls(name, has_optimum=name == SUCCESS)

    @property
    def text(self) -> str:
        """Return what a table says of it."""
        if (self.low, self.high) == (0, 1):
            return self.name
        return f"{self.name}, from {self.low:g} (0) to {self.high:g} (1)"

    def of(self, found: Evaluation) -> float:
        """Return the score of an evaluation."""
        figures = {SUCCESS: found.success, RETURN: found.mean_return, **found.metrics}
        return (figures[self.name] - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Estimate:
    """A figure and its 95 % interval."""

    value: float
    low: float
    high: float

    def to_dict(self, *, has_interval: bool = True) -> dict[str, float | None]:
        """Return JSON-ready values."""
        ends = (self.low, self.high) if has_interval else (None, None)
        return {"value": self.value, "low": ends[0], "high": ends[1]}


@dataclass(frozen=True)
class Aggregates:
    """Estimates of one group of runs."""

    runs: int
    cells: tuple[Estimate, ...]  # interquartile mean over the runs, by cell
    iqm: Mapping[str, Estimate]  # by class of cells
    optimality_gap: Mapping[str, Estimate]
    mean: Mapping[str, Estimate]

    @property
    def has_interval(self) -> bool:
        """Return whether there are several runs, without which there is no interval."""
        return self.runs > 1


def aggregates(scores: np.ndarray, classes: Mapping[str, np.ndarray]) -> Aggregates:
    """Return the estimates of scores (runs, cells); ``classes`` are masks (cells,) by name.

    One bootstrap serves all of them, in which the runs of each cell are drawn anew.
    """
    from rliable import library, metrics  # noqa: PLC0415 -- slow to import
    from scipy.stats import trim_mean  # noqa: PLC0415 -- as rliable

    def figures(drawn: np.ndarray) -> np.ndarray:
        parts = [drawn[:, mask] for mask in classes.values()]
        return np.concatenate(
            [
                trim_mean(drawn, 0.25, axis=0),
                *(
                    [metrics.aggregate_iqm(part), metrics.aggregate_optimality_gap(part), metrics.aggregate_mean(part)]
                    for part in parts
                ),
            ]
        )

    with _alike():
        values, intervals = library.get_interval_estimates({"": scores}, figures, reps=_REPEATS)
    found = [Estimate(*map(float, row)) for row in np.stack([values[""], *intervals[""]], axis=1)]
    cells, rest = found[: scores.shape[1]], found[scores.shape[1] :]
    by_class = [dict(zip(classes, rest[index::3], strict=True)) for index in range(3)]
    return Aggregates(len(scores), tuple(cells), *by_class)


def episode_iqm(returns: np.ndarray) -> Estimate:
    """Return the interquartile mean of the returns (E,) of one policy, with a bootstrap interval over its episodes.

    The interval says how far other episodes would lead; of other seeds of the training it says nothing.
    """
    from rliable import library  # noqa: PLC0415 -- slow to import
    from scipy.stats import trim_mean  # noqa: PLC0415 -- as rliable

    def figures(drawn: np.ndarray) -> np.ndarray:
        return np.array([trim_mean(drawn.reshape(-1), 0.25)])

    with _alike():
        values, intervals = library.get_interval_estimates({"": returns[:, None]}, figures, reps=_REPEATS)
    return Estimate(float(values[""][0]), *(float(end[0]) for end in intervals[""]))


def improvements(scores: np.ndarray, others: np.ndarray, classes: Mapping[str, np.ndarray]) -> Mapping[str, Estimate]:
    """Return by class the probability that a run (runs, cells) is better in a cell than one of the ``others``."""
    from rliable import library  # noqa: PLC0415 -- slow to import

    def figures(drawn: np.ndarray, other: np.ndarray) -> np.ndarray:
        each = probability_of_improvement(drawn, other)
        return np.array([each[mask].mean() for mask in classes.values()])

    with _alike():
        values, intervals = library.get_interval_estimates({"": [scores, others]}, figures, reps=_REPEATS)
    rows = np.stack([values[""], *intervals[""]], axis=1)
    return {name: Estimate(*map(float, row)) for name, row in zip(classes, rows, strict=True)}


def probability_of_improvement(scores: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return for each cell the share of pairs of runs in which the first is better, where equal ones count half.

    That is `rliable`'s of the same name, which takes a hundred times as long.
    """
    first, second = scores[:, None], others[None]
    return np.mean((first > second) + 0.5 * (first == second), axis=(0, 1))


@contextmanager
def _alike() -> Iterator[None]:
    """Let `rliable`, which draws from NumPy's global generator, draw the same every time."""
    legacy: Any = np.random
    before = legacy.get_state()
    legacy.seed(_SEED)
    try:
        yield
    finally:
        legacy.set_state(before)
