"""The messages of a recorded bag, also of one that was never closed or lost its end.

The records are streamed one by one, with their checksums, and what stands before a damage is kept. A reader that goes
by the index at the end would be quicker, but neither sees a changed byte nor a chunk that the index does not name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from mcap.records import Channel, Message, Schema
from mcap.stream_reader import StreamReader

from testudo_deploy.bag_writer import BAG_FILE, CLOSED_KEY, METADATA_FILE


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
    if written is None:
        damage.append("the recording was not closed: its last moments may be missing")
    known = len(damage)
    messages = list(_prefix(folder / BAG_FILE, damage))
    if written is not None and len(messages) != written and len(damage) == known:
        damage.append(f"{BAG_FILE}: holds {len(messages)} messages; {written} were written")
    return messages


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
