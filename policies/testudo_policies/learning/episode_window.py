"""Return and success of the newest episodes of a training run, and the end of a run that reached its aim."""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, pstdev

from testudo_hardware.errors import TestudoError

SUCCESS, RETURN, FLAT = "success", "return", "flat"
_WHOLE = 0.99  # mean difficulty of a curriculum
_NAMES = (SUCCESS, RETURN)
_FEWEST = 20  # updates with a known return before a curve can be flat
_RISE, _NOISE = 0.02, 3.0
METRIC = "metric/"
"""Begin of the names of what a scenario counts in a decision."""
_COUNTS = ("train/successes", "train/episodes", "train/reward")


class EpisodeWindow:
    """The updates of the last full length of an episode.

    Episodes that succeed end early. Of the episodes that end in a single update, or soon after the start of a run, too
    many are therefore successes; in a whole length of an episode every world ends one at least.
    """

    def __init__(self, horizon: int, rollout: int, decisions: int) -> None:
        """Take the decisions in an episode, those of a world in an update, and those of all worlds."""
        self._updates = math.ceil(horizon / rollout)
        self._decisions = decisions
        self._recent: deque[dict[str, float]] = deque(maxlen=self._updates)

    def add(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Add an update; return ``train/success``, ``train/return``, ``train/episode_length``, and ``episode/<name>``.

        Nothing before the window is full. The return of an episode is that of one robot, the mean over the team; its
        length is in decisions; ``episode/<name>`` is the sum of what the scenario counts.
        """
        kept = [name for name in metrics if name.startswith(METRIC)]
        self._recent.append({name: metrics[name] for name in (*_COUNTS, *kept)})
        successes, episodes, reward = (sum(row[name] for row in self._recent) for name in _COUNTS)
        if len(self._recent) < self._updates or not episodes:
            return {}
        whole = [name for name in kept if all(name in row for row in self._recent)]
        each = self._decisions / episodes
        return {
            "train/success": successes / episodes,
            "train/return": reward * each,
            "train/episode_length": self._updates * each,
            **{f"episode/{name.removeprefix(METRIC)}": each * sum(row[name] for row in self._recent) for name in whole},
        }


@dataclass(frozen=True)
class Aim:
    """The figure at which a run ends before its last update."""

    name: str  # success or return
    value: float

    @classmethod
    def parsed(cls, text: str) -> "Aim | FlatCurve | None":
        """Return the aim of a text such as ``success=0.98`` or ``flat``; None of an empty text.

        Raises:
            TestudoError: another name, or no finite number.
        """
        if not text:
            return None
        if text == FLAT:
            return FlatCurve()
        name, _, number = text.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if name not in _NAMES or not math.isfinite(value):
            raise TestudoError(f"--until: found {text!r}, expected success=NUMBER, return=NUMBER or flat")
        return cls(name, value)

    def is_reached(self, metrics: Mapping[str, float]) -> bool:
        """Return whether the newest episodes, none of them made easier, reach it; false while that is not known."""
        is_whole = metrics.get("train/difficulty", 1.0) >= _WHOLE
        return is_whole and metrics.get(f"train/{self.name}", -math.inf) >= self.value


class FlatCurve:
    """The end of a run whose return has risen, and then rises no more.

    It is flat when the mean of its newest quarter is above that of the quarter before by less than 2 % of the whole
    rise. A curve that has not yet risen by three deviations of its newest quarter is not flat: nothing is learned yet.
    """

    def __init__(self) -> None:
        self._returns: list[float] = []

    def is_reached(self, metrics: Mapping[str, float]) -> bool:
        """Add the figures of the next update; return whether the curve is flat."""
        if "train/return" not in metrics or metrics.get("train/difficulty", 1.0) < _WHOLE:
            return False
        self._returns.append(metrics["train/return"])
        quarter = len(self._returns) // 4
        if len(self._returns) < _FEWEST:
            return False
        first, before, newest = (
            self._returns[:quarter],
            self._returns[-2 * quarter : -quarter],
            self._returns[-quarter:],
        )
        rise = fmean(newest) - fmean(first)
        return rise > _NOISE * pstdev(newest) and fmean(newest) - fmean(before) < _RISE * rise
