"""Whether one policy is better than another: a paired test on the same episodes that may be looked at at any time.

Testing by betting (Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", Journal of the
Royal Statistical Society B, 2024, arXiv 2010.09686). Somebody bets on d, the new policy's score of an episode less the
old one's, in -1 to 1, against the claim that its mean is at most 0: K_t = product of (1 + lambda_t d_t), where lambda_t
in 0 to 1/2 is known before d_t. Under the claim K is a supermartingale from 1, so that by Ville's inequality it reaches
1/alpha at any time with a probability of at most alpha. The bet is their aGRAPA: lambda_t = mean / (variance +
mean^2) of the differences so far, clipped. The mean of several such K is one, too (Vovk and Wang, Annals of Statistics
2021): the evidence from several environments that the policy is better in one of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from testudo_policies.evaluation.evaluation import EpisodeBatch

ALPHA = 0.05
NEEDED = 1 / ALPHA
"""Evidence from which a policy is better; an equal one reaches it in at most one of twenty improvements."""
_MOST = 0.5  # largest share of the capital in a bet
_FIRST_VARIANCE = 0.25  # of one imagined difference of 0 before the first one
_TIME_WORTH = 0.5  # share of the score of an episode that a success at once has over one at the time limit


@dataclass(frozen=True)
class EpisodeOutcomes:
    """Held-out episodes of one policy; arrays (E,) in the order of their seeds."""

    success: np.ndarray
    duration_s: np.ndarray
    episode_return: np.ndarray
    contact: np.ndarray
    horizon_s: float
    has_success: bool

    @classmethod
    def of(cls, batches: Sequence[EpisodeBatch], horizon_s: float) -> Self:
        """Return the outcomes of batches of episodes."""

        def joined(name: str) -> np.ndarray:
            return np.concatenate([np.asarray(getattr(batch, name), float) for batch in batches])

        columns = joined("success"), joined("duration_s"), joined("returns"), joined("contacts") > 0
        return cls(*columns, horizon_s, batches[0].has_success)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return what `to_dict` wrote."""
        known: dict[str, Any] = {
            name: np.asarray(value) if isinstance(value, list) else value for name, value in values.items()
        }
        return cls(**known)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in vars(self).items()}

    @property
    def score(self) -> np.ndarray:
        """Return the score (E,) in 0 to 1: a success, the more the sooner; 0 with a contact, or without success."""
        late = np.clip(self.duration_s / self.horizon_s, 0.0, 1.0)
        return np.where(self.contact, 0.0, self.success * (1 - _TIME_WORTH * late))


def differences(old: EpisodeOutcomes, new: EpisodeOutcomes) -> np.ndarray:
    """Return the differences (E,) in -1 to 1 of two policies on the same episodes; more than 0: the new one is better.

    Of a task without success, whose returns have no bounds, the sign of the difference of the returns; there an episode
    in which only one of them has a contact is lost to it.
    """
    if old.has_success:
        return new.score - old.score
    found = np.sign(new.episode_return - old.episode_return)
    return np.where(old.contact == new.contact, found, np.where(new.contact, -1.0, 1.0))


def capital(values: np.ndarray) -> np.ndarray:
    """Return the capital K (E,) after each difference (E,) in -1 to 1."""
    before = np.arange(1, len(values) + 1)  # the imagined one counts
    total = np.concatenate([[0.0], np.cumsum(values)[:-1]])
    squares = np.concatenate([[0.0], np.cumsum(values**2)[:-1]])
    mean = total / before
    variance = np.maximum((_FIRST_VARIANCE + squares) / before - mean**2, 1e-6)
    bet = np.clip(mean / (variance + mean**2), 0.0, _MOST)
    return np.cumprod(1 + bet * values)


def evidence(several: Sequence[np.ndarray]) -> float:
    """Return the largest evidence at any time, from differences in several environments; 1 without episodes."""
    grown = [capital(values) for values in several if len(values)]
    if not grown:
        return 1.0
    # where one has fewer episodes its capital stays
    length = max(map(len, grown))
    mean = np.mean([np.pad(one, (0, length - len(one)), mode="edge") for one in grown], axis=0)
    return float(max(1.0, mean.max()))
