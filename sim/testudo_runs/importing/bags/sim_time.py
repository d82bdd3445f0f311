"""Simulated time: where a bag holds `/clock`, robots lived by that, however fast it ran on the recorder's clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from testudo_runs.bags.bag_contents import NANO, BagMessage, BagTopic
from testudo_runs.importing.bag_files.cdr import groups
from testudo_runs.importing.bag_files.message_definitions import Types

CLOCK = "/clock"
_TYPE = "rosgraph_msgs/msg/Clock"
_FEWEST = 10


def convert_to_sim_time(
    found: Mapping[BagTopic, Sequence[BagMessage]], types: Types
) -> tuple[dict[BagTopic, list[BagMessage]], list[str]]:
    """Return messages whose times of recording go on as simulated time did, and what was done in words.

    Args:
        found: messages by topic, `/clock` among them if the bag has it.
        types: know its type.
    """
    same = {topic: list(messages) for topic, messages in found.items()}
    topic = next((one for one in same if one.name == CLOCK and one.type == _TYPE), None)
    if topic is None or not types.knows(topic) or len(same[topic]) < _FEWEST:
        return same, []
    log_ns, sim_ns = _marks(same[topic], topic, types)
    if len(sim_ns) < _FEWEST or sim_ns[-1] <= sim_ns[0]:
        return same, []
    if (np.diff(sim_ns) < 0).any():
        return same, [f"{CLOCK}: simulated time goes back within the bag: it is left aside; times of recording stay"]
    known, told = (log_ns - log_ns[0]).astype(float), (sim_ns - sim_ns[0]).astype(float)
    rate = told[-1] / known[-1]
    moved = {
        one: [
            message._replace(log_ns=int(log_ns[0]) + round(at))
            for message, at in zip(
                messages,
                _told(np.array([m.log_ns - log_ns[0] for m in messages], float), known, told, rate),
                strict=True,
            )
        ]
        for one, messages in same.items()
    }
    note = (
        f"{CLOCK}: simulated time ran at {rate:.4g} of the recorder's; all times are simulated, from the time of "
        "day of its first message on"
    )
    return moved, [note]


def _marks(messages: Sequence[BagMessage], topic: BagTopic, types: Types) -> tuple[np.ndarray, np.ndarray]:
    """Return when simulated times were recorded, growing, and these times [ns]."""
    log = np.array([message.log_ns for message in messages], np.int64)
    sim = np.zeros(len(messages), np.int64)
    read = np.zeros(len(messages), bool)
    for group in groups(types.store(topic), topic.type, [message.data for message in messages]):
        sim[group.index] = group.column("clock.sec").astype(np.int64) * NANO + group.column("clock.nanosec").astype(
            np.int64
        )
        read[group.index] = True
    log, sim = log[read], sim[read]
    grows = np.r_[True, log[1:] > np.maximum.accumulate(log)[:-1]] if len(log) else np.zeros(0, bool)
    return log[grows], sim[grows]


def _told(at: np.ndarray, known: np.ndarray, told: np.ndarray, rate: float) -> np.ndarray:
    """Return simulated times; before the first and after the last one by the mean rate."""
    outside = np.minimum(at, 0.0) + np.maximum(at - known[-1], 0.0)
    return np.interp(at, known, told) + rate * outside
