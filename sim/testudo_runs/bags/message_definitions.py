"""Message types of a bag: from the bag itself, the ROS 2 distribution, and folders of .msg files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

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

        Args:
            topics: of the bag.
            folders: with .msg files, as `PACKAGE/msg/NAME.msg` somewhere below.
            distribution: of ROS 2, for the standard types of a bag without definitions.

        Raises:
            BagError: a folder holds no .msg file, or one of them cannot be read.
        """
        standard = get_typestore(_STORES.get(distribution, Stores.ROS2_KILTED))
        self._standard: Mapping[str, Any] = standard.fielddefs
        self._folders = _from_folders(folders)
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


def _from_folders(folders: Sequence[Path]) -> dict[str, Any]:
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
    return found


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
