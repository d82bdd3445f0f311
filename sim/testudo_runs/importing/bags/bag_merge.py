"""Puts the samples of several bags together on one clock, each sample once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from testudo_runs.importing.bag_files.topic_decoding import TopicSamples
from testudo_runs.importing.bags.bag_series import BagSeries
from testudo_runs.importing.mapping.topic_mapping import TopicMap
from testudo_runs.importing.synchronisation.clock_offsets import BagClock

_CLEARLY_NS = 5_000_000


@dataclass(frozen=True)
class _Copy:
    """What one bag holds of a role of a robot."""

    samples: TopicSamples
    clock: BagClock
    entry: TopicMap

    @property
    def sent_ns(self) -> np.ndarray:
        """Return the stamps (T,) as the sender wrote them."""
        return self.samples.stamp_ns - self.samples.ahead_ns

    @property
    def late_ns(self) -> float:
        """Return how far the stamps are from the times of recording: by little where both are of one clock."""
        return abs(float(np.quantile(self.samples.log_ns - self.sent_ns, 0.01))) if len(self.samples) else np.inf

    def on_first_clock(self) -> TopicSamples:
        """Return the samples on the clock of the first bag."""
        return replace(
            self.samples, stamp_ns=self.clock.apply(self.samples.stamp_ns), log_ns=self.clock.apply(self.samples.log_ns)
        )


def merged(
    bags: Sequence[BagSeries], clocks: Mapping[str, BagClock]
) -> dict[tuple[str, str], tuple[TopicSamples, TopicMap]]:
    """Return samples by robot and role on the clock of the first bag.

    A message that several bags hold bears one stamp: that of its sender, whose clock is taken to be that of the bag in
    which the stamps lie nearest to the times of recording. Commands without stamps are taken from one bag as long as it
    has them.
    """
    copies: dict[tuple[str, str], list[_Copy]] = {}
    for bag in bags:
        for entry, samples in bag.samples.items():
            copies.setdefault((entry.robot, entry.role), []).append(_Copy(samples, clocks[bag.name], entry))
    return {key: (_one(found), found[0].entry) for key, found in copies.items()}


def _one(copies: Sequence[_Copy]) -> TopicSamples:
    joined = copies[0].on_first_clock()
    first = copies[0]
    for copy in copies[1:]:
        mine = copy.on_first_clock()
        if not len(mine) or not len(joined):
            joined = mine if len(mine) else joined
            first = copy if len(mine) else first
            continue
        if not (copy.samples.has_stamp and first.samples.has_stamp):
            inside = (mine.log_ns >= joined.log_ns.min()) & (mine.log_ns <= joined.log_ns.max())
            joined = _joined(joined, mine, ~inside)
            continue
        shared = np.isin(copy.sent_ns, first.sent_ns)
        if shared.sum() <= len(shared) // 2:
            joined = _joined(joined, mine, np.ones(len(mine), bool))
        elif copy.late_ns + _CLEARLY_NS < first.late_ns:
            others = ~np.isin(first.sent_ns, copy.sent_ns)
            rest = replace(first.samples, stamp_ns=_stamps(first, copy), log_ns=first.clock.apply(first.samples.log_ns))
            joined, first = _joined(mine, rest, others), copy
        else:
            joined = _joined(joined, replace(mine, stamp_ns=_stamps(copy, first)), ~shared)
    return joined


def _stamps(copy: _Copy, owner: _Copy) -> np.ndarray:
    """Return stamps (T,) of a copy as those of the bag whose clock they are of."""
    return owner.clock.apply(copy.sent_ns + owner.samples.ahead_ns)


def _joined(first: TopicSamples, second: TopicSamples, rows: np.ndarray) -> TopicSamples:
    stamp, log, values = (
        np.concatenate([getattr(first, name), getattr(second, name)[rows]]) for name in ("stamp_ns", "log_ns", "values")
    )
    order = np.argsort(log, kind="stable")
    return TopicSamples(
        stamp[order], log[order], values[order], first.frame or second.frame, first.has_stamp and second.has_stamp
    )
