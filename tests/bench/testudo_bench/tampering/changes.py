"""Random single changes to the messages of a run: one field, one message deleted, inserted or moved."""

import json
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from rosbags.typesys import Stores, get_typestore

from testudo_bench.tampering.run_copy import RunCopy

KINDS = ("field", "deletion", "insertion", "swap")
_STORE = get_typestore(Stores.ROS2_KILTED)
_JSON_TYPES = ("std_msgs/msg/String", "std_msgs/msg/UInt8MultiArray")
Path = tuple[str | int, ...]


class Change(NamedTuple):
    """One change, in words."""

    kind: str  # of `KINDS`
    topic: str
    field: str  # path of the field; empty for other kinds
    text: str


def changed(run: RunCopy, kind: str, random: np.random.Generator) -> tuple[RunCopy, Change]:
    """Return the run with one random change; every topic is as likely as every other, whatever its rate."""
    by_topic: dict[str, list[int]] = {}
    for place in run.places:
        by_topic.setdefault(run.note(place).topic, []).append(place)
    rich = {topic: places for topic, places in by_topic.items() if len(places) > 1}
    topic = str(random.choice(sorted(rich)))
    place = int(random.choice(rich[topic]))
    records, note = [*run.records], run.note(place)
    if kind == "field":
        name = run.schemas[run.channels[topic].schema_id].name
        data, field, text = _with_field(note.data, name, random)
        records[place] = note._replace(data=data)
        return run.with_records(records), Change(kind, topic, field, text)
    if kind == "deletion":
        del records[place]
        return run.with_records(records), Change(kind, topic, "", "")
    if kind == "insertion":
        records.insert(place + 1, note._replace(sequence=note.sequence + 1))
        return run.with_records(records), Change(kind, topic, "", "")
    others = [one for one in rich[topic] if run.note(one).data != note.data]
    if not others:
        return changed(run, kind, random)
    other = min(others, key=lambda one: abs(one - place))
    records[place] = note._replace(data=run.note(other).data)
    records[other] = run.note(other)._replace(data=note.data)
    return run.with_records(records), Change(kind, topic, "", "")


def _with_field(data: bytes, name: str, random: np.random.Generator) -> tuple[bytes, str, str]:
    """Return a message with one other value, the path of the field, and the values before and after."""
    message: Any = _STORE.deserialize_cdr(data, name)
    if name in _JSON_TYPES:
        text = message.data if isinstance(message.data, str) else message.data.tobytes().decode()
        content = json.loads(text)
        path = _chosen(list(_leaves(content)), random)
        before, after = _set(content, path, random)
        text = json.dumps(content, separators=(",", ":"))
        message.data = text if isinstance(message.data, str) else np.frombuffer(text.encode(), np.uint8)
    else:
        path = _chosen(list(_leaves(message)), random)
        before, after = _set(message, path, random)
    made = bytes(_STORE.serialize_cdr(message, name))
    return made, ".".join("*" if isinstance(part, int) else part for part in path), f"{before!r} -> {after!r}"


def _chosen(paths: list[Path], random: np.random.Generator) -> Path:
    """Return a path; an array of many numbers is as likely as a single number."""
    fields: dict[Path, list[Path]] = {}
    for path in paths:
        fields.setdefault(tuple("*" if isinstance(part, int) else part for part in path), []).append(path)
    names = sorted(fields, key=str)
    group = fields[names[int(random.integers(len(names)))]]
    return group[int(random.integers(len(group)))]


def _leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the paths of all numbers, texts and truth values."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _leaves(part, (*path, key))
    elif isinstance(value, list | tuple | np.ndarray):
        for k, part in enumerate(value):
            yield from _leaves(part, (*path, k))
    elif hasattr(value, "__msgtype__"):
        for key in vars(value):
            if key != "__msgtype__":
                yield from _leaves(getattr(value, key), (*path, key))
    elif value is not None and "layout" not in path:
        yield path


def _set(content: Any, path: Path, random: np.random.Generator) -> tuple[Any, Any]:
    """Change the value at a path in place; return it before and after."""
    for part in path[:-1]:
        child = _part(content, part)
        if isinstance(child, np.ndarray) and not child.flags.writeable:  # it shows the bytes of the message
            child = child.copy()
            setattr(content, str(part), child)
        content = child
    last = path[-1]
    before = _part(content, last)
    after = _other(before, random)
    if hasattr(content, "__msgtype__"):
        setattr(content, str(last), after)
    else:
        content[last] = after
    return before, after


def _part(content: Any, part: str | int) -> Any:
    """Return an element of a list, array or mapping, or a field of a message."""
    return getattr(content, str(part)) if hasattr(content, "__msgtype__") else content[part]


def _other(value: Any, random: np.random.Generator) -> Any:
    if isinstance(value, bool | np.bool_):
        return not value
    if isinstance(value, str):
        return value[:-1] + ("y" if value.endswith("x") else "x")
    if isinstance(value, int | np.integer):
        return value - 1 if value > 0 and random.integers(2) else value + 1
    step = (0.01 + 0.1 * abs(float(value))) * (1.0 if random.integers(2) else -1.0)
    return type(value)(value + step) if math.isfinite(value) else type(value)(0.0)
