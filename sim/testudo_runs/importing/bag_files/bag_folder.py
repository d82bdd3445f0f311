"""The files of a bag: a folder with or without `metadata.yaml`, split or not, or one file alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from testudo_runs.bags.bag_contents import BagError, BagTopic
from testudo_runs.bags.mcap_file import MAGIC
from testudo_runs.importing.bag_files.sqlite_pages import HEADER

METADATA = "metadata.yaml"
_NEWEST = 9
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ENDINGS = (".mcap", ".db3", ".mcap.zstd", ".db3.zstd")
_KEY = "rosbag2_bagfile_information"


@dataclass(frozen=True)
class BagFolder:
    """What is read of a bag before its messages."""

    path: Path
    name: str
    """How the bag is called where several are merged."""
    files: tuple[Path, ...]
    """In the order of recording."""
    version: int | None
    """Of `metadata.yaml`; None where there is no usable one."""
    expected: int | None
    """Messages that the recorder wrote, as it says; None if it does not say."""
    topics: tuple[BagTopic, ...]
    """As `metadata.yaml` names them, without definitions."""
    distribution: str
    """Of ROS 2; empty where nobody says."""
    notes: tuple[str, ...] = ()
    """What was noticed that is no damage."""


def looks_like_bag(path: str | Path) -> bool:
    """Return whether a path is a rosbag2 folder or one file of a bag, damaged or not, of any age."""
    path = Path(path)
    if path.is_file():
        return path.name.lower().endswith(_ENDINGS) or _begins(path, MAGIC) or _begins(path, HEADER)
    if not path.is_dir():
        return False
    return bool(_bag_files(path)) or _KEY in _text(path / METADATA)


def open_folder(path: str | Path, damage: list[str]) -> BagFolder:
    """Find the files of a bag.

    Args:
        path: folder or file.
        damage: takes what is wrong with `metadata.yaml`, in words.

    Raises:
        BagError: there is no bag.
    """
    path = Path(path)
    if not path.exists():
        raise BagError(f"{path}: no such file or folder")
    if path.is_file():
        if not looks_like_bag(path):
            raise BagError(
                f"{path}: no bag: expected a folder of rosbag2, or a file that ends in {', '.join(_ENDINGS)}"
            )
        _check_not_empty(path, [path])
        return BagFolder(path, _stem(path), (path,), None, None, (), "")
    notes: list[str] = []
    facts = _metadata(path, damage, notes)
    there = _bag_files(path)
    listed = _listed(path, facts, damage)
    kinds = {file.suffix for file in listed or there}
    files = (*listed, *(file for file in there if file not in listed and file.suffix in kinds))
    if not files:
        raise BagError(f"{path}: holds no file of a bag: expected one that ends in {', '.join(_ENDINGS)}")
    _check_not_empty(path, files)
    if listed and len(files) > len(listed):
        damage.append(f"{METADATA}: does not name {', '.join(file.name for file in files[len(listed) :])}; read, too")
    name = path.name or path.resolve().name
    return BagFolder(
        path,
        name,
        files,
        _number(facts, "version"),
        _expected(facts),
        _topics(facts),
        str(facts.get("ros_distro") or ""),
        tuple(notes),
    )


def _check_not_empty(path: Path, files: Sequence[Path]) -> None:
    if not any(file.stat().st_size for file in files):
        raise BagError(
            f"{path}: 0 bytes, expected a bag: no message can be read; nothing was written, or a copy was cut off"
        )


def is_packed(file: Path) -> bool:
    """Return whether a whole file is compressed with zstd."""
    return _begins(file, _ZSTD_MAGIC)


def is_mcap(file: Path) -> bool:
    """Return whether a file is an MCAP file, by its beginning, and if that is damaged by its name."""
    if _begins(file, MAGIC) or _begins(file, HEADER):
        return _begins(file, MAGIC)
    return ".mcap" in file.name.lower()


def _metadata(path: Path, damage: list[str], notes: list[str]) -> dict[str, Any]:
    """Return the information of `metadata.yaml`; empty if it is missing or does not hold."""
    file = path / METADATA
    if not file.is_file():
        notes.append(
            f"{path.name}: {METADATA} is missing: the recorder was killed, or the file was left behind; "
            "everything is taken from the bag itself; `testudo recover` makes it whole"
        )
        return {}
    try:
        facts = yaml.safe_load(file.read_text(encoding="utf-8"))[_KEY]
        facts = dict(facts)
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError, RecursionError) as error:
        damage.append(
            f"{path.name}: {METADATA} cannot be read ({type(error).__name__}); everything is taken from the bag itself"
        )
        return {}
    version = _number(facts, "version")
    if version is None or version > _NEWEST:
        damage.append(
            f"{path.name}: {METADATA}: version: found {facts.get('version')!r}, expected 1 to {_NEWEST}; "
            "read as the newest known"
        )
    return facts


def _listed(path: Path, facts: dict[str, Any], damage: list[str]) -> tuple[Path, ...]:
    names = facts.get("relative_file_paths") or []
    found = []
    for name in names if isinstance(names, list) else []:
        # until version 3 the names began with the folder; another's path must not lead out of this one
        file = path / PurePosixPath(str(name)).name
        other = file.with_name(file.name.removesuffix(".zstd"))
        if file.is_file():
            found.append(file)
        elif other.is_file():
            found.append(other)
        else:
            damage.append(f"{path.name}: {file.name} is missing, though {METADATA} names it")
    return tuple(found)


def _topics(facts: dict[str, Any]) -> tuple[BagTopic, ...]:
    found = []
    for entry in facts.get("topics_with_message_count") or []:
        try:
            facts = entry["topic_metadata"]
            qos = facts.get("offered_qos_profiles") or ""
            text = qos if isinstance(qos, str) else yaml.safe_dump(qos, default_flow_style=False)
            found.append(
                BagTopic(
                    str(facts["name"]),
                    str(facts["type"]),
                    str(facts["serialization_format"]),
                    qos=text,
                    type_hash=str(facts.get("type_description_hash") or ""),
                )
            )
        except (KeyError, TypeError, AttributeError, yaml.YAMLError):
            continue  # the bag's own topics count, not those of a broken entry
    return tuple(found)


def _expected(facts: dict[str, Any]) -> int | None:
    """Return the messages that were written; a recorder of ours notes 0 until it is closed."""
    count = _number(facts, "message_count")
    return count or None


def _number(facts: dict[str, Any], key: str) -> int | None:
    value = facts.get(key)
    return value if isinstance(value, int) else None


def _bag_files(path: Path) -> list[Path]:
    found = [file for file in path.iterdir() if file.is_file() and file.name.lower().endswith(_ENDINGS)]
    return sorted(found, key=lambda file: [int(x) if x.isdigit() else x for x in re.split(r"(\d+)", file.name)])


def _stem(file: Path) -> str:
    name = file.name.removesuffix(".zstd")
    return name.rsplit(".", 1)[0] if "." in name[1:] else name


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _begins(file: Path, magic: bytes) -> bool:
    try:
        with file.open("rb") as stream:
            return stream.read(len(magic)) == magic
    except OSError:
        return False
