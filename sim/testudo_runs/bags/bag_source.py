"""Finds and reads the files of a bag: a folder with or without `metadata.yaml`, split or not, or a single file."""

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

import yaml
import zstandard

from testudo_deploy.authentication.message_codes import split_trailer
from testudo_runs.bags.bag_contents import BagContents, BagError, BagMessage, BagTopic, Keep, Tell
from testudo_runs.bags.chain_proof import ChainProof
from testudo_runs.bags.mcap_file import MAGIC, McapStream
from testudo_runs.bags.ros1_file import ROS1_MAGIC, Ros1Bag
from testudo_runs.bags.sqlite_file import HEADER, SqliteBag

METADATA = "metadata.yaml"
_NEWEST = 9
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ENDINGS = (".mcap", ".db3", ".mcap.zstd", ".db3.zstd", ".bag")
_KEY = "rosbag2_bagfile_information"


@dataclass(frozen=True)
class BagFolder:
    """Files and metadata of a bag."""

    path: Path
    name: str  # name of the bag where several are merged
    files: tuple[Path, ...]  # in the order of recording
    version: int | None  # version of `metadata.yaml`; None without a usable one
    expected: int | None  # number of messages according to the recorder; None if it gives none
    topics: tuple[BagTopic, ...]  # topics in `metadata.yaml`, without definitions
    distribution: str  # ROS 2 distribution; empty if unknown
    notes: tuple[str, ...] = ()  # observations that are not damage


def looks_like_bag(path: str | Path) -> bool:
    """Return whether a path is a rosbag2 folder or one file of a bag, damaged or not, of any age."""
    path = Path(path)
    if path.is_file():
        return path.name.lower().endswith(_ENDINGS) or any(_begins(path, mark) for mark in (MAGIC, HEADER, ROS1_MAGIC))
    if not path.is_dir():
        return False
    try:
        text = (path / METADATA).read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    return bool(_bag_files(path)) or _KEY in text


def open_folder(path: str | Path, damage: list[str]) -> BagFolder:
    """Find the files of a bag; ``damage`` collects a sentence for each fault of `metadata.yaml`.

    Raises:
        BagError: no bag.
    """
    path = Path(path)
    if not path.exists():
        raise BagError(f"{path}: no such file or folder")
    if path.is_file():
        if not looks_like_bag(path):
            raise BagError(
                f"{path}: no bag: expected a folder of rosbag2, a bag of ROS 1, or a file that ends in "
                f"{', '.join(_ENDINGS)}"
            )
        _check_not_empty(path, [path])
        name = path.name.removesuffix(".zstd")
        name = name.rsplit(".", 1)[0] if "." in name[1:] else name
        return BagFolder(path, name, (path,), None, None, (), "")
    notes: list[str] = []
    facts = _metadata(path, damage, notes)
    there = _bag_files(path)
    names = facts.get("relative_file_paths") or []
    found = []
    for name in names if isinstance(names, list) else []:
        # until version 3 the names include the folder; a path must not lead out of this folder
        file = path / PurePosixPath(str(name)).name
        other = file.with_name(file.name.removesuffix(".zstd"))
        if file.is_file() or other.is_file():
            found.append(file if file.is_file() else other)
        else:
            damage.append(f"{path.name}: {file.name} is missing, though {METADATA} names it")
    listed = tuple(found)
    kinds = {file.suffix for file in listed or there}
    files = (*listed, *(file for file in there if file not in listed and file.suffix in kinds))
    if not files:
        raise BagError(f"{path}: holds no file of a bag: expected one that ends in {', '.join(_ENDINGS)}")
    _check_not_empty(path, files)
    if listed and len(files) > len(listed):
        damage.append(f"{METADATA}: does not name {', '.join(file.name for file in files[len(listed) :])}; read, too")
    return BagFolder(
        path,
        path.name or path.resolve().name,
        files,
        _number(facts, "version"),
        _number(facts, "message_count") or None,  # the recorder of Testudo writes 0 until it is closed
        _topics(facts),
        str(facts.get("ros_distro") or ""),
        tuple(notes),
    )


def _check_not_empty(path: Path, files: Sequence[Path]) -> None:
    if not any(file.stat().st_size for file in files):
        raise BagError(
            f"{path}: 0 bytes, expected a bag: no message can be read; nothing was written, or a copy was cut off"
        )


def is_mcap(file: Path) -> bool:
    """Return whether a file is an MCAP file, by its magic bytes or, if they are damaged, by its name."""
    if _begins(file, MAGIC) or _begins(file, HEADER):
        return _begins(file, MAGIC)
    return ".mcap" in file.name.lower()


def _kind_of(file: Path) -> type[McapStream | SqliteBag | Ros1Bag]:
    if _begins(file, ROS1_MAGIC) or file.suffix == ".bag":
        return Ros1Bag
    return McapStream if is_mcap(file) else SqliteBag


def _metadata(path: Path, damage: list[str], notes: list[str]) -> dict[str, Any]:
    """Return the content of `metadata.yaml`; empty if it is missing or invalid."""
    file = path / METADATA
    if not file.is_file():
        notes.append(
            f"{path.name}: {METADATA} is missing: the recorder was killed, or the file was left behind; "
            "everything is taken from the bag itself; `testudo recover` rebuilds it"
        )
        return {}
    try:
        facts = dict(yaml.safe_load(file.read_text(encoding="utf-8"))[_KEY])
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
            continue  # a broken entry is ignored: the topics in the bag itself count
    return tuple(found)


def _number(facts: dict[str, Any], key: str) -> int | None:
    value = facts.get(key)
    return value if isinstance(value, int) else None


def _bag_files(path: Path) -> list[Path]:
    found = [file for file in path.iterdir() if file.is_file() and file.name.lower().endswith(_ENDINGS)]
    return sorted(found, key=lambda file: [int(x) if x.isdigit() else x for x in re.split(r"(\d+)", file.name)])


def _begins(file: Path, magic: bytes) -> bool:
    try:
        with file.open("rb") as stream:
            return stream.read(len(magic)) == magic
    except OSError:
        return False


_MAX_MESSAGE = 1 << 30
_PIECE = 1 << 20


class BagSource:
    """One bag; ``damage`` collects losses as sentences, ``contents`` what is read.

    Raises:
        BagError: there is no bag.
    """

    def __init__(self, path: str | Path, damage: list[str]) -> None:
        self.damage = damage
        self.folder: BagFolder = open_folder(path, damage)
        self.contents = BagContents()
        self.proofs: list[ChainProof] = []
        """What the chain of hashes of each MCAP file shows; filled while it is read."""

    @property
    def name(self) -> str:
        """Return the name of the bag where several are merged."""
        return self.folder.name

    def messages(self, keep: Keep = lambda _: True, tell: Tell = lambda _: None) -> Iterator[BagMessage]:
        """Yield the messages of requested topics, file by file.

        Raises:
            BagError: a file cannot be opened at all.
        """
        sizes = [file.stat().st_size for file in self.folder.files]
        before, known, place = 0, len(self.damage), itertools.count()
        for file, size in zip(self.folder.files, sizes, strict=True):
            scale, begun = size / max(sum(sizes), 1), before / max(sum(sizes), 1)
            for message in self._file(file, keep, lambda share, scale=scale, begun=begun: tell(begun + scale * share)):
                yield message._replace(order=next(place))
            before += size
        expected, found = self.folder.expected, self.contents.count
        if expected is not None and expected != found and len(self.damage) == known:
            self.damage.append(f"{self.name}: holds {found} messages; {expected} were written")

    def _file(self, file: Path, keep: Keep, tell: Tell) -> Iterator[BagMessage]:
        try:
            with TemporaryDirectory(prefix="testudo_bag_") as scratch:
                plain = self._unpacked(file, Path(scratch))
                reader = _kind_of(plain)(plain, self.contents, self.damage)
                for message in reader.messages(keep, tell):
                    if message.data[:4] == _ZSTD_MAGIC:  # never the start of CDR: each message is packed
                        message = self._opened(message)  # noqa: PLW2901
                    if message is not None:
                        signed = split_trailer(message.data)  # of a keyed fleet, recorded by another recorder
                        yield message if signed is None else message._replace(data=signed[0])
                if isinstance(reader, McapStream):
                    self.proofs.append(reader.proof)
                    self.damage += [f"{file.name}: {text}" for text in reader.proof.sentences]
        except OSError as error:
            raise BagError(f"{file}: cannot be read: {error.strerror or error}") from error

    def _opened(self, message: BagMessage) -> BagMessage | None:
        try:
            data = zstandard.ZstdDecompressor().decompress(message.data, max_output_size=_MAX_MESSAGE)
        except (zstandard.ZstdError, MemoryError):
            self.damage.append(f"{self.name}: a packed message of {message.topic.name} cannot be unpacked; left out")
            return None
        return message._replace(data=data)

    def _unpacked(self, file: Path, scratch: Path) -> Path:
        """Return the file, or the readable part of a packed one, unpacked."""
        if not _begins(file, _ZSTD_MAGIC):
            return file
        plain = scratch / file.name.removesuffix(".zstd")
        with file.open("rb") as packed, plain.open("wb") as out:
            reader = zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True)
            try:
                while piece := reader.read(_PIECE):
                    out.write(piece)
            except zstandard.ZstdError as error:
                self.damage.append(f"{file.name}: cannot be unpacked to its end ({error})")
        return plain
