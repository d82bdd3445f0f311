"""The messages of a recorded bag, also of one that was never closed or lost its end.

The records are streamed one by one, with their checksums: a damaged chunk is left out, the others are kept. A reader
that goes by the index at the end would be quicker, but neither sees a changed byte nor a chunk that it does not name.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from testudo_deploy.files.bag_writer import BAG_FILE, CLOSED_KEY, METADATA_FILE
from testudo_runs.bags.bag_contents import BagContents, Tell
from testudo_runs.bags.mcap_file import McapStream


@dataclass(frozen=True)
class RawMessage:
    """One recorded message, still serialised."""

    topic: str
    type: str
    """For example `nav_msgs/msg/Odometry`."""
    log_ns: int
    data: bytes


def _written(folder: Path) -> int | None:
    """Return how many messages a recorder wrote that came to its end; None for any other."""
    try:
        tables = yaml.safe_load((folder / METADATA_FILE).read_text(encoding="utf-8"))
        information = tables["rosbag2_bagfile_information"]
        return int(information["message_count"]) if information["custom_data"][CLOSED_KEY] == "yes" else None
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError):
        return None


def read_messages(folder: Path, damage: list[str], tell: Tell = lambda _: None) -> list[RawMessage]:
    """Return every readable message, in file order.

    Args:
        folder: of the run.
        damage: takes what was lost, in words.
        tell: is told the share that is done.
    """
    written = _written(folder)
    if written is None:
        damage.append("the recording was not closed: its last moments may be missing")
    known = len(damage)
    stream = McapStream(folder / BAG_FILE, BagContents(), damage)
    messages = [
        RawMessage(one.topic.name, one.topic.type, one.log_ns, one.data)
        for one in stream.messages(lambda _: True, tell)
    ]
    if written is not None and len(messages) != written and len(damage) == known:
        damage.append(f"{BAG_FILE}: holds {len(messages)} messages; {written} were written")
    return messages
