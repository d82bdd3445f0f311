"""The messages of a recorded bag, also of one that was never closed or lost its end.

A whole bag is read by `rosbags`, by way of the index at its end. Where that fails or finds another number of messages
than were written (a damaged index hides whole chunks without any error), the records are streamed one by one, and
what stands before the damage is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from mcap.records import Channel, Message, Schema
from mcap.stream_reader import StreamReader
from rosbags.highlevel import AnyReader

from testudo_deploy.run_folder import BAG_FILE, CLOSED_KEY, METADATA_FILE


@dataclass(frozen=True)
class RawMessage:
    """One recorded message, still serialised."""

    topic: str
    type: str
    """For example `nav_msgs/msg/Odometry`."""
    log_ns: int
    data: bytes


def is_closed(folder: Path) -> bool:
    """Return whether the recorder of a run folder came to its end."""
    return _written(folder) is not None


def _written(folder: Path) -> int | None:
    """Return how many messages a recorder wrote that came to its end; None for any other."""
    try:
        tables = yaml.safe_load((folder / METADATA_FILE).read_text(encoding="utf-8"))
        information = tables["rosbag2_bagfile_information"]
        return int(information["message_count"]) if information["custom_data"][CLOSED_KEY] == "yes" else None
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError):
        return None


def read_messages(folder: Path, damage: list[str]) -> list[RawMessage]:
    """Return every readable message, in file order; ``damage`` takes what was lost, in words."""
    written = _written(folder)
    if written is not None:
        try:
            messages = list(_whole_bag(folder))
            if len(messages) == written:
                return messages
            damage.append(f"{BAG_FILE}: is damaged (its index leads to {len(messages)} of {written} messages); "
                          "it was read without")
        except Exception as error:  # noqa: BLE001 -- whatever damage raises
            damage.append(
                f"{BAG_FILE}: is damaged ({error}); what stands before the damage was kept"
            )
    else:
        damage.append("the recording was not closed: its last moments may be missing")
    return list(_prefix(folder / BAG_FILE, damage))


def _whole_bag(folder: Path) -> Iterator[RawMessage]:
    with AnyReader([folder]) as reader:
        for connection, log_ns, data in reader.messages():
            yield RawMessage(connection.topic, connection.msgtype, log_ns, bytes(data))


def _prefix(file: Path, damage: list[str]) -> Iterator[RawMessage]:
    """Yield messages until the first byte that cannot be read."""
    schemas: dict[int, Schema] = {}
    channels: dict[int, Channel] = {}
    count = 0
    with file.open("rb") as stream:
        try:
            for record in StreamReader(stream, validate_crcs=True).records:
                if isinstance(record, Schema):
                    schemas[record.id] = record
                elif isinstance(record, Channel):
                    channels[record.id] = record
                elif isinstance(record, Message):
                    channel = channels[record.channel_id]
                    count += 1
                    yield RawMessage(
                        channel.topic, schemas[channel.schema_id].name, record.log_time, record.data
                    )
        except Exception as error:  # noqa: BLE001 -- whatever damage raises
            damage.append(
                f"{BAG_FILE}: cannot be read from byte {stream.tell()} of {file.stat().st_size} "
                f"on, after {count} messages ({type(error).__name__}: {error})"
            )
