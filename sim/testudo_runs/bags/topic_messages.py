"""Messages of a bag by topic, decoded when they are asked for: one by one, or all of a topic at once."""

import struct
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from rosbags.typesys.store import Typestore

from testudo_runs.bags.bag_contents import NANO, BagMessage, Tell

_BYTES = struct.Struct("<4xIII")  # of a `UInt8MultiArray`: number of dimensions, offset, number of bytes
_PADDING = 3  # bytes that may stand behind a message


class TopicMessages[Message]:
    """Messages with their times of arrival; each is decoded once, and one that cannot be is damage."""

    def __init__(self, store: Typestore, types: Mapping[str, str], damage: list[str], tell: Tell) -> None:
        """Begin without messages.

        ``types`` are by topic; ``damage`` collects sentences; ``tell`` gets the decoded fraction.
        """
        self.store = store
        self._types, self._damage, self._tell = types, damage, tell
        self._raw: dict[str, list[tuple[float, bytes]]] = defaultdict(list)
        self._decoded: dict[str, dict[int, Message | None]] = defaultdict(dict)
        self._unread: set[str] = set()
        self._readable = self._count = 0

    def take_all(self, messages: Sequence[BagMessage], start_ns: int, start_s: float) -> None:
        """Add the messages of the topics whose type is given; ``start_s`` is the time of arrival at ``start_ns``."""
        of_channel: dict[int, list[tuple[float, bytes]] | None] = {}  # by identity: a comparison of topics takes long
        for topic, log_ns, _, _, data, _ in messages:
            key = id(topic)
            if key not in of_channel:
                of_channel[key] = self._raw[topic.name] if topic.name in self._types else None
            rows = of_channel[key]
            if rows is not None:
                rows.append(((log_ns - start_ns) / NANO + start_s, data))
        self._unread = set(self._raw)
        self._count = sum(map(len, self._raw.values()))

    def messages(self, topic: str) -> Iterator[tuple[float, Message]]:
        """Yield time of arrival and content of the messages of a topic that can be decoded."""
        found = self._decoded[topic]
        for index, (received_s, data) in enumerate(self._raw[topic]):
            if index not in found:
                found[index] = self._decode(topic, data)
            message = found[index]
            if message is not None:
                yield received_s, message
        self._was_read(topic)

    def payloads(self, topic: str) -> Iterator[tuple[float, bytes]]:
        """Yield time of arrival and bytes of the `UInt8MultiArray`s of a topic that can be decoded."""
        for received_s, data in self._raw[topic]:
            payload = _payload(data)
            if payload is None:
                message: Any = self._decode(topic, data)
                payload = None if message is None else message.data.tobytes()
            else:
                self._readable += 1
            if payload is not None:
                yield received_s, payload
        self._was_read(topic)

    def rows(
        self,
        topic: str,
        read: Callable[[Sequence[bytes]], np.ndarray | None],
        shift: Callable[[np.ndarray], np.ndarray | float] = lambda _: 0.0,
    ) -> np.ndarray | None:
        """Return stamp, time of arrival and numbers (M, ...) of a topic's messages; None if one is not as expected.

        ``read`` takes the serialised messages, and returns stamp and numbers (M, ...), or None; ``shift`` returns what
        is added to the stamps, from the times of arrival (M,).
        """
        raw = self._raw[topic]
        found = read([data for _, data in raw])
        if found is None:
            return None
        self._readable += len(found)
        self._was_read(topic)
        received_s = np.array([arrived_s for arrived_s, _ in raw], float)
        return np.column_stack([found[:, 0] + shift(received_s), received_s, found[:, 1:]])

    def finish(self) -> bool:
        """Decode the messages that nobody asked for, to find damage; return whether any message could be decoded."""
        for topic in sorted(self._unread):
            for _ in self.messages(topic):
                pass
        return self._readable > 0

    def _decode(self, topic: str, data: bytes) -> Message | None:
        try:
            message: Message = self.store.deserialize_cdr(data, self._types[topic])  # pyright: ignore[reportAssignmentType]
        except Exception as error:  # noqa: BLE001 -- any error of a broken message
            self._damage.append(f"{topic}: a message cannot be decoded ({error}); left out")
            return None
        self._readable += 1
        return message

    def _was_read(self, topic: str) -> None:
        self._unread.discard(topic)
        left = sum(len(self._raw[name]) for name in self._unread)
        self._tell(1 - left / max(self._count, 1))


def _payload(data: bytes) -> bytes | None:
    """Return the bytes of a serialised `UInt8MultiArray` without dimensions; None for any other message."""
    if len(data) < _BYTES.size or data[:2] != b"\0\1":
        return None
    dimensions, _, count = _BYTES.unpack_from(data)
    end = _BYTES.size + count
    return data[_BYTES.size : end] if not dimensions and end <= len(data) <= end + _PADDING else None
