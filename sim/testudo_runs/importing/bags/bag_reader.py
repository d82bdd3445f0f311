"""Reads external bags as one recording; samples of several bags are merged on the clock of the first one."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from testudo_runs.bags.bag_contents import NANO, BagError, BagMessage, BagTopic, Tell
from testudo_runs.bags.bag_source import BagSource
from testudo_runs.importing.bags.bag_series import BagSeries, read_series, topics_for
from testudo_runs.importing.bags.clock_offsets import BagClock, ClockMarks, clocks_of
from testudo_runs.importing.bags.clock_steps import CLOCK, record_times
from testudo_runs.importing.bags.motion_matching import motion_of
from testudo_runs.importing.bags.topic_decoding import TopicSamples, frame_of
from testudo_runs.importing.mapping.mapping_file import ReadMap
from testudo_runs.importing.mapping.topic_mapping import TopicMap, parse_topics
from testudo_runs.recording.recording import ROLES, Recording, RobotRecording, Series

_CLEARLY_NS = 5_000_000


@dataclass(frozen=True)
class _Copy:
    """Samples of one role of a robot in one bag."""

    samples: TopicSamples
    clock: BagClock
    entry: TopicMap

    @property
    def sent_ns(self) -> np.ndarray:
        """Return the stamps (T,) [ns] on the clock of the sender."""
        return self.samples.stamp_ns - self.samples.ahead_ns

    @property
    def late_ns(self) -> float:
        """Return the least distance [ns] from stamps to times of recording; small if both are of one clock."""
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

    A message in several bags has one stamp, that of its sender; the clock of the sender is taken to be that of the bag
    whose stamps are nearest to the times of recording. Commands without stamps come from one bag for its whole span.
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
    """Return the stamps (T,) of a copy converted with the clock of the bag that owns them."""
    return owner.clock.apply(copy.sent_ns + owner.samples.ahead_ns)


def _joined(first: TopicSamples, second: TopicSamples, rows: np.ndarray) -> TopicSamples:
    stamp, log, values = (
        np.concatenate([getattr(first, name), getattr(second, name)[rows]]) for name in ("stamp_ns", "log_ns", "values")
    )
    order = np.argsort(log, kind="stable")
    return TopicSamples(
        stamp[order], log[order], values[order], first.frame or second.frame, first.has_stamp and second.has_stamp
    )


_LEAST_HASHED = 32  # bytes; shorter messages can be equal without being the same one
_LATCHED = re.compile(r"durability:\s*(1|transient_local)\b")
_SEEN = ("pose", "odometry", "imu")  # roles that show a motion; a command only precedes one

Marked = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Hashes (K,) of messages, their times of recording [ns] and their indices in the bag."""


def read_bags(
    paths: Sequence[str | Path],
    mapping: ReadMap,
    tell: Tell,
    damage: list[str],
    *,
    msg_path: Sequence[str | Path] = (),
    offsets: Mapping[str, float] | None = None,
) -> Recording:
    """Read one bag, or several of the same run, as one recording on the clock of the first bag.

    Its ``info`` holds ``notes`` (choices made) and ``clocks`` (of several bags, with uncertainty).

    ``mapping`` has a section `topics`; ``tell`` gets the completed fraction; ``damage`` collects a sentence for each
    loss; ``msg_path`` are folders with .msg files of custom messages; ``offsets`` are seconds to add to the times of a
    bag, by its name, estimated if not given.

    Raises:
        BagError: no bag, a missing topic or one of an unsuitable type, or clocks without a common reference.
        MapError: invalid section `topics`.
    """
    entries = parse_topics(mapping)
    folders = [Path(folder) for folder in msg_path]
    sources = [BagSource(path, damage) for path in paths]
    _check_names(sources, entries)
    bags: list[BagSeries] = []
    hashes: list[tuple[np.ndarray, np.ndarray]] = []
    for number, source in enumerate(sources):
        found, marks = _collect(
            source,
            _entries_for(source, entries),
            len(sources) > 1,
            lambda share, number=number: tell((number + share) / len(sources)),
        )
        bags.append(read_series(source, found, _entries_for(source, entries), folders))
        hashes.append((marks[0], record_times(*marks[1:], bags[-1].steps)))
    _check_found(sources, bags, entries, mapping.file, damage)
    clocks = _clocks(bags, hashes, offsets or {})
    robots, start_ns = _robots(merged(bags, clocks), mapping, entries)
    info = _info(sources, bags, clocks) | {
        "clock_steps": [
            {
                "bag": bag.name,
                "whose": step.whose,
                "at_s": float(clocks[bag.name].apply(np.array(step.at_ns)) - start_ns) / NANO,
                "by_s": step.by_ns / NANO,
                "cut": step.cut,
            }
            for bag in bags
            for step in bag.steps
        ]
    }
    return Recording(robots, start_ns, None, info, not damage, tuple(damage))


def _info(sources: Sequence[BagSource], bags: Sequence[BagSeries], clocks: Mapping[str, BagClock]) -> dict[str, Any]:
    origins: dict[str, dict[str, list[dict[str, str]]]] = {}
    for source, bag in zip(sources, bags, strict=True):
        for entry in bag.samples:
            origins.setdefault(entry.robot, {}).setdefault(entry.role, []).append(
                {"bag": bag.name, "topic": entry.topic, "type": source.contents.topics[entry.topic].type}
            )
    notes = [note for source in sources for note in source.folder.notes]
    notes += [
        f"{source.name}: {CLOCK} is not used: several bags are aligned by their times of recording"
        for source in sources
        if len(sources) > 1 and source.contents.counts.get(CLOCK)
    ]
    notes += [f"{bag.name}: {note}" if len(bags) > 1 else note for bag in bags for note in bag.notes]
    return {
        "notes": notes,
        "origins": origins,
        "clocks": {name: asdict(clock) for name, clock in clocks.items()},
        "clock_sentences": [clock.sentence() for clock in list(clocks.values())[1:]],
        "files": [str(file) for source in sources for file in source.folder.files],
    }


def _collect(
    source: BagSource, entries: Sequence[TopicMap], several: bool, tell: Tell
) -> tuple[dict[BagTopic, list[BagMessage]], Marked]:
    """Return the needed messages, and hash, record time and index of those that occur once in the bag."""
    # several bags are aligned by their times of recording, not by /clock
    wanted = topics_for(entries) | (set() if several else {CLOCK})
    found: dict[BagTopic, list[BagMessage]] = {}
    marks: dict[int, tuple[int, int]] = {}
    for message in source.messages((lambda _: True) if several else (lambda topic: topic.name in wanted), tell):
        # a recorder gets latched messages at its start, so that their times are meaningless
        latched = message.topic.name.endswith("_static") or bool(_LATCHED.search(message.topic.qos))
        if several and len(message.data) >= _LEAST_HASHED and not latched:
            mark = hash((message.topic.type, message.data))
            marks[mark] = (0, 0) if mark in marks else (message.log_ns, message.order)
        if message.topic.name in wanted:
            found.setdefault(message.topic, []).append(message)
    once = {mark: seen for mark, seen in marks.items() if seen[0]}
    log_ns, order = np.array(list(once.values()), np.int64).reshape(-1, 2).T
    return found, (np.fromiter(once, np.int64, len(once)), log_ns, order)


def _entries_for(source: BagSource, entries: Sequence[TopicMap]) -> list[TopicMap]:
    return [entry for entry in entries if entry.bag in ("", source.name)]


def _check_names(sources: Sequence[BagSource], entries: Sequence[TopicMap]) -> None:
    names = [source.name for source in sources]
    for name in names:
        if names.count(name) > 1:
            raise BagError(f"{name}: two of the bags have this name; give them different names")
    for entry in entries:
        if entry.bag and entry.bag not in names:
            raise BagError(f"topics: {entry.topic}: bag: found {entry.bag!r}, expected one of {', '.join(names)}")


def _check_found(
    sources: Sequence[BagSource], bags: Sequence[BagSeries], entries: Sequence[TopicMap], file: str, damage: list[str]
) -> None:
    """Report mapped topics that no bag holds as lost; refuse if none is found."""
    missing = [entry for entry in entries if not any(entry in bag.samples for bag in bags)]
    there = ", ".join(sorted({name for source in sources for name in source.contents.counts})) or "no topics"
    if len(missing) == len(entries) and not damage:
        raise BagError(f"{file}: topics: {missing[0].topic} holds no message; there are {there}")
    damage += [
        f"{file}: topics: {entry.topic} holds no message, so that {entry.robot} is without {entry.role}; "
        f"correct the name, or take the entry out; there are {there}"
        for entry in missing
    ]


def _clocks(
    bags: Sequence[BagSeries], hashes: Sequence[tuple[np.ndarray, np.ndarray]], offsets: Mapping[str, float]
) -> dict[str, BagClock]:
    marks = []
    for bag, (mark, log_ns) in zip(bags, hashes, strict=True):
        motions: dict[str, list] = {}
        for entry, samples in bag.samples.items():
            if entry.role in _SEEN and len(bags) > 1:
                motion = motion_of(entry.role, samples.stamp_ns / NANO, samples.values)
                if motion is not None:
                    motions.setdefault(entry.robot, []).append(motion)
        marks.append(ClockMarks(bag.name, mark, log_ns, motions))
    return clocks_of(marks, offsets)


def _robots(
    merged: Mapping[tuple[str, str], tuple[TopicSamples, TopicMap]], mapping: ReadMap, entries: Sequence[TopicMap]
) -> tuple[dict[str, RobotRecording], int]:
    firsts = [int(min(samples.stamp_ns.min(), samples.log_ns.min())) for samples, _ in merged.values() if len(samples)]
    if not firsts:
        raise BagError("no sample of any robot could be read")
    start_ns = max(min(firsts), 0)
    robots = {}
    for name in dict.fromkeys(entry.robot for entry in entries):
        series = {}
        for role in ROLES:
            if (name, role) in merged:
                samples, entry = merged[name, role]
                series[role] = Series(
                    (samples.stamp_ns - start_ns) / NANO,
                    samples.values,
                    (samples.log_ns - start_ns) / NANO,
                    frame_of(entry, samples),
                )
        kind = next((entry.robot_type for entry in entries if entry.robot == name and entry.robot_type), "")
        if series:
            robots[name] = RobotRecording(name, kind or mapping.robot_type, series)
    return robots, start_ns
