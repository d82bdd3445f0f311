"""Streams the records of an MCAP file, whole or damaged.

A chunk with a wrong checksum is skipped and reported; a file that ends within a chunk gives the messages before the
end. After an invalid length, the next chunk is found by its byte pattern.
"""

import mmap
import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import lz4.frame
import yaml
import zstandard
from mcap.data_stream import ReadDataStream
from mcap.opcode import Opcode
from mcap.records import Attachment, Channel, Metadata, Schema, Statistics

from testudo_deploy.files.bag_writer import BAG_FILE, CLOSED_KEY, FACTS_RECORD, METADATA_FILE
from testudo_deploy.files.hash_chain import CHAIN_KEY, CHAIN_RECORD
from testudo_runs.bags.bag_contents import BagContents, BagMessage, BagTopic, Enclosure, Keep, Tell, clock_time
from testudo_runs.bags.chain_proof import ChainProof, ChainReader

MAGIC = b"\x89MCAP0\r\n"
_HEAD = struct.Struct("<BQ")
_CHUNK = struct.Struct("<QQQII")
_MESSAGE = struct.Struct("<HIQQ")
_MESSAGE_RECORD = struct.Struct("<9xHIQQ")
_FOOTER = struct.Struct("<QQI")
_IS_MESSAGE = int(Opcode.MESSAGE)  # a comparison with a member of an enumeration takes longer
_FACTS = frozenset(map(int, (Opcode.SCHEMA, Opcode.CHANNEL, Opcode.ATTACHMENT, Opcode.METADATA, Opcode.STATISTICS)))
_MAX_CHUNK = 1 << 31
_MAX_SPAN_NS = 86_400 * 1_000_000_000
_CHUNK_FORM = re.compile(rb"\x06.{5}\x00{3}.{28}(?:\x00{4}|\x03\x00{3}lz4|\x04\x00{3}zstd)", re.DOTALL)
_MAX_SHOWN = 5
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # 20 times as fast, where it was built


class McapStream:
    """Reads one file; losses are added to ``damage`` as sentences."""

    def __init__(self, file: Path, contents: BagContents, damage: list[str]) -> None:
        self._file, self._contents, self._damage = file, contents, damage
        self._schemas: dict[int, Schema] = {}
        self._channels: dict[int, BagTopic] = {}
        self._size = file.stat().st_size
        self._found = self._unknown = self._pending_lost = 0
        self._lost_chunk: str | None = None
        self._last_ns = 0
        self._expected: int | None = None
        self._ended = self._asked_summary = False
        self._jumped = False
        self._begun = len(damage)
        self._chain = ChainReader()

    @property
    def proof(self) -> ChainProof:
        """Return what the chain of hashes shows, once all messages are read."""
        return self._chain.proof(self._channels.values(), self._contents.records.get(FACTS_RECORD, {}))

    def messages(self, keep: Keep, tell: Tell = lambda _: None) -> Iterator[BagMessage]:
        """Yield the messages of requested topics in file order; ``tell`` gets the completed fraction."""
        for batch in self.batches(tell):
            yield from (message for message in batch if keep(message.topic))

    def batches(self, tell: Tell = lambda _: None) -> Iterator[Sequence[BagMessage]]:
        """Yield all messages in file order, those of a chunk together; ``tell`` gets the completed fraction."""
        with self._file.open("rb") as stream:
            if stream.read(len(MAGIC)) != MAGIC:
                self._say("does not begin as an MCAP file does")
            while not self._ended:
                begin = stream.tell()
                head = stream.read(_HEAD.size)
                if len(head) < _HEAD.size:
                    self._say(f"was not closed: it ends at byte {self._size}, after {self._found} messages")
                    break
                opcode, length = _HEAD.unpack(head)
                if not 1 <= opcode <= 15 or stream.tell() + length > self._size:
                    yield from self._cut(stream, begin, opcode)
                    if not self._resume(stream, begin):
                        break
                    continue
                yield from self._record(opcode, stream.read(length), begin)
                if opcode == Opcode.CHUNK:
                    tell(stream.tell() / self._size)
            if self._ended and stream.read() != MAGIC:
                self._say("does not end as an MCAP file does")
            self._tell_lost_chunk()
            if self._unknown:
                self._say(f"{self._unknown} messages of a topic that the file does not define; left out")
            if self._expected is not None and self._expected != self._found and len(self._damage) == self._begun:
                self._say(f"holds {self._found} messages; {self._expected} were written")

    def _record(self, opcode: int, body: bytes, begin: int) -> Iterator[Sequence[BagMessage]]:
        try:
            if opcode == Opcode.CHUNK:
                self._tell_lost_chunk()
                yield from self._chunk(body, begin)
            elif opcode == Opcode.MESSAGE:
                message = self._message(body)
                if message is not None:
                    yield (message,)
            elif opcode == Opcode.MESSAGE_INDEX and self._lost_chunk:
                self._pending_lost += (len(body) - 6) // 16
            elif opcode == Opcode.DATA_END:
                self._tell_lost_chunk()
                self._check_sum(body, begin)
            elif opcode == Opcode.FOOTER:
                self._ended = True
            else:
                self._fact(opcode, body)
        except Exception as error:  # noqa: BLE001 -- any error of a broken record
            self._say(f"a record at byte {begin} cannot be read ({type(error).__name__}); left out")

    def _chunk(self, body: bytes, begin: int) -> Iterator[Sequence[BagMessage]]:
        start_ns, end_ns, size, crc, named = _CHUNK.unpack_from(body)
        at = _CHUNK.size + named + 8
        data = _unpacked(body[at:], body[_CHUNK.size : _CHUNK.size + named], size)
        if len(data) != size or (crc and zlib.crc32(data) != crc):
            self._lost_chunk = (
                f"the chunk at byte {begin}, from {clock_time(start_ns)} to {clock_time(end_ns)}, fails its checksum"
            )
            return
        yield from self._records_within(data, begin)

    def _records_within(self, data: bytes, begin: int) -> Iterator[Sequence[BagMessage]]:
        """Yield the messages of a chunk up to its last complete record."""
        found: list[BagMessage] = []
        try:
            self._take_records(data, found, begin)
        finally:  # also those before a broken record
            yield found

    def _take_records(self, data: bytes, found: list[BagMessage], begin: int) -> None:
        """Take the records of a chunk; its messages are added to ``found``, and taken together up to the next fact."""
        at, size, taken = 0, len(data), 0
        head_size, message_size, channels = _HEAD.size, _HEAD.size + _MESSAGE.size, self._channels
        read, read_head, add, new = _MESSAGE_RECORD.unpack_from, _HEAD.unpack_from, found.append, tuple.__new__
        try:
            while at + head_size <= size:
                opcode, length = read_head(data, at)
                end = at + head_size + length
                if end > size:
                    return
                if opcode == _IS_MESSAGE:
                    if length < _MESSAGE.size:
                        raise struct.error("a message is cut")
                    channel, sequence, log_ns, publish_ns = read(data, at)
                    topic = channels.get(channel) or self._topic_of(channel)
                    if topic is not None:  # without the initialiser of the named tuple, which takes longer
                        add(new(BagMessage, (topic, log_ns, publish_ns, sequence, data[at + message_size : end], 0)))
                else:
                    self._take(found[taken:])
                    taken = len(found)
                    try:
                        self._fact(opcode, data[at + head_size : end])
                    except Exception as error:  # noqa: BLE001 -- any error of a broken record
                        self._say(f"a record in the chunk at byte {begin} cannot be read ({type(error).__name__})")
                at = end
        finally:
            self._take(found[taken:])

    def _topic_of(self, channel: int) -> BagTopic | None:
        """Return a topic that only the summary may define; count its message as unknown without it."""
        self._read_summary()
        topic = self._channels.get(channel)
        self._unknown += topic is None
        return topic

    def _message(self, body: bytes) -> BagMessage | None:
        """Take a message outside of a chunk."""
        channel, sequence, log_ns, publish_ns = _MESSAGE.unpack_from(body)
        topic = self._channels.get(channel) or self._topic_of(channel)
        if topic is None:
            return None
        message = BagMessage(topic, log_ns, publish_ns, sequence, body[_MESSAGE.size :])
        self._take([message])
        return message

    def _take(self, messages: Sequence[BagMessage]) -> None:
        """Count messages, and add them to the chain."""
        if messages:
            self._found += len(messages)
            self._last_ns = messages[-1].log_ns
            self._contents.take_all(messages)
            self._chain.take_all(messages)

    def _fact(self, opcode: int, body: bytes) -> None:
        if opcode not in _FACTS:
            return
        stream = ReadDataStream(BytesIO(body))
        if opcode == Opcode.SCHEMA:
            schema = Schema.read(stream)
            self._schemas[schema.id] = schema
        elif opcode == Opcode.CHANNEL:
            self._channel(Channel.read(stream))
        elif opcode == Opcode.ATTACHMENT:
            found = Attachment.read(stream)
            self._contents.enclosed.append(Enclosure(found.name, found.media_type, found.log_time, found.data))
            self._chain.attach(found.name, found.media_type, found.data)
        elif opcode == Opcode.METADATA:
            record = Metadata.read(stream)
            if record.name == CHAIN_RECORD:
                self._chain.check(record.metadata)
            else:
                self._contents.records[record.name] = record.metadata
        elif opcode == Opcode.STATISTICS:
            self._expected = Statistics.read(stream).message_count

    def _channel(self, channel: Channel) -> None:
        schema = self._schemas.get(channel.schema_id)
        text = schema.data.decode("utf-8", "replace") if schema else ""
        topic = BagTopic(
            channel.topic,
            schema.name if schema else "",
            channel.message_encoding,
            text,
            schema.encoding if schema else "",
            channel.metadata.get("offered_qos_profiles", ""),
            channel.metadata.get("topic_type_hash", ""),
        )
        self._channels[channel.id] = topic
        self._contents.topics.setdefault(topic.name, topic)

    def _cut(self, stream: BinaryIO, begin: int, opcode: int) -> Iterator[Sequence[BagMessage]]:
        """Yield the readable messages of a record that is longer than the rest of the file."""
        before, until = self._found, ""
        if opcode == Opcode.CHUNK:
            try:
                head = stream.read(_CHUNK.size)
                _, end_ns, size, crc, named = _CHUNK.unpack(head)
                until = f"; the cut chunk went on to {clock_time(end_ns)}"
                compression, (packed,) = stream.read(named & 7), struct.unpack("<Q", stream.read(8))
                data = _unpacked(stream.read(min(packed, self._size)), compression, size)[:size]
                if len(data) < size or not crc or zlib.crc32(data) == crc:
                    yield from self._records_within(data, begin)
            except struct.error:  # shorter than its header
                pass
        got = self._found - before
        extra = f", {got} of them from the cut chunk, without its checksum" if got else ""
        self._say(
            f"cannot be read from byte {begin} of {self._size} on, after {self._found} messages{extra}"
            + (f"; the last is of {clock_time(self._last_ns)}" if self._found else "")
            + until
        )

    def _resume(self, stream: BinaryIO, begin: int) -> bool:
        """Seek the next chunk after ``begin``; return False if there is none."""
        self._jumped = True
        rest = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        for match in _CHUNK_FORM.finditer(rest, begin + 1):
            at = match.start()
            _, length = _HEAD.unpack_from(rest, at)
            start_ns, end_ns, size, _, _ = _CHUNK.unpack_from(rest, at + _HEAD.size)
            far = self._last_ns and abs(start_ns - self._last_ns) > _MAX_SPAN_NS
            whole = at + _HEAD.size + length <= len(rest)
            if whole and start_ns <= end_ns < start_ns + _MAX_SPAN_NS and size < _MAX_CHUNK and not far:
                stream.seek(at)
                self._say(f"read on at byte {at}: {at - begin} bytes before it are lost")
                return True
        return False

    def _read_summary(self) -> None:
        """Read the channels in the summary section, once; a broken summary gives none."""
        if self._asked_summary:
            return
        self._asked_summary = True
        try:
            with self._file.open("rb") as stream:
                stream.seek(-(_FOOTER.size + len(MAGIC)), 2)
                at, _, _ = _FOOTER.unpack(stream.read(_FOOTER.size))
                stream.seek(at)
                while at and len(head := stream.read(_HEAD.size)) == _HEAD.size:
                    opcode, length = _HEAD.unpack(head)
                    if opcode not in (Opcode.SCHEMA, Opcode.CHANNEL) or length > self._size:
                        break
                    self._fact(opcode, stream.read(length))
        except Exception:  # noqa: BLE001 -- messages without a channel are reported in any case
            return

    def _check_sum(self, body: bytes, begin: int) -> None:
        """Check the checksum of all bytes before this record."""
        (expected,) = struct.unpack_from("<I", body)
        if expected and not self._jumped and len(self._damage) == self._begun:
            with self._file.open("rb") as stream:
                found, left = 0, begin
                while left > 0 and (piece := stream.read(min(left, 1 << 22))):
                    found, left = zlib.crc32(piece, found), left - len(piece)
            if found != expected:
                self._say("the checksum of its data does not hold: a byte was changed that no chunk's checksum covers")

    def _tell_lost_chunk(self) -> None:
        if self._lost_chunk:
            count = f"{self._pending_lost} messages" if self._pending_lost else "its messages"
            self._say(f"{self._lost_chunk}; {count} are left out")
        self._lost_chunk, self._pending_lost = None, 0

    def _say(self, text: str) -> None:
        shown = len(self._damage) - self._begun
        if shown < _MAX_SHOWN:
            self._damage.append(f"{self._file.name}: {text}")
        elif shown == _MAX_SHOWN:
            self._damage.append(f"{self._file.name}: and more of the same")


def _unpacked(data: bytes, compression: bytes, size: int) -> bytes:
    """Return the readable part of a chunk, unpacked, at most ``size + 1`` bytes."""
    if size > _MAX_CHUNK:
        return b""
    if compression == b"":
        return data[: size + 1]
    pieces: list[bytes] = []
    have = 0
    try:
        reader = (
            lz4.frame.LZ4FrameFile(BytesIO(data))
            if compression == b"lz4"
            else zstandard.ZstdDecompressor().stream_reader(data)
        )
        while have <= size and (piece := reader.read(min(1 << 20, size + 1 - have))):
            pieces.append(piece)
            have += len(piece)
    except Exception:  # noqa: BLE001, S110 -- the readable part is kept; its length or checksum shows the loss
        pass
    return b"".join(pieces)


def _metadata(folder: Path) -> tuple[int | None, str]:
    """Return the number of messages of a closed recording, None for any other, and the last hash of its chain."""
    try:
        tables = yaml.load((folder / METADATA_FILE).read_text(encoding="utf-8"), _LOADER)  # noqa: S506 -- a safe one
        information = tables["rosbag2_bagfile_information"]
        custom = information["custom_data"]
        written = int(information["message_count"]) if custom[CLOSED_KEY] == "yes" else None
        return written, str(custom.get(CHAIN_KEY, ""))
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError):
        return None, ""


def read_messages(folder: Path, damage: list[str], tell: Tell = lambda _: None) -> tuple[list[BagMessage], ChainProof]:
    """Return every readable message of a run folder in file order, and what its chain of hashes shows.

    ``damage`` collects losses, and deviations from what was recorded, as sentences. All records are read with their
    checksums: the index at the end shows neither a changed byte nor a chunk that it does not list.
    """
    written, expected = _metadata(folder)
    if written is None:
        damage.append("the recording was not closed: its last moments may be missing")
    known = len(damage)
    contents = BagContents()
    stream = McapStream(folder / BAG_FILE, contents, damage)
    messages = list(chain.from_iterable(stream.batches(tell)))
    if written is not None and len(messages) != written and len(damage) == known:
        damage.append(f"{BAG_FILE}: holds {len(messages)} messages; {written} were written")
    proof = stream.proof
    damage += [f"{BAG_FILE}: {text}" for text in proof.sentences]
    if written is not None and proof.exists and not proof.is_closed:
        damage.append(f"{BAG_FILE}: the chain of hashes does not reach the end of the closed recording")
    if expected and proof.last_hash != expected and proof.is_closed:
        damage.append(f"{METADATA_FILE}: {CHAIN_KEY}: found {expected}, expected {proof.last_hash} as in the bag")
    if expected and not proof.exists:
        damage.append(f"{BAG_FILE}: the chain of hashes is missing, though {METADATA_FILE} names its last hash")
    for file in contents.enclosed:
        beside = folder / Path(file.name).name
        if beside.is_file() and beside.read_bytes() != file.data:
            damage.append(f"{beside.name}: is not the file that was attached to the bag when recording began")
    return messages, proof
