"""Composition of a dataset by episode return: Good, Medium, Poor, or a Replay mixture.

The classes are those of Off-the-Grid MARL (Formanek et al., 2023), which chooses the class borders by hand for each
task. Here the return is normalised: 0 is a team that stands still at the same start for the whole time limit, 1 is the
best episode of the dataset or a return that the user gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import kurtosis, skew

from testudo_policies.dataset.episodes import DatasetEpisode

GOOD, MEDIUM, POOR, REPLAY = "Good", "Medium", "Poor", "Replay"
GOOD_FROM, MEDIUM_FROM = 0.75, 0.4  # lower borders of the classes on the normalised scale
_MAJORITY = 2 / 3  # a dataset is named after the class of at least this share of its episodes, else Replay
_BINS = 10


@dataclass(frozen=True)
class CompositionProfile:
    """Returns and classes of the episodes of a dataset."""

    name: str  # good, Medium, Poor or Replay
    reference_return: float  # the return that counts as 1
    returns: tuple[float, ...]  # sum of rewards of every episode, mean over the robots
    quality: tuple[float, ...]  # the returns, normalised from 0 (standing still) to 1 (reference)
    classes: tuple[str, ...]  # class of every episode

    @classmethod
    def of(cls, episodes: Sequence[DatasetEpisode], good_return: float | None = None) -> CompositionProfile:
        """Return the profile of episodes; ``good_return`` is the return that counts as 1."""
        returns = np.array([episode.team_return for episode in episodes])
        rest = np.array([episode.rest_return for episode in episodes])
        best = float(returns.max()) if good_return is None else good_return
        quality = (returns - rest) / np.maximum(best - rest, 1e-9)
        classes = tuple(_class(value) for value in quality)
        names = [name for name in (GOOD, MEDIUM, POOR) if classes.count(name) >= _MAJORITY * len(classes)]
        return cls(names[0] if names else REPLAY, best, tuple(returns.tolist()), tuple(quality.tolist()), classes)

    def count(self, name: str) -> int:
        """Return the number of episodes of a class."""
        return self.classes.count(name)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values, with statistics and histogram of the returns."""
        returns = np.array(self.returns)
        counts, edges = np.histogram(returns, _BINS)
        return {
            "name": self.name,
            "scale": {"0": "standing still", "1": self.reference_return},
            "classes": {name: self.count(name) for name in (GOOD, MEDIUM, POOR)},
            "borders": {GOOD: GOOD_FROM, MEDIUM: MEDIUM_FROM},
            "return": statistics(returns),
            "histogram": {"counts": counts.tolist(), "edges": edges.tolist()},
            "episodes": [
                {"return": a, "quality": b, "class": c}
                for a, b, c in zip(self.returns, self.quality, self.classes, strict=True)
            ],
        }


def statistics(returns: np.ndarray) -> dict[str, float | None]:
    """Return the profile of Off-the-Grid MARL of episode returns (K,): None where it is not defined.

    ``mode`` is the middle of the fullest of ten bins; ``skewness`` and ``kurtosis`` (0 for a normal distribution) need
    returns that differ.
    """
    counts, edges = np.histogram(returns, _BINS)
    fullest = int(np.argmax(counts))
    low, median, high = np.percentile(returns, (25, 50, 75))
    shaped = np.ptp(returns) > 0
    return {
        "mean": float(returns.mean()),
        "std": float(returns.std()),
        "min": float(returns.min()),
        "p25": float(low),
        "median": float(median),
        "p75": float(high),
        "max": float(returns.max()),
        "mode": float((edges[fullest] + edges[fullest + 1]) / 2),
        "range": float(np.ptp(returns)),
        "interquartile": float(high - low),
        "skewness": float(skew(returns)) if shaped else None,
        "kurtosis": float(kurtosis(returns)) if shaped else None,
    }


def _class(quality: float) -> str:
    if quality >= GOOD_FROM:
        return GOOD
    return MEDIUM if quality >= MEDIUM_FROM else POOR
