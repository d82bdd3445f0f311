"""Message types of a bag, and numbers from CDR messages of any type, vectorised over messages of one layout.

Types come from the bag itself, the ROS 2 distribution, and folders of .msg files.
The offset of a number depends on the lengths of the texts and lists before it. One message is walked along its type
definition; all messages with equal lengths and texts at the same offsets have the same layout.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rosbags.interfaces import Nodetype
from rosbags.typesys import Stores, get_types_from_idl, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

from testudo_runs.bags.bag_contents import CDR, BagError, BagTopic

_IDL_LINE = "=" * 80 + "\n"
_STORES = {
    "foxy": Stores.ROS2_FOXY,
    "galactic": Stores.ROS2_GALACTIC,
    "humble": Stores.ROS2_HUMBLE,
    "iron": Stores.ROS2_IRON,
    "jazzy": Stores.ROS2_JAZZY,
}


class Types:
    """Looks up message types; definitions in the bag take precedence."""

    def __init__(self, topics: Iterable[BagTopic], folders: Sequence[Path] = (), distribution: str = "") -> None:
        """Read the definitions.

        ``folders`` have .msg files, as `PACKAGE/msg/NAME.msg` somewhere below; ``distribution`` is that of ROS 2, for
        the standard types of a bag without definitions.

        Raises:
            BagError: a folder holds no .msg file, or one of them cannot be read.
        """
        standard = get_typestore(_STORES.get(distribution, Stores.ROS2_KILTED))
        self._standard: Mapping[str, Any] = standard.fielddefs
        found: dict[str, Any] = {}
        for folder in folders:
            files = sorted(Path(folder).rglob("*.msg"))
            if not files:
                raise BagError(f"--msg-path {folder}: holds no .msg file; expected PACKAGE/msg/NAME.msg below it")
            for file in files:
                parts = file.absolute().parts
                package = parts[-3] if parts[-2] == "msg" else parts[-2]
                try:
                    found.update(get_types_from_msg(file.read_text(encoding="utf-8"), f"{package}/msg/{file.stem}"))
                except Exception as error:
                    raise BagError(f"{file}: is no message definition: {' '.join(str(error).split())[:200]}") from error
        self._folders = found
        self._topics = {topic.type: topic for topic in topics if topic.definition}
        self._stores: dict[str, tuple[Typestore | None, str]] = {}

    def store(self, topic: BagTopic) -> Typestore:
        """Return the type of a topic with all referenced types.

        Raises:
            BagError: unknown type, or an unreadable definition.
        """
        if topic.type not in self._stores:
            self._stores[topic.type] = self._make(topic)
        store, wrong = self._stores[topic.type]
        if store is None:
            raise BagError(f"{topic.name}: {wrong}")
        return store

    def knows(self, topic: BagTopic) -> bool:
        """Return whether messages of a topic can be read."""
        try:
            self.store(topic)
        except BagError:
            return False
        return True

    def _make(self, topic: BagTopic) -> tuple[Typestore | None, str]:
        if topic.encoding != CDR:
            return None, f"its messages are encoded as {topic.encoding!r}, expected {CDR!r}"
        own, wrong = _parsed(self._topics.get(topic.type, topic))
        for found in (own, {**self._standard, **self._folders}):
            if topic.type not in found or (missing := _missing(topic.type, found)):
                continue
            store = get_typestore(Stores.EMPTY)
            needed = _needed(topic.type, found)
            try:
                store.register({name: found[name] for name in needed})
            except Exception as error:  # noqa: BLE001 -- any error of an invalid definition
                wrong = f"the definition of {topic.type} does not hold ({type(error).__name__}: {error})"
                continue
            return store, ""
        missing = _missing(topic.type, {**self._standard, **self._folders, **own})
        lacks = f"{topic.type} refers to {missing}, which is not known" if missing and missing != topic.type else ""
        return None, (wrong or lacks or f"type {topic.type} is not known and the bag holds no definition of it") + (
            "; give its package with --msg-path FOLDER (of .msg files)"
        )


def _parsed(topic: BagTopic) -> tuple[dict[str, Any], str]:
    """Return the types of an embedded definition, and its fault as text."""
    if not topic.definition.strip():
        return {}, ""
    try:
        if topic.definition_kind == "ros2idl":
            found: dict[str, Any] = {}
            for part in topic.definition.split(_IDL_LINE):
                head, _, rest = part.partition("\n")
                text = rest if head.startswith("IDL: ") else part
                if text.strip() and not text.startswith("MSG: "):
                    found.update(get_types_from_idl(text))
            return found, ""
        if topic.definition_kind != "ros2msg":
            return {}, f"its definition is of the kind {topic.definition_kind!r}, expected 'ros2msg' or 'ros2idl'"
        return dict(get_types_from_msg(topic.definition, topic.type)), ""
    except Exception as error:  # noqa: BLE001 -- any error of a broken definition
        return {}, f"the definition of {topic.type} in the bag cannot be read ({type(error).__name__})"


def _needed(name: str, types: Mapping[str, Any]) -> list[str]:
    """Return a type and all known types that it refers to."""
    found, todo = [], [name]
    while todo:
        one = todo.pop()
        if one in found or one not in types:
            continue
        found.append(one)
        todo += _references(types[one])
    return found


def _missing(name: str, types: Mapping[str, Any]) -> str:
    for one in _needed(name, types):
        for other in _references(types[one]):
            if other not in types:
                return other
    return "" if name in types else name


def _references(definition: Any) -> list[str]:
    names, todo = [], [node for _, node in definition[1]]
    while todo:
        kind, rest = todo.pop()
        if kind.name == "NAME":
            names.append(rest)
        elif kind.name in ("ARRAY", "SEQUENCE"):
            todo.append(rest[0])
    return names


_KINDS = {
    **dict.fromkeys(("bool", "octet", "byte", "char", "uint8"), "u1"),
    **{f"{sign}{8 * size}": f"{sign[0]}{size}" for sign in ("int", "uint", "float") for size in (2, 4, 8)},
    "int8": "i1",
}
"""NumPy types without byte order, by primitive type of ROS."""
_HEAD = 4
_MOST_ITEMS = 100_000
_MOST_PADDING = 16  # bytes after a message: padding to four, or more where ROS 2 overestimated the buffer


class CdrError(ValueError):
    """A message does not match its type."""


@dataclass
class CdrLayout:
    """Offsets of all fields in messages of one layout."""

    order: str  # `<` or `>`
    numbers: dict[str, tuple[int, str, int]] = field(default_factory=dict)
    """Offset, kind and count by path, such as `pose.position.x` or `transforms[0].header.stamp.sec`."""
    texts: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)  # lengths of the lists of messages or texts, by path
    fixed: list[tuple[int, int]] = field(default_factory=list)  # byte ranges that determine the layout

    def place(self, path: str) -> tuple[int, str, int]:
        """Return offset, kind and count of a path; an item of a list of numbers is `effort[2]`.

        Raises:
            KeyError: the messages have no such number.
        """
        if path in self.numbers:
            return self.numbers[path]
        base, _, index = path.removesuffix("]").rpartition("[")
        at, kind, count = self.numbers[base]
        if not index.isdigit() or int(index) >= count:
            raise KeyError(path)
        return at + int(index) * np.dtype(kind).itemsize, kind, 1


@dataclass(frozen=True)
class CdrGroup:
    """Messages of one layout."""

    index: np.ndarray  # (T,) indices among all messages
    layout: CdrLayout
    rows: np.ndarray  # (T, size) bytes

    def column(self, path: str) -> np.ndarray:
        """Return the numbers (T,) of a path, see `CdrLayout.place`.

        Raises:
            KeyError: the messages have no such number.
        """
        at, kind, count = self.layout.place(path)
        if count != 1:
            raise KeyError(path)
        part = np.ascontiguousarray(self.rows[:, at : at + np.dtype(kind).itemsize])
        return part.view(self.layout.order + kind)[:, 0]


def groups(store: Typestore, name: str, messages: Sequence[bytes]) -> Iterator[CdrGroup]:
    """Yield serialised messages of one type by layout; messages that do not match the type are omitted."""
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
