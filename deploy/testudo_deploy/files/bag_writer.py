"""Writes a rosbag2 folder with MCAP: the format of every run, recorded or imported.

The folder is readable at any moment: `metadata.yaml` exists from the start and is completed at the end; messages are
written to disk twice a second, with a checkpoint of their chain of hashes behind them (`hash_chain.py`).
"""

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from mcap.writer import CompressionType, Writer

from testudo_deploy.authentication.fleet_key import FleetKey
from testudo_deploy.files.atomic_files import write_whole
from testudo_deploy.files.hash_chain import CHAIN_KEY, CHAIN_RECORD, ChainWriter, Checkpoint, start_hash
from testudo_hardware.errors import TestudoError

BAG_VERSION = 9  # of rosbag2's metadata
BAG_FILE = "run_0.mcap"
METADATA_FILE = "metadata.yaml"
CLOSED_KEY = "testudo_closed"
FACTS_RECORD = "testudo"
"""Name of the metadata record with facts about the run."""
_CHUNK_BYTES = 256 * 1024
_FLUSH_NS = 500_000_000
_MOST_WAITING_BYTES = 8 << 20  # a checkpoint comes earlier rather than that more memory is held
_ENCODING, _FORM = "cdr", "ros2msg"


class RunWriteError(TestudoError):
    """The run cannot be written: the folder contains a run, or the disk fails."""


@dataclass(frozen=True)
class RecordedTopic:
    """One topic and the format of its messages."""

    name: str
    type: str  # for example `nav_msgs/msg/Odometry`
    definition: str  # the message definition with its dependencies, in the form `ros2msg`
    type_hash: str  # `RIHS01_` and 64 digits; empty if unknown
    reliable: bool
    transient_local: bool
    depth: int


@dataclass(frozen=True)
class Enclosed:
    """A file of the folder that is also attached to the bag: bags are copied without other files."""

    name: str
    kind: str  # its media type


class BagWriter:
    """Writes serialised messages into a folder; times are nanoseconds of the Unix epoch."""

    def __init__(self, folder: Path, topics: Sequence[RecordedTopic], start_ns: int, library: str) -> None:
        """Prepare a run that starts at ``start_ns``; nothing is written before `open`.

        Other files in the folder stay; ``library`` is the name of the writer in the file.

        Raises:
            RunWriteError: the folder contains a run.
        """
        self.folder = folder
        self._topics, self._start_ns, self._library = tuple(topics), start_ns, library
        self._last_flush_ns = self._last_ns = start_ns
        self._counts = {topic.name: 0 for topic in topics}
        if (folder / METADATA_FILE).exists():
            raise RunWriteError(f"{folder}: holds a run already; give another run folder")

    @property
    def message_count(self) -> int:
        """Return the number of messages."""
        return sum(self._counts.values())

    @property
    def chain_hash(self) -> str:
        """Return the last hash of the chain, as hexadecimal digits: of a closed bag, what proves the whole bag."""
        return self._chain.last.hash.hex()

    def open(
        self,
        enclosed: Sequence[Enclosed] = (),
        metadata: Mapping[str, str] | None = None,
        key: FleetKey | None = None,
    ) -> None:
        """Write the start of the bag, with attached files of the folder and metadata; ``key`` signs the chain.

        Raises:
            RunWriteError: the disk fails.
        """
        try:
            self._write_metadata(closed=False)
            self._stream = (self.folder / BAG_FILE).open("wb")
            self._open_bag()
            contents = [(file.name, file.kind, (self.folder / file.name).read_bytes()) for file in enclosed]
            for name, kind, data in contents:
                self._writer.add_attachment(self._start_ns, self._start_ns, name, kind, data)
            if metadata:
                self._writer.add_metadata(FACTS_RECORD, dict(metadata))
            topics = [
                (topic.name, topic.type, _ENCODING, topic.definition, _qos_text(topic), topic.type_hash)
                for topic in self._topics
            ]
            self._chain = ChainWriter(start_hash(topics, contents, metadata or {}), key)
            self._add_checkpoint(self._chain.last)
            self._stream.flush()
        except OSError as error:
            raise self.refused(error) from error

    def write(self, topic: str, data: bytes, time_ns: int) -> None:
        """Write one serialised message of a topic.

        Raises:
            RunWriteError: the disk fails; the written part stays readable.
        """
        try:
            sequence = self._counts[topic] & 0xFFFFFFFF
            self._writer.add_message(self._channels[topic], time_ns, data, time_ns, sequence=sequence)
            self._chain.take(topic, (sequence, time_ns, time_ns), data)
            self._counts[topic] += 1
            self._last_ns = max(self._last_ns, time_ns)
            if time_ns - self._last_flush_ns > _FLUSH_NS or self._chain.waiting_bytes > _MOST_WAITING_BYTES:
                self._writer.flush()  # the messages reach the disk before the checkpoint is computed
                self._add_checkpoint(self._chain.checkpoint())
                self._stream.flush()
                self._last_flush_ns = time_ns
        except OSError as error:
            raise self.refused(error) from error

    def close(self) -> None:
        """Complete bag and metadata.

        Raises:
            RunWriteError: the disk fails.
        """
        if self._stream.closed:
            return
        try:
            try:
                self._writer.flush()
                self._add_checkpoint(self._chain.checkpoint(final=True))
                self._writer.finish()
            finally:
                self._stream.close()
            self._write_metadata(closed=True)
        except OSError as error:
            raise self.refused(error) from error

    def abandon(self) -> None:
        """Close without completing the bag: after a disk failure."""
        with contextlib.suppress(OSError):
            self._stream.close()

    def _open_bag(self) -> None:
        self._writer = Writer(self._stream, chunk_size=_CHUNK_BYTES, compression=CompressionType.ZSTD)
        self._writer.start(profile="ros2", library=self._library)
        schemas: dict[str, int] = {}
        self._channels: dict[str, int] = {}
        for topic in self._topics:
            if topic.type not in schemas:
                schemas[topic.type] = self._writer.register_schema(topic.type, _FORM, topic.definition.encode())
            self._channels[topic.name] = self._writer.register_channel(
                topic.name,
                _ENCODING,
                schemas[topic.type],
                {"offered_qos_profiles": _qos_text(topic), "topic_type_hash": topic.type_hash},
            )

    def _add_checkpoint(self, checkpoint: Checkpoint | None) -> None:
        if checkpoint is not None:
            self._writer.add_metadata(CHAIN_RECORD, checkpoint.record())

    def _write_metadata(self, *, closed: bool) -> None:
        """Write `metadata.yaml` atomically."""
        topics = [
            (topic.name, topic.type, _ENCODING, [_qos(topic)], topic.type_hash, self._counts[topic.name])
            for topic in self._topics
        ]
        custom = {CLOSED_KEY: "yes", CHAIN_KEY: self.chain_hash} if closed else {CLOSED_KEY: "no"}
        text = metadata_text(topics, self._start_ns, self._last_ns, custom, os.environ.get("ROS_DISTRO", "kilted"))
        write_whole(self.folder / METADATA_FILE, text)

    def refused(self, error: OSError) -> RunWriteError:
        """Return the error for a disk failure."""
        return RunWriteError(
            f"{self.folder}: the run cannot be written: {error.strerror or error}; "
            "recording ends, the written part stays readable"
        )


def metadata_text(
    topics: Sequence[tuple[str, str, str, list[Any], str, int]],
    first_ns: int,
    last_ns: int,
    custom: Mapping[str, str],
    distribution: str,
) -> str:
    """Return the text of `metadata.yaml` for a bag of one file.

    Each topic has name, type, serialisation, offered QoS profiles, hash of the type and number of messages.
    """
    start, length = {"nanoseconds_since_epoch": first_ns}, {"nanoseconds": last_ns - first_ns}
    count = sum(topic[-1] for topic in topics)
    keys = ("name", "type", "serialization_format", "offered_qos_profiles", "type_description_hash")
    information: dict[str, Any] = {
        "version": BAG_VERSION,
        "storage_identifier": "mcap",
        "duration": length,
        "starting_time": start,
        "message_count": count,
        "topics_with_message_count": [
            {"topic_metadata": dict(zip(keys, topic, strict=False)), "message_count": topic[-1]} for topic in topics
        ],
        "compression_format": "",
        "compression_mode": "",
        "relative_file_paths": [BAG_FILE],
        "files": [{"path": BAG_FILE, "starting_time": dict(start), "duration": dict(length), "message_count": count}],
        "custom_data": dict(custom),
        "ros_distro": distribution,
    }
    return yaml.safe_dump({"rosbag2_bagfile_information": information}, sort_keys=False)


def _qos_text(topic: RecordedTopic) -> str:
    return yaml.safe_dump([_qos(topic)], default_flow_style=False)


def _qos(topic: RecordedTopic) -> dict[str, Any]:
    """Return the offered quality of service as rosbag2 writes it since version 9."""
    unlimited = {"sec": 9223372036, "nsec": 854775807}
    return {
        "history": "keep_last",
        "depth": topic.depth,
        "reliability": "reliable" if topic.reliable else "best_effort",
        "durability": "transient_local" if topic.transient_local else "volatile",
        "deadline": dict(unlimited),
        "lifespan": dict(unlimited),
        "liveliness": "automatic",
        "liveliness_lease_duration": dict(unlimited),
        "avoid_ros_namespace_conventions": False,
    }
