"""Decodes numbers from CDR messages of any type, vectorised over messages of one layout.

The offset of a number depends on the lengths of the texts and lists before it. One message is walked along its type
definition; all messages with equal lengths and texts at the same offsets have the same layout.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rosbags.interfaces import Nodetype
from rosbags.typesys.store import Typestore

_KINDS = {
    **dict.fromkeys(("bool", "octet", "byte", "char", "uint8"), "u1"),
    **{f"{sign}{8 * size}": f"{sign[0]}{size}" for sign in ("int", "uint", "float") for size in (2, 4, 8)},
    "int8": "i1",
}
"""NumPy types without byte order, by primitive type of ROS."""
_HEAD = 4
_MOST_ITEMS = 100_000
_MOST_PADDING = 16
"""Bytes after a message: padding to four, or more where ROS 2 overestimated the buffer."""


class CdrError(ValueError):
    """A message does not match its type."""


@dataclass
class CdrLayout:
    """Offsets of all fields in messages of one layout."""

    order: str
    """`<` or `>`."""
    numbers: dict[str, tuple[int, str, int]] = field(default_factory=dict)
    """Offset, kind and count by path, such as `pose.position.x` or `transforms[0].header.stamp.sec`."""
    texts: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    """Lengths of the lists of messages or texts, by path."""
    fixed: list[tuple[int, int]] = field(default_factory=list)
    """Byte ranges that determine the layout."""


@dataclass(frozen=True)
class CdrGroup:
    """Messages of one layout."""

    index: np.ndarray
    """(T,) indices among all messages."""
    layout: CdrLayout
    rows: np.ndarray
    """(T, size) bytes."""

    def column(self, path: str) -> np.ndarray:
        """Return the numbers (T,) of a path; an item of a list of numbers is `effort[2]`.

        Raises:
            KeyError: the messages have no such number.
        """
        at, kind, count = self._place(path)
        size = np.dtype(kind).itemsize
        if count != 1:
            raise KeyError(path)
        part = np.ascontiguousarray(self.rows[:, at : at + size])
        return part.view(self.layout.order + kind)[:, 0]

    def _place(self, path: str) -> tuple[int, str, int]:
        if path in self.layout.numbers:
            return self.layout.numbers[path]
        base, _, index = path.removesuffix("]").rpartition("[")
        at, kind, count = self.layout.numbers[base]
        if not index.isdigit() or int(index) >= count:
            raise KeyError(path)
        return at + int(index) * np.dtype(kind).itemsize, kind, 1


def groups(store: Typestore, name: str, messages: Sequence[bytes]) -> Iterator[CdrGroup]:
    """Yield messages of one type by layout; messages that do not match the type are omitted.

    Args:
        store: with the type.
        name: the type.
        messages: serialised.
    """
    sizes = np.array([len(data) for data in messages], int)
    for size in np.unique(sizes).tolist():
        index = np.flatnonzero(sizes == size)
        whole = b"".join(messages[k] for k in index.tolist())
        rows = np.frombuffer(whole, np.uint8).reshape(len(index), size)
        while len(index):
            first = bytes(messages[int(index[0])])
            try:
                layout = walk(store, name, first)
            except CdrError:
                index, rows = index[1:], rows[1:]
                continue
            same = np.ones(len(index), bool)
            for begin, end in layout.fixed:
                same &= (rows[:, begin:end] == rows[0, begin:end]).all(axis=1)
            yield CdrGroup(index[same], layout, rows[same])
            index, rows = index[~same], rows[~same]


def walk(store: Typestore, name: str, data: bytes) -> CdrLayout:
    """Return the layout of one message.

    Raises:
        CdrError: the message does not match its type.
    """
    if len(data) < _HEAD or data[0] != 0 or data[1] > 1:
        raise CdrError("no CDR message")
    layout = CdrLayout("<" if data[1] else ">")
    layout.fixed.append((0, _HEAD))
    walker = _Walker(store, data[_HEAD:], layout)
    walker.message(name, "")
    if len(walker.data) - walker.at > _MOST_PADDING:
        raise CdrError("longer than its type")
    return layout


class _Walker:
    """Walks along one message; offsets count from the end of its 4-byte header."""

    def __init__(self, store: Typestore, data: bytes, layout: CdrLayout) -> None:
        self.store, self.data, self.layout, self.at = store, data, layout, 0
        self._items = 0

    def message(self, name: str, path: str) -> None:
        try:
            fields = self.store.fielddefs[name][1]
        except KeyError as error:
            raise CdrError(f"type {name} is not known") from error
        for key, node in fields:
            self._node(node, f"{path}.{key}" if path else key)

    def _node(self, node: Any, path: str) -> None:
        kind, rest = node
        if kind == Nodetype.NAME:
            self.message(rest, path)
        elif kind == Nodetype.BASE:
            self._base(rest[0], path)
        else:
            inner, count = rest
            if kind == Nodetype.SEQUENCE:
                count = self._length()
            self._list(inner, count, path)

    def _list(self, inner: Any, count: int, path: str) -> None:
        if inner[0] == Nodetype.BASE and inner[1][0] in _KINDS:
            if count:
                self._numbers(inner[1][0], count, path)
            return
        self._items += count
        if self._items > _MOST_ITEMS:
            raise CdrError("a list is too long")
        self.layout.counts[path] = count
        for k in range(count):
            self._node(inner, f"{path}[{k}]")

    def _base(self, kind: str, path: str) -> None:
        if kind != "string":
            self._numbers(kind, 1, path)
            return
        length = self._length()
        raw = self.data[self.at : self.at + length]
        if len(raw) < length:
            raise CdrError("a text is cut")
        self.layout.fixed.append((_HEAD + self.at, _HEAD + self.at + length))
        self.layout.texts[path] = raw.removesuffix(b"\0").decode("utf-8", "replace")
        self.at += length

    def _numbers(self, kind: str, count: int, path: str) -> None:
        if kind not in _KINDS:
            raise CdrError(f"numbers of kind {kind} are not known")
        size = np.dtype(_KINDS[kind]).itemsize
        self.at = -(-self.at // size) * size
        self.layout.numbers[path] = (_HEAD + self.at, _KINDS[kind], count)
        self.at += size * count
        if self.at > len(self.data):
            raise CdrError("the message is cut")

    def _length(self) -> int:
        self.at = -(-self.at // 4) * 4
        if self.at + 4 > len(self.data):
            raise CdrError("the message is cut")
        (length,) = struct.unpack_from(self.layout.order + "I", self.data, self.at)
        self.layout.fixed.append((_HEAD + self.at, _HEAD + self.at + 4))
        self.at += 4
        if length > len(self.data):
            raise CdrError("a length is larger than the message")
        return length
