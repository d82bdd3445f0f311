"""A recorded run in memory, and its copy with other messages: valid to every reader of bags, chain or not."""

import shutil
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import yaml
from mcap.records import Attachment, Channel, Message, Metadata, Schema
from mcap.stream_reader import StreamReader
from mcap.writer import CompressionType, Writer

from testudo_deploy.authentication.fleet_key import FleetKey
from testudo_deploy.files.bag_writer import BAG_FILE, CLOSED_KEY, FACTS_RECORD, METADATA_FILE
from testudo_deploy.files.hash_chain import CHAIN_KEY, CHAIN_RECORD, ChainWriter, start_hash


class Note(NamedTuple):
    """One message of the copy."""

    topic: str
    sequence: int
    log_ns: int
    publish_ns: int
    data: bytes


@dataclass(frozen=True)
class RunCopy:
    """Content of a run folder; checkpoints stand among the messages, where the recorder wrote them."""

    folder: Path
    schemas: dict[int, Schema]
    channels: dict[str, Channel]  # by topic
    attached: tuple[Attachment, ...]
    facts: dict[str, str]
    records: tuple[Note | dict[str, str], ...]  # messages, and the records of the chain

    @classmethod
    def of(cls, folder: Path) -> "RunCopy":
        """Read a run folder, which must be whole."""
        schemas: dict[int, Schema] = {}
        channels: dict[int, Channel] = {}
        attached: list[Attachment] = []
        facts: dict[str, str] = {}
        records: list[Note | dict[str, str]] = []
        with (folder / BAG_FILE).open("rb") as stream:
            for record in StreamReader(stream).records:
                if isinstance(record, Schema):
                    schemas[record.id] = record
                elif isinstance(record, Channel):
                    channels[record.id] = record
                elif isinstance(record, Attachment):
                    attached.append(record)
                elif isinstance(record, Metadata) and record.name == CHAIN_RECORD:
                    records.append(record.metadata)
                elif isinstance(record, Metadata) and record.name == FACTS_RECORD:
                    facts = record.metadata
                elif isinstance(record, Message):
                    topic = channels[record.channel_id].topic
                    records.append(Note(topic, record.sequence, record.log_time, record.publish_time, record.data))
        by_topic = {channel.topic: channel for channel in channels.values()}
        return cls(folder, schemas, by_topic, tuple(attached), facts, tuple(records))

    @property
    def places(self) -> list[int]:
        """Return the indices of the messages among the records."""
        return [k for k, record in enumerate(self.records) if isinstance(record, Note)]

    def note(self, place: int) -> Note:
        """Return the message at an index of the records."""
        found = self.records[place]
        if not isinstance(found, Note):
            raise TypeError(f"record {place} is a checkpoint")
        return found

    def with_records(self, records: list[Note | dict[str, str]]) -> "RunCopy":
        """Return a copy with other records."""
        return replace(self, records=tuple(records))

    def chained(self, key: FleetKey | None = None) -> "RunCopy":
        """Return a copy whose messages are numbered, and whose chain is computed, as its own recorder would have."""
        topics = [
            (
                one.topic,
                self.schemas[one.schema_id].name,
                one.message_encoding,
                self.schemas[one.schema_id].data.decode(),
                one.metadata.get("offered_qos_profiles", ""),
                one.metadata.get("topic_type_hash", ""),
            )
            for one in self.channels.values()
        ]
        files = [(one.name, one.media_type, one.data) for one in self.attached]
        chain = ChainWriter(start_hash(topics, files, self.facts), key)
        counts: Counter[str] = Counter()
        made: list[Note | dict[str, str]] = [chain.last.record()]
        for record in self.records:
            if isinstance(record, Note):
                note = record._replace(sequence=counts[record.topic])
                counts[record.topic] += 1
                chain.take(note.topic, (note.sequence, note.log_ns, note.publish_ns), note.data)
                made.append(note)
            elif record.get("number") != "0" and (found := chain.checkpoint(final=record.get("final") == "yes")):
                made.append(found.record())
        return self.with_records(made)

    def write(self, folder: Path, *, tells_hash: bool = False) -> Path:
        """Write the run to a new folder; ``tells_hash`` also puts counts and last hash into its `metadata.yaml`."""
        shutil.copytree(self.folder, folder, ignore=lambda *_: [BAG_FILE])
        with (folder / BAG_FILE).open("wb") as stream:
            writer = Writer(stream, compression=CompressionType.NONE)
            writer.start(profile="ros2", library="copy")
            numbers = {
                one.id: writer.register_schema(one.name, one.encoding, one.data) for one in self.schemas.values()
            }
            channels = {
                one.topic: writer.register_channel(
                    one.topic, one.message_encoding, numbers[one.schema_id], one.metadata
                )
                for one in self.channels.values()
            }
            for one in self.attached:
                writer.add_attachment(one.create_time, one.log_time, one.name, one.media_type, one.data)
            if self.facts:
                writer.add_metadata(FACTS_RECORD, self.facts)
            for record in self.records:
                if isinstance(record, Note):
                    writer.add_message(
                        channels[record.topic], record.log_ns, record.data, record.publish_ns, record.sequence
                    )
                else:
                    writer.flush()
                    writer.add_metadata(CHAIN_RECORD, record)
            writer.finish()
        if tells_hash:
            self._tell(folder / METADATA_FILE)
        return folder

    def _tell(self, file: Path) -> None:
        tables = yaml.safe_load(file.read_text(encoding="utf-8"))
        information = tables["rosbag2_bagfile_information"]
        if information["custom_data"][CLOSED_KEY] == "yes":
            information["message_count"] = len(self.places)
            last = next((one for one in reversed(self.records) if not isinstance(one, Note)), {})
            information["custom_data"][CHAIN_KEY] = last.get("hash", "")
        file.write_text(yaml.safe_dump(tables, sort_keys=False), encoding="utf-8")
