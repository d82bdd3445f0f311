"""Columns of numbers to and from serialised standard messages, all samples at once.

Where the numbers stand in a message is not written down here: a message is serialised by the library with marked
numbers, and the marks are looked for. Messages of another layout are read by the library one by one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from rosbags.interfaces import Nodetype
from rosbags.typesys import Stores, get_typestore
from rosbags.typesys.store import Typestore

from testudo_runs.recording.roles import Role

NANO = 1_000_000_000
_SECONDS_MARK, _NANOSECONDS_MARK = 0x5A17C0DE, 0x0BADCAFE % NANO
_MOTORS = ("m1", "m2", "m3", "m4")
_PART = re.compile(r"(\w+)(?:\[(\d+)\])?")


@cache
def typestore() -> Typestore:
    """Return the standard message types."""
    return get_typestore(Stores.ROS2_KILTED)


class MessageLayout:
    """Where the numbers of one role stand in a message with given frames."""

    def __init__(self, role: Role, frame: str, child: str = "") -> None:
        """Serialise a marked message and find the marks.

        Args:
            role: what is written.
            frame: `header.frame_id`.
            child: `child_frame_id`, where the message has one.
        """
        message = blank(role.type)
        message.header.frame_id = frame
        if hasattr(message, "child_frame_id"):
            message.child_frame_id = child
        if role.name == "motors":
            message.name, message.effort = list(_MOTORS), np.zeros(len(_MOTORS))
        if role.name == "imu":
            message.orientation_covariance[0] = -1.0  # the message says so that it has no orientation
        message.header.stamp.sec, message.header.stamp.nanosec = _SECONDS_MARK, _NANOSECONDS_MARK
        marks = [np.float32(-1.0e9 * (k + 3.25)) for k in range(len(role.paths))]
        for path, mark in zip(role.paths, marks, strict=True):
            _assign(message, path, float(mark))
        self.role = role
        data = bytes(typestore().serialize_cdr(message, role.type))
        self._template = np.frombuffer(data, np.uint8)
        self._stamp = (_find(data, np.uint32(_SECONDS_MARK)), _find(data, np.uint32(_NANOSECONDS_MARK)))
        self._columns = []
        for mark in marks:
            kind = np.float64 if np.float64(mark).tobytes() in data else np.float32
            self._columns.append((_find(data, kind(mark)), kind))
        numbers = np.zeros(len(data), bool)
        for at, size in [(at, 4) for at in self._stamp] + [(at, np.dtype(kind).itemsize) for at, kind in self._columns]:
            numbers[at : at + size] = True
        self._texts = ~numbers

    def encode(self, stamp_ns: np.ndarray, values: np.ndarray) -> list[bytes]:
        """Return one serialised message for each stamp (T,) [ns of the epoch] and row of values (T, C)."""
        rows = np.tile(self._template, (len(stamp_ns), 1))
        seconds, rest = np.divmod(stamp_ns, NANO)
        for at, part in zip(self._stamp, (seconds, rest), strict=True):
            rows[:, at : at + 4] = part.astype("<u4")[:, None].view(np.uint8)
        for k, (at, kind) in enumerate(self._columns):
            column = np.ascontiguousarray(values[:, k], kind)
            rows[:, at : at + column.itemsize] = column[:, None].view(np.uint8)
        size, whole = len(self._template), rows.tobytes()
        return [whole[k : k + size] for k in range(0, len(whole), size)]

    def decode(self, messages: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray] | None:
        """Return stamps (T,) [ns] and values (T, C); None if a message is not of this layout."""
        size = len(self._template)
        if any(len(data) != size for data in messages):
            return None
        rows = np.frombuffer(b"".join(messages), np.uint8).reshape(len(messages), size)
        if (rows[:, self._texts] != self._template[self._texts]).any():
            return None
        seconds, rest = (rows[:, at : at + 4].copy().view("<u4")[:, 0].astype(np.int64) for at in self._stamp)
        columns = [rows[:, at : at + np.dtype(kind).itemsize].copy().view(kind)[:, 0] for at, kind in self._columns]
        return seconds * NANO + rest, np.stack([column.astype(float) for column in columns], axis=1)


def decode(role: Role, messages: Sequence[bytes], damage: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray, str]:
    """Return stamps (T,) [ns], values (T, C), which messages (T,) they are of, and their frame.

    Args:
        role: what they mean.
        messages: serialised.
        damage: takes what cannot be read, in words.
    """
    first = next((found for data in messages if (found := _parsed(role, data)) is not None), None)
    if first is not None:
        layout = MessageLayout(role, first.header.frame_id, getattr(first, "child_frame_id", ""))
        found = layout.decode(messages)
        if found is not None:
            return *found, np.arange(len(messages)), first.header.frame_id
    stamps, rows, index = [], [], []
    for k, data in enumerate(messages):
        message = _parsed(role, data)
        try:
            row = [float(_read(message, path)) for path in role.paths]
        except (AttributeError, IndexError, TypeError, ValueError):
            damage.append(f"{role.name}: message {k} of {len(messages)} cannot be decoded; left out")
            continue
        stamps.append(message.header.stamp.sec * NANO + message.header.stamp.nanosec)
        rows.append(row)
        index.append(k)
    values = np.array(rows, float).reshape(len(rows), len(role.paths))
    return np.array(stamps, np.int64), values, np.array(index, int), first.header.frame_id if first is not None else ""


def blank(name: str) -> Any:
    """Return a message of a standard type with every number zero and every text empty."""
    store = typestore()
    return store.types[name](**{field: _zero(node) for field, node in store.fielddefs[name][1]})


def _zero(node: Any) -> Any:
    kind, rest = node
    if kind == Nodetype.NAME:
        return blank(rest)
    if kind == Nodetype.BASE:
        return "" if rest[0] == "string" else False if rest[0] == "bool" else 0.0 if "float" in rest[0] else 0
    (inner, of), count = rest
    if inner == Nodetype.BASE and of[0] != "string":
        return np.zeros(count if kind == Nodetype.ARRAY else 0, of[0])
    return []


def _parsed(role: Role, data: bytes) -> Any:
    try:
        return typestore().deserialize_cdr(data, role.type)
    except Exception:  # noqa: BLE001 -- whatever a broken message raises
        return None


def _read(message: Any, path: str) -> Any:
    for part in path.split("."):
        name, index = _PART.fullmatch(part).groups()
        message = getattr(message, name)
        message = message if index is None else message[int(index)]
    return message


def _assign(message: Any, path: str, value: float) -> None:
    parent, _, last = path.rpartition(".")
    owner = _read(message, parent) if parent else message
    name, index = _PART.fullmatch(last).groups()
    if index is None:
        setattr(owner, name, value)
    else:
        getattr(owner, name)[int(index)] = value


def _find(data: bytes, mark: np.generic) -> int:
    at = data.find(mark.tobytes())
    if at < 0 or data.find(mark.tobytes(), at + 1) >= 0:
        raise AssertionError(f"a mark stands {data.count(mark.tobytes())} times in a message")
    return at
