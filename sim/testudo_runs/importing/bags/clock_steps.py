"""Finds and removes clock steps while a bag was recorded: of the recorder, of a sender, or of both; uses /clock.

A step changes the delay from stamp to record between two flat levels; drift changes it gradually. The clock without a
jump shows that the other one was set. If both were set back, the size of the step is unknown: the bag is cut there, as
the two parts would overlap.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from testudo_runs.bags.bag_contents import NANO, BagMessage, BagTopic, clock_time
from testudo_runs.bags.cdr import Types, groups
from testudo_runs.importing.bags.topic_decoding import TF

_LEAST_NS = NANO // 10
_WINDOW, _FEWEST = 25, 3
_FLAT, _FLAT_NS = 0.05, 40_000_000
_AGREE, _DISORDER = 0.05, 0.05
_STAMP = {b"\0\1": struct.Struct("<iI"), b"\0\0": struct.Struct(">iI")}
_HEADER_AT, _TF_COUNT_AT = 4, 4


@dataclass(frozen=True)
class ClockStep:
    """One step of a clock."""

    whose: str  # name of the clock
    at_ns: int  # time of recording before it [ns]
    by_ns: int  # size [ns], positive forward
    order: int | None = None  # index in the bag of the first message after it; None for the clock of a sender
    cut: bool = False  # the size is uncertain, so the bag is cut there

    def sentence(self) -> str:
        """Return the step and its correction as a sentence."""
        way = "forward" if self.by_ns > 0 else "back"
        return (
            f"{self.whose} was set {way} by {abs(self.by_ns) / NANO:.3f} s at {clock_time(self.at_ns)}; "
            f"the following times are shifted {'back' if self.by_ns > 0 else 'forward'} by the same amount"
        )


@dataclass(frozen=True)
class _Times:
    """Messages of one topic in the order of the file."""

    order: np.ndarray
    log_ns: np.ndarray
    stamp_ns: np.ndarray | None


def delay_changes(log_ns: np.ndarray, stamp_ns: np.ndarray) -> list[tuple[int, int]]:
    """Return the steps of the delay from stamp (T,) to record (T,) between flat levels: index and change [ns]."""
    late = log_ns - stamp_ns
    if len(late) < 2 * _FEWEST or not (np.diff(stamp_ns) > 0).mean() > 0.5:  # such stamps are not times
        return []
    jump = np.diff(late)
    at = np.flatnonzero(np.abs(jump) > _LEAST_NS // 2) + 1
    at = at[(at >= _FEWEST) & (at <= len(late) - _FEWEST)]
    sides = [
        late[np.clip(at[:, None] + reach, 0, len(late) - 1)] for reach in (np.arange(-_WINDOW, 0), np.arange(_WINDOW))
    ]
    by = np.median(sides[1], axis=1) - np.median(sides[0], axis=1)
    flat = np.maximum(_FLAT * np.abs(by), _FLAT_NS)
    good = (np.abs(by) >= _LEAST_NS) & (np.abs(jump[at - 1] - by) < 2 * flat)
    for side in sides:
        good &= np.ptp(np.quantile(side, (0.1, 0.9), axis=1), axis=0) < flat
    return [(int(k), round(float(size))) for k, size in zip(at[good], by[good], strict=True)]


def falls(times_ns: np.ndarray) -> list[int]:
    """Return the indices of permanent steps back of times (T,); single strays and unordered times do not count."""
    steps = np.diff(times_ns)
    if (steps < -_FLAT_NS).mean() > _DISORDER if len(steps) else True:
        return []
    found, period = [], max(float(np.median(steps)), 1.0)
    for k in (np.flatnonzero(steps < -_LEAST_NS) + 1).tolist():
        # half of the samples that such a step back makes overlap
        reach = int(np.clip(-steps[k - 1] / period / 2, 2, _WINDOW))
        before, after = times_ns[max(0, k - reach) : k], times_ns[k : k + reach]
        if min(len(before), len(after)) >= 2 and after.max() <= before.min():
            found.append(k)
    return found


def continuous(log_ns: np.ndarray, stamp_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[tuple[int, int, bool]]]:
    """Return times of recording and stamps (T,) of one sender, in the order of the file, without clock steps.

    Also returns for each step its index, its size [ns], and whether it was of the stamps.
    """
    log_ns, stamp_ns, changes = log_ns.copy(), stamp_ns.copy(), []
    for k, by_ns in delay_changes(log_ns, stamp_ns):
        usual = np.median(np.diff(stamp_ns))
        stamped = bool(abs(stamp_ns[k] - stamp_ns[k - 1] - usual) > abs(log_ns[k] - log_ns[k - 1] - usual))
        changes.append((k, -by_ns if stamped else by_ns, stamped))
        if stamped:
            stamp_ns[k:] += by_ns
        else:
            log_ns[k:] -= by_ns
    return log_ns, stamp_ns, changes


def recorder_steps(found: Mapping[BagTopic, Sequence[BagMessage]], types: Types) -> list[ClockStep]:
    """Return the steps of the clock of the recorder, in the order of the bag."""
    times = [_times(topic, messages, types) for topic, messages in found.items() if messages]
    if not times:
        return []
    every = np.concatenate([one.order for one in times])
    place = np.argsort(every)
    order, log_ns = every[place], np.concatenate([one.log_ns for one in times])[place]
    steps = _by_stamps(times, order, log_ns)
    stepless_ns = record_times(log_ns, order, steps)
    back = [
        (int(one.order[k - 1]), int(one.order[k]))
        for one in times
        for k in falls(record_times(one.log_ns, one.order, steps))
    ]
    for before, after in _common(back):
        inside = (order > before) & (order <= after)
        k = int(np.flatnonzero(inside)[np.diff(stepless_ns, prepend=stepless_ns[0])[inside].argmin()])
        by_ns = int(stepless_ns[k] - stepless_ns[k - 1])
        steps.append(ClockStep("the clock", int(log_ns[k - 1]), by_ns, int(order[k]), cut=True))
    return sorted(steps, key=lambda step: step.order or 0)


def record_times(log_ns: np.ndarray, order: np.ndarray, steps: Sequence[ClockStep]) -> np.ndarray:
    """Return times of recording (T,) without the steps of the recorder; ``order`` (T,) are indices in the bag."""
    log_ns = log_ns.copy()
    for step in steps:
        if not step.cut and step.order is not None:
            log_ns[order >= step.order] -= step.by_ns
    return log_ns


def without_recorder_steps(
    found: Mapping[BagTopic, Sequence[BagMessage]], steps: Sequence[ClockStep], name: str, lost: list[str]
) -> dict[BagTopic, list[BagMessage]]:
    """Return messages without the steps of the recorder; of a cut bag the largest part.

    ``name`` is that of the bag, ``lost`` collects a sentence for each part left out.
    """
    if not steps:
        return {topic: list(messages) for topic, messages in found.items()}
    edges = [step.order for step in steps if step.cut and step.order is not None]
    orders = np.array([message.order for messages in found.values() for message in messages])
    parts = np.bincount(np.searchsorted(edges, orders, side="right"), minlength=len(edges) + 1)
    best = int(parts.argmax())
    for k, step in enumerate(step for step in steps if step.cut):
        side = "before it" if k < best else "from then on"
        text = (
            f"{name}: the clock of the recorder was set back by about {abs(step.by_ns) / NANO:.1f} s at "
            f"{clock_time(step.at_ns)}, and no stamps show the size: cut there; {parts[k + (k >= best)]} "
            f"messages {side} are left out"
        )
        lost += [] if text in lost else [text]
    kept: dict[BagTopic, list[BagMessage]] = {}
    for topic, messages in found.items():
        mine = [one for one in messages if int(np.searchsorted(edges, one.order, side="right")) == best]
        log, order = np.array([(one.log_ns, one.order) for one in mine], np.int64).reshape(-1, 2).T
        log = record_times(log, order, steps)
        kept[topic] = [one._replace(log_ns=at) for one, at in zip(mine, log.tolist(), strict=True)]
    return kept


def _by_stamps(times: Sequence[_Times], order: np.ndarray, log_ns: np.ndarray) -> list[ClockStep]:
    """Return the steps of the recorder that continuous stamps reveal."""
    changes: list[tuple[int, int, int]] = []  # last message before, first message after, change of the delay [ns]
    for one in times:
        stamp_ns = one.stamp_ns
        if stamp_ns is None:
            continue
        for k, by_ns in delay_changes(one.log_ns, stamp_ns):
            if stamp_ns[k] - stamp_ns[k - 1] > -_LEAST_NS:
                changes.append((int(one.order[k - 1]), int(one.order[k]), by_ns))
    steps, jumps = [], np.diff(log_ns, prepend=log_ns[0])
    for before, after in _common([change[:2] for change in changes]):
        sizes = [by_ns for first, last, by_ns in changes if first <= before and last >= after]
        by_ns = int(np.median(sizes))
        inside = np.flatnonzero((order > before) & (order <= after))
        k = int(inside[jumps[inside].argmin() if by_ns < 0 else jumps[inside].argmax()])
        # a step back shows in the file, and a step forward has no messages within it
        shown = jumps[k] < -_LEAST_NS // 4 if by_ns < 0 else jumps[k] >= 0.9 * by_ns
        if shown and np.ptp(sizes) <= max(_AGREE * abs(by_ns), _FLAT_NS):
            steps.append(ClockStep("the clock of the recorder", int(log_ns[k - 1]), by_ns, int(order[k])))
    return steps


def _common(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the intersection of each group of overlapping spans."""
    found: list[tuple[int, int]] = []
    for before, after in sorted(spans):
        if found and before < found[-1][1]:
            found[-1] = max(before, found[-1][0]), min(after, found[-1][1])
        else:
            found.append((before, after))
    return found


def _times(topic: BagTopic, messages: Sequence[BagMessage], types: Types) -> _Times:
    order = np.array([message.order for message in messages])
    log_ns = np.array([message.log_ns for message in messages], np.int64)
    at = _stamp_at(topic, types)
    stamps = [] if at is None else [_stamp(message.data, at) for message in messages]
    whole = bool(stamps) and None not in stamps
    return _Times(order, log_ns, np.array(stamps, np.int64) if whole else None)


def _stamp_at(topic: BagTopic, types: Types) -> int | None:
    """Return the byte offset of the header stamp; None if the message does not begin with a header."""
    if topic.type == TF:
        return _HEADER_AT + _TF_COUNT_AT
    if not types.knows(topic):
        return None
    first = types.store(topic).fielddefs[topic.type][1][:1]
    return _HEADER_AT if first and first[0][0] == "header" else None


def _stamp(data: bytes, at: int) -> int | None:
    form = _STAMP.get(bytes(data[:2]))
    if form is None or len(data) < at + form.size:
        return None
    seconds, rest = form.unpack_from(data, at)
    return seconds * NANO + rest


CLOCK = "/clock"
_TYPE = "rosgraph_msgs/msg/Clock"
_FEWEST_TICKS = 10


def convert_to_sim_time(
    found: Mapping[BagTopic, Sequence[BagMessage]], types: Types
) -> tuple[dict[BagTopic, list[BagMessage]], list[str]]:
    """Return messages with times of recording in simulated time, if the bag has `/clock`, and a note about it."""
    same = {topic: list(messages) for topic, messages in found.items()}
    topic = next((one for one in same if one.name == CLOCK and one.type == _TYPE), None)
    if topic is None or not types.knows(topic) or len(same[topic]) < _FEWEST_TICKS:
        return same, []
    log_ns, sim_ns = _marks(same[topic], topic, types)
    if len(sim_ns) < _FEWEST_TICKS or sim_ns[-1] <= sim_ns[0]:
        return same, []
    if (np.diff(sim_ns) < 0).any():
        return same, [f"{CLOCK}: simulated time goes back within the bag: it is not used; times of recording stay"]
    recorded, simulated = (log_ns - log_ns[0]).astype(float), (sim_ns - sim_ns[0]).astype(float)
    rate = simulated[-1] / recorded[-1]
    moved: dict[BagTopic, list[BagMessage]] = {}
    for one, messages in same.items():
        at = np.array([message.log_ns - log_ns[0] for message in messages], float)
        # at the mean rate before the first and after the last message of /clock
        outside = np.minimum(at, 0.0) + np.maximum(at - recorded[-1], 0.0)
        times = np.interp(at, recorded, simulated) + rate * outside
        moved[one] = [m._replace(log_ns=int(log_ns[0]) + round(t)) for m, t in zip(messages, times, strict=True)]
    note = (
        f"{CLOCK}: simulated time ran at {rate:.4g} of the recorder's; all times are simulated, from the time of "
        "day of its first message on"
    )
    return moved, [note]


def _marks(messages: Sequence[BagMessage], topic: BagTopic, types: Types) -> tuple[np.ndarray, np.ndarray]:
    """Return increasing times of recording of `/clock` and its simulated times, both (T,) [ns]."""
    log = np.array([message.log_ns for message in messages], np.int64)
    sim = np.zeros(len(messages), np.int64)
    read = np.zeros(len(messages), bool)
    for group in groups(types.store(topic), topic.type, [message.data for message in messages]):
        seconds, rest = (group.column(f"clock.{part}").astype(np.int64) for part in ("sec", "nanosec"))
        sim[group.index] = seconds * NANO + rest
        read[group.index] = True
    log, sim = log[read], sim[read]
    grows = np.r_[True, log[1:] > np.maximum.accumulate(log)[:-1]] if len(log) else np.zeros(0, bool)
    return log[grows], sim[grows]
