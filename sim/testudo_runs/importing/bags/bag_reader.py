"""Reads bags that are not ours as one recording."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from testudo_hardware.links.wire import WORLD_FRAME, body_frame
from testudo_runs.bags.bag_contents import NANO, BagError, BagMessage, BagTopic, Tell
from testudo_runs.importing.bag_files.bag_source import BagSource
from testudo_runs.importing.bag_files.topic_decoding import TopicSamples
from testudo_runs.importing.bags.bag_merge import merged
from testudo_runs.importing.bags.bag_series import BagSeries, read_series, topics_for
from testudo_runs.importing.bags.clock_steps import record_times
from testudo_runs.importing.bags.sim_time import CLOCK
from testudo_runs.importing.mapping.mapping_file import ReadMap
from testudo_runs.importing.mapping.topic_mapping import TopicMap, parse_topics
from testudo_runs.importing.synchronisation.clock_offsets import BagClock, ClockMarks, clocks_of
from testudo_runs.importing.synchronisation.motion_matching import motion_of
from testudo_runs.recording.recording import Recording, RobotRecording, Series
from testudo_runs.recording.roles import ROLES

_LEAST_HASHED = 32
"""Bytes: shorter messages are alike without being the same."""
_LATCHED = re.compile(r"durability:\s*(1|transient_local)\b")
_SEEN = ("pose", "odometry", "imu")
"""Roles that show a motion; a command is only followed by one."""
_WORLD_FRAMES = ("world", "map", "odom", "earth")

Marked = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Hashes (K,) of messages, their times of recording [ns] and their places in the bag."""


def read_bags(
    paths: Sequence[str | Path],
    mapping: ReadMap,
    tell: Tell,
    damage: list[str],
    *,
    msg_path: Sequence[str | Path] = (),
    offsets: Mapping[str, float] | None = None,
) -> Recording:
    """Read one bag, or several that recorded the same run, as one recording.

    Its ``info`` holds ``notes`` (choices that were made) and ``clocks`` (of several bags, with their uncertainty).

    Args:
        paths: folders or files; the clock of the first one counts.
        mapping: its section `topics` says what the topics mean.
        tell: is told the share that is done.
        damage: takes what was lost, in words.
        msg_path: folders with .msg files of custom messages.
        offsets: seconds by which bags are put forward, by their names; estimated where not given.

    Raises:
        BagError: no bag, a topic that is not there or of no fitting type, or clocks that nothing connects.
        MapError: the section `topics` does not hold.
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
                "at_s": float(clocks[bag.name].apply(step.at_ns) - start_ns) / NANO,
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
        f"{source.name}: {CLOCK} is left aside: several bags are laid together by their times of recording"
        for source in sources
        if len(sources) > 1 and source.contents.counts.get(CLOCK)
    ]
    notes += [f"{bag.name}: {note}" if len(bags) > 1 else note for bag in bags for note in bag.notes]
    return {
        "notes": notes,
        "origins": origins,
        "clocks": {name: clock.to_dict() for name, clock in clocks.items()},
        "clock_sentences": [clock.sentence() for clock in list(clocks.values())[1:]],
        "files": [str(file) for source in sources for file in source.folder.files],
    }


def _collect(
    source: BagSource, entries: Sequence[TopicMap], several: bool, tell: Tell
) -> tuple[dict[BagTopic, list[BagMessage]], Marked]:
    """Return the messages that are needed, and hash, record time and place of those that stand once in the bag."""
    # several bags are laid together by their own times of recording
    wanted = topics_for(entries) | (set() if several else {CLOCK})
    found: dict[BagTopic, list[BagMessage]] = {}
    marks: dict[int, tuple[int, int]] = {}
    for message in source.messages((lambda _: True) if several else (lambda topic: topic.name in wanted), tell):
        if several and len(message.data) >= _LEAST_HASHED and not _is_latched(message.topic):
            mark = hash((message.topic.type, message.data))
            marks[mark] = (0, 0) if mark in marks else (message.log_ns, message.order)
        if message.topic.name in wanted:
            found.setdefault(message.topic, []).append(message)
    once = {mark: seen for mark, seen in marks.items() if seen[0]}
    log_ns, order = np.array(list(once.values()), np.int64).reshape(-1, 2).T
    return found, (np.fromiter(once, np.int64, len(once)), log_ns, order)


def _is_latched(topic: BagTopic) -> bool:
    """Return whether a recorder hears old messages of a topic, whenever it begins: their times say nothing."""
    return topic.name.endswith("_static") or bool(_LATCHED.search(topic.qos))


def _entries_for(source: BagSource, entries: Sequence[TopicMap]) -> list[TopicMap]:
    return [entry for entry in entries if entry.bag in ("", source.name)]


def _check_names(sources: Sequence[BagSource], entries: Sequence[TopicMap]) -> None:
    names = [source.name for source in sources]
    for name in names:
        if names.count(name) > 1:
            raise BagError(f"{name}: two of the bags are called so; give them different names")
    for entry in entries:
        if entry.bag and entry.bag not in names:
            raise BagError(f"topics: {entry.topic}: bag: found {entry.bag!r}, expected one of {', '.join(names)}")


def _check_found(
    sources: Sequence[BagSource], bags: Sequence[BagSeries], entries: Sequence[TopicMap], file: str, damage: list[str]
) -> None:
    """Take topics of a mapping that no bag holds for lost; all of them are too many."""
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
                    _frame(entry, samples),
                )
        kind = next((entry.robot_type for entry in entries if entry.robot == name and entry.robot_type), "")
        if series:
            robots[name] = RobotRecording(name, kind or mapping.robot_type, series)
    return robots, start_ns


def _frame(entry: TopicMap, samples: TopicSamples) -> str:
    if entry.role != "command":
        return samples.frame or WORLD_FRAME
    if entry.frame:
        return WORLD_FRAME if entry.frame == "world" else body_frame(entry.robot)
    return WORLD_FRAME if samples.frame in _WORLD_FRAMES else body_frame(entry.robot)
