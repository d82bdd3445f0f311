"""Rebuilds a damaged bag: writes all readable messages as a complete bag in a new folder."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml
from mcap.writer import CompressionType, Writer
from rosbags.rosbag2.metadata import dump_qos_v9, parse_qos

from testudo_deploy.files.bag_writer import BAG_FILE, CLOSED_KEY, METADATA_FILE, metadata_text
from testudo_deploy.launch.run_folder import FLEET_FILE, INFO_FILE, POLICY_FILE, versions
from testudo_runs.bags.bag_contents import NANO, BagError, BagTopic, Tell, clock_time
from testudo_runs.bags.bag_source import BagSource
from testudo_runs.bags.cdr import Types
from testudo_runs.bags.chain_proof import ChainProof
from testudo_runs.recording.write import whole_folder
from testudo_runs.run_reader import is_imported

REPORT_FILE = "recovered.json"
RECOVERED_KEY = "testudo_recovered"
_SCHEMA = "testudo/recovered/1"
_CHUNK_BYTES = 1 << 20
_OWN = {BAG_FILE, METADATA_FILE, REPORT_FILE}
_PARSERS: Mapping[str, Callable[[str], Any]] = {".json": json.loads, ".yaml": yaml.safe_load}


@dataclass(frozen=True)
class Recovered:
    """Result of a recovery."""

    schema: str
    source: str
    folder: str
    messages: int
    expected: int | None  # number of messages according to the recorder; None if it gives none
    lost: tuple[str, ...]  # one sentence per loss
    notes: tuple[str, ...]
    first_ns: int | None
    last_ns: int | None
    topics: dict[str, int]  # messages by topic
    files: tuple[str, ...]  # restored files beside the bag
    missing: tuple[str, ...]  # files of a Testudo run that are missing

    @property
    def span_text(self) -> str:
        """Return the recovered time span as text."""
        if self.first_ns is None or self.last_ns is None:
            return "none"
        length_s = (self.last_ns - self.first_ns) / NANO
        return f"{clock_time(self.first_ns)} to {clock_time(self.last_ns)}, {length_s:.3f} s"


def recover_bag(
    source: str | Path, folder: str | Path, *, msg_path: tuple[Path, ...] = (), tell: Tell = lambda _: None
) -> Recovered:
    """Rebuild a bag or a Testudo run (folder or file) in a new folder; the source is only read.

    ``msg_path`` are folders with .msg files, for old bags without definitions; ``tell`` gets the completed fraction.

    Raises:
        BagError: no bag, nothing readable in it, a target that is not empty, or a failed write.
    """
    source, folder = Path(source), Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BagError(f"{folder}: exists already and is never overwritten; give a new folder")
    if folder.resolve() == source.resolve():
        raise BagError(f"{folder}: is the source; give another folder")
    damage: list[str] = []
    bag = BagSource(source, damage)
    try:
        with whole_folder(folder) as made:
            return _rebuilt(bag, made, folder, msg_path, tell)
    except OSError as error:
        raise BagError(f"{folder}: cannot be written: {error.strerror or error}") from error


def _rebuilt(bag: BagSource, made: Path, folder: Path, msg_path: tuple[Path, ...], tell: Tell) -> Recovered:
    with (made / BAG_FILE).open("wb") as stream:
        writer = _BagCopy(Writer(stream, chunk_size=_CHUNK_BYTES, compression=CompressionType.ZSTD), bag, msg_path)
        try:
            for message in bag.messages(tell=tell):
                writer.take(message)
        except KeyboardInterrupt:
            bag.damage.append("stopped by Ctrl-C: what was not read yet is left out")
        contents = bag.contents
        if not contents.count:
            raise BagError(f"{bag.folder.path}: no message can be read" + "".join(f"; {text}" for text in bag.damage))
        # copy the valid files of the folder, and replace invalid ones by those attached to the bag
        home = bag.folder.path if bag.folder.path.is_dir() else None
        bags = {file.name for file in bag.folder.files}
        names: dict[str, bytes] = {}
        for file in sorted(home.iterdir()) if home else ():
            if file.is_file() and file.name not in bags | _OWN and not file.name.startswith("."):
                with suppress(OSError):
                    names[file.name] = file.read_bytes()
        for one in bag.contents.enclosed:
            plain = Path(one.name).name == one.name and not one.name.startswith(".") and one.name not in _OWN
            if plain and not _holds(one.name, names.get(one.name)) and _holds(one.name, one.data):
                names[one.name] = one.data
        for name, data in names.items():
            (made / name).write_bytes(data)
        kept = list(names)
        ours = FLEET_FILE in kept or (INFO_FILE in kept and not is_imported(made))
        missing = [name for name in (FLEET_FILE, INFO_FILE, POLICY_FILE) if ours and name not in kept]
        found = Recovered(
            _SCHEMA,
            str(bag.folder.path),
            str(folder),
            contents.count,
            bag.folder.expected,
            tuple(bag.damage),
            (*bag.folder.notes, *writer.notes, *(_chain_note(proof) for proof in bag.proofs if proof.exists)),
            contents.first_ns,
            contents.last_ns,
            dict(contents.counts),
            tuple(kept),
            tuple(missing),
        )
        _note_in_run(made / INFO_FILE, found)
        writer.finish(made, kept)
    topics = [
        (name, topic.type, topic.encoding, writer.qos.get(name, []), topic.type_hash, count)
        for name, count in contents.counts.items()
        for topic in [contents.topics[name]]
    ]
    custom = {CLOSED_KEY: "yes", RECOVERED_KEY: "yes"}
    text = metadata_text(topics, contents.first_ns or 0, contents.last_ns or 0, custom, "unknown")
    (made / METADATA_FILE).write_text(text, encoding="utf-8")
    (made / REPORT_FILE).write_text(json.dumps(asdict(found), indent=2) + "\n", encoding="utf-8")
    return found


class _BagCopy:
    """Copies messages with their times, numbers, definitions and offered QoS profiles."""

    def __init__(self, writer: Writer, bag: BagSource, msg_path: tuple[Path, ...]) -> None:
        self._writer, self._bag, self._msg_path = writer, bag, msg_path
        self._channels: dict[BagTopic, int] = {}
        self._schemas: dict[tuple[str, str, str], int] = {}
        self.qos: dict[str, list[Any]] = {}
        self.notes: list[str] = []
        writer.start(profile="ros2", library=f"testudo {versions().get('testudo', '')}")

    def take(self, message: Any) -> None:
        """Write one message."""
        channel = self._channels.get(message.topic)
        if channel is None:
            channel = self._channels[message.topic] = self._channel(message.topic)
        self._writer.add_message(channel, message.log_ns, message.data, message.publish_ns, message.sequence)

    def finish(self, folder: Path, names: list[str]) -> None:
        """Attach files of the folder, copy the metadata records, and close."""
        time_ns = self._bag.contents.first_ns or 0
        enclosed = {one.name: one for one in self._bag.contents.enclosed}
        for name in names:
            if name in enclosed or name in (FLEET_FILE, INFO_FILE):
                kind = enclosed[name].media_type if name in enclosed else "text/plain"
                self._writer.add_attachment(time_ns, time_ns, name, kind, (folder / name).read_bytes())
        for name, facts in self._bag.contents.records.items():
            self._writer.add_metadata(name, facts)
        self._writer.finish()

    def _channel(self, topic: BagTopic) -> int:
        kind, text = topic.definition_kind, topic.definition
        if not text:
            kind, text = "ros2msg", self._definition(topic)
        key = (topic.type, kind, text)
        if key not in self._schemas:
            self._schemas[key] = self._writer.register_schema(topic.type, kind, text.encode())
        try:  # the text form of version 9, from an old or new form
            profiles: list[Any] = list(dump_qos_v9(parse_qos(topic.qos))) if topic.qos else []
        except Exception:  # noqa: BLE001 -- any error of a broken text; a bag without profiles is valid
            profiles = []
        self.qos.setdefault(topic.name, profiles)
        words = yaml.safe_dump(profiles, default_flow_style=False) if profiles else ""
        return self._writer.register_channel(
            topic.name,
            topic.encoding,
            self._schemas[key],
            {"offered_qos_profiles": words, "topic_type_hash": topic.type_hash},
        )

    def _definition(self, topic: BagTopic) -> str:
        """Return the definition of a type that the bag lacks; empty if it is unknown."""
        types = Types([topic], self._msg_path, self._bag.folder.distribution)
        if not types.knows(topic):
            self.notes.append(
                f"{topic.name}: the definition of {topic.type} is not known; its messages are kept as "
                "they are, --msg-path FOLDER would add it"
            )
            return ""
        return types.store(topic).generate_msgdef(topic.type, ros_version=2)[0]


def _chain_note(proof: ChainProof) -> str:
    return f"source: {proof.sentence}; the chain is not part of the rebuilt bag"


def _holds(name: str, data: bytes | None) -> bool:
    """Return whether a file exists and, for JSON and YAML, parses as a mapping."""
    if data is None:
        return False
    parse = _PARSERS.get(Path(name).suffix)
    if parse is None:
        return True
    try:
        return isinstance(parse(data.decode("utf-8")), dict)
    except (ValueError, yaml.YAMLError, RecursionError):
        return False


def _note_in_run(file: Path, found: Recovered) -> None:
    """Record the recovery and its losses in `run.json`."""
    if not file.is_file():
        return
    try:
        info = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        return
    if isinstance(info, dict):
        info["recovered"] = {"messages": found.messages, "expected": found.expected, "lost": list(found.lost)}
        file.write_text(json.dumps(info, indent=2) + "\n", encoding="utf-8")
