"""Reads a bag of ROS 1 (format 2.0) by the library rosbags, and converts its messages to the CDR of ROS 2."""

import re
from collections.abc import Iterator
from pathlib import Path

from rosbags.interfaces import Connection
from rosbags.rosbag1 import Reader, ReaderError
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

from testudo_runs.bags.bag_contents import BagContents, BagError, BagMessage, BagTopic, Keep, Tell

ROS1_MAGIC = b"#ROSBAG V"
_SEQUENCE = re.compile(r"(^MSG: std_msgs/Header$.*?)^\s*uint32\s+seq\b[^\n]*\n", re.DOTALL | re.MULTILINE)
"""The number in a header of ROS 1, which ROS 2 and the conversion leave out."""


class Ros1Bag:
    """Reads one file, which is never written to; losses are added to ``damage`` as sentences.

    A bag without its index, as a killed recorder leaves it, is refused: ROS 1 rebuilds the index.
    """

    def __init__(self, file: Path, contents: BagContents, damage: list[str]) -> None:
        self._file, self._contents, self._damage = file, contents, damage

    def messages(self, keep: Keep, tell: Tell = lambda _: None) -> Iterator[BagMessage]:
        """Yield the messages of requested topics by time of recording.

        Raises:
            BagError: another version, no index, or a damaged one.
        """
        try:
            with Reader(self._file) as reader:
                yield from self._messages(reader, keep, tell)
        except (ReaderError, EOFError, ValueError, KeyError, ArithmeticError) as error:
            raise BagError(
                f"{self._file}: this bag of ROS 1 cannot be read ({' '.join(str(error).split())}); expected format 2.0 "
                "with an index: `rosbag reindex` of ROS 1 rebuilds it"
            ) from error

    def _messages(self, reader: Reader, keep: Keep, tell: Tell) -> Iterator[BagMessage]:
        made = {connection.id: self._topic(connection) for connection in reader.connections}
        lost: dict[str, int] = {}
        for number, (connection, log_ns, raw) in enumerate(reader.messages()):
            topic, store = made[connection.id]
            self._contents.take(topic, log_ns)
            if keep(topic) and store is not None:
                try:
                    data = bytes(store.ros1_to_cdr(raw, topic.type))
                except Exception:  # noqa: BLE001 -- any error of a broken message
                    lost[topic.name] = lost.get(topic.name, 0) + 1
                    continue
                yield BagMessage(topic, log_ns, log_ns, number, data)
            tell(number / max(reader.message_count, 1))
        self._damage += [
            f"{self._file.name}: {count} messages of {name} do not match their definition; left out"
            for name, count in lost.items()
        ]

    def _topic(self, connection: Connection) -> tuple[BagTopic, Typestore | None]:
        """Return a topic with the definition that the bag holds, and the types that convert its messages."""
        text = _SEQUENCE.sub(r"\1", connection.msgdef.data)
        store: Typestore | None = get_typestore(Stores.EMPTY)
        try:
            store.register(get_types_from_msg(text, connection.msgtype))
        except Exception as error:  # noqa: BLE001 -- any error of a broken definition
            self._damage.append(
                f"{self._file.name}: {connection.topic}: the definition of {connection.msgtype} cannot be read "
                f"({type(error).__name__}); left out"
            )
            store = None
        topic = BagTopic(connection.topic, connection.msgtype, definition=text, definition_kind="ros2msg")
        self._contents.topics.setdefault(topic.name, topic)
        return topic, store
