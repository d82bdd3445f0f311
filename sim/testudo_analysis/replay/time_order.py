"""Brings recorded series into the order of time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from testudo_deploy.contract.messages import TickRecord
from testudo_runs.run_reader import Track


def ticks_in_order(records: Sequence[TickRecord]) -> tuple[TickRecord, ...]:
    """Return the ticks as they were made; a process that started anew counts from zero again."""
    if len({record.sequence for record in records}) == len(records):
        return tuple(sorted(records, key=lambda record: record.sequence))
    return tuple(sorted(records, key=lambda record: record.stamp_s))


def track_in_order(track: Track) -> Track:
    """Return the samples by stamp, each stamp once."""
    _, index = np.unique(track.stamp_s, return_index=True)
    return Track(
        track.stamp_s[index],
        track.received_s[index],
        track.position_world[index],
        track.yaw[index],
        track.velocity[index],
    )
