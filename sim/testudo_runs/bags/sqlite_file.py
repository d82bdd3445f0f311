"""Reads SQLite bags; of a damaged file all complete rows, page by page without its tree.

Every leaf page of a table holds complete rows, with large values in overflow pages. The columns of a row identify its
table among the three that rosbag2 uses.
"""

import shutil
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from testudo_runs.bags.bag_contents import CDR, BagContents, BagMessage, BagTopic, Keep, Tell

HEADER = b"SQLite format 3\x00"
_LEAF = 0x0D
_PAGE_SIZES = frozenset(1 << k for k in range(9, 17))
_SIZES = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 7: 8, 8: 0, 9: 0}
_MOST_COLUMNS = 32

Value = int | float | bytes | str | None


def is_cut(file: Path) -> str:
    """Return a text if the file size does not match the page count in the header; empty if it does."""
    with file.open("rb") as stream:
        head = stream.read(100)
    size, there = _page_size(head), file.stat().st_size
    if size not in _PAGE_SIZES:
        return ""
    # the count is valid only if its writer was the last one
    count = int.from_bytes(head[28:32], "big") if head[24:28] == head[92:96] else 0
    if there % size or there < size * count:
        if there % size:
            return f"it has {there} bytes, which is no whole number of pages"
        return f"{count * size - there} bytes of it are missing"
    return ""


def _page_size(head: bytes) -> int:
    size = int.from_bytes(head[16:18], "big") if len(head) == 100 else 0
    return 65_536 if size == 1 else size


class Pages:
    """The pages of one file."""

    def __init__(self, file: Path) -> None:
        self._data = file.read_bytes()
        head = self._data[:100]
        size = _page_size(head)
        self._size = size if size in _PAGE_SIZES else 4096  # SQLite's default since 2016
        reserved = head[20] if len(head) > 20 and head[20] < 64 else 0
        self._usable = self._size - reserved
        self.lost_rows = 0

    def rows(self) -> Iterator[tuple[int, list[Value]]]:
        """Yield row number and columns of every complete row, in page order."""
        for number in range((len(self._data) + self._size - 1) // self._size):
            page = self._data[number * self._size : (number + 1) * self._size]
            at = 100 if number == 0 else 0
            if len(page) > at + 8 and page[at] == _LEAF:
                yield from self._leaf(page, at)

    def _leaf(self, page: bytes, at: int) -> Iterator[tuple[int, list[Value]]]:
        count = int.from_bytes(page[at + 3 : at + 5], "big")
        if 8 + 2 * count > self._usable:
            return
        for k in range(count):
            pointer = page[at + 8 + 2 * k : at + 10 + 2 * k]
            begin = int.from_bytes(pointer, "big")
            if begin < at + 8 or begin >= self._usable:
                self.lost_rows += 1
                continue
            try:
                length, at_row = _varint(page, begin)
                number, at_row = _varint(page, at_row)
                if not 0 < length < len(self._data):
                    raise ValueError("no row is so long")  # noqa: TRY301 -- counted as lost as other broken rows
                yield number, _columns(self._payload(page, at_row, length))
            except (IndexError, ValueError, struct.error):
                self.lost_rows += 1

    def _payload(self, page: bytes, at: int, length: int) -> bytes:
        """Return the bytes of a row, including its overflow pages."""
        most, least = self._usable - 35, (self._usable - 12) * 32 // 255 - 23
        if length <= most:
            local = length
        else:
            local = least + (length - least) % (self._usable - 4)
            local = local if local <= most else least
        if at + local > len(page):
            raise ValueError("the page is cut")
        pieces, have = [page[at : at + local]], local
        following = int.from_bytes(page[at + local : at + local + 4], "big") if have < length else 0
        while have < length:
            begin = (following - 1) * self._size
            piece = self._data[begin : begin + self._usable] if following > 1 else b""
            want = min(length - have, self._usable - 4)
            if len(piece) < 4 + want:
                raise ValueError("an overflow page is missing")
            pieces.append(piece[4 : 4 + want])
            have += want
            following = int.from_bytes(piece[:4], "big")
        return b"".join(pieces)


def _columns(payload: bytes) -> list[Value]:
    head, at = _varint(payload, 0)
    kinds = []
    while at < head:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    if at != head or not 0 < len(kinds) <= _MOST_COLUMNS:
        raise ValueError("no head of a row")
    values: list[Value] = []
    for kind in kinds:
        size = (kind - 12) // 2 if kind >= 12 else _SIZES.get(kind, -1)
        if size < 0 or at + size > len(payload):
            raise ValueError("no such column")
        piece = payload[at : at + size]
        at += size
        if kind >= 12:
            values.append(piece.decode() if kind % 2 else piece)
        elif kind == 7:
            values.append(struct.unpack(">d", piece)[0])
        else:
            values.append({0: None, 8: 0, 9: 1}[kind] if not size else int.from_bytes(piece, "big", signed=True))
    if at != len(payload):
        raise ValueError("the columns do not fill the row")
    return values


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a big-endian varint of one to nine bytes, and the offset after it."""
    value = 0
    for k in range(8):
        byte = data[at + k]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + k + 1
    value = value << 8 | data[at + 8]
    return value - (1 << 64) if value >> 63 else value, at + 9


_BLOCK = 1000
_BESIDE = ("-wal", "-journal")
_TOPIC_COLUMNS = ("id", "name", "type", "serialization_format", "offered_qos_profiles", "type_description_hash")


class SqliteBag:
    """Reads one file, which is never written to; losses are added to ``damage`` as sentences."""

    def __init__(self, file: Path, contents: BagContents, damage: list[str]) -> None:
        self._file, self._contents, self._damage = file, contents, damage
        self._topics: dict[int, BagTopic] = {}

    def messages(self, keep: Keep, tell: Tell = lambda _: None) -> Iterator[BagMessage]:
        """Yield the messages of requested topics in row order."""
        taken: set[int] = set()
        try:
            yield from self._regular(keep, tell, taken)
        except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:
            before = self._contents.count
            yield from self._salvaged(keep, taken)
            self._damage.append(
                f"{self._file.name}: the database is damaged ({error}): {len(taken)} messages were "
                f"read, {self._contents.count - before} of them page by page"
            )

    def _regular(self, keep: Keep, tell: Tell, taken: set[int]) -> Iterator[BagMessage]:
        with TemporaryDirectory(prefix="testudo_bag_") as scratch:
            file = self._beside_copied(Path(scratch))
            if file == self._file and (cut := is_cut(file)):
                # SQLite would read the missing part of a page as zeros
                raise sqlite3.DatabaseError(cut)
            mode = "immutable=1" if file == self._file else "mode=rw"
            with closing(sqlite3.connect(f"{file.absolute().as_uri()}?{mode}", uri=True)) as base:
                self._read_topics(base)
                (last,) = base.execute("SELECT max(id) FROM messages").fetchone()
                rows = base.execute("SELECT id, topic_id, timestamp, data FROM messages ORDER BY id")
                unknown, before = 0, None
                while block := rows.fetchmany(_BLOCK):
                    for number, topic_id, log_ns, data in block:
                        if before is not None and number <= before:  # a broken tree can have cycles
                            raise sqlite3.DatabaseError("its rows do not follow one another")
                        before = number
                        topic = self._topics.get(topic_id)
                        taken.add(number)
                        if topic is None or not isinstance(log_ns, int) or not isinstance(data, bytes):
                            unknown += 1
                            continue
                        self._contents.take(topic, log_ns)
                        if keep(topic):
                            yield BagMessage(topic, log_ns, log_ns, 0, data)
                    tell(block[-1][0] / max(last, 1))
                if unknown:
                    self._damage.append(
                        f"{self._file.name}: {unknown} messages are of no known topic or of no message's form; left out"
                    )

    def _beside_copied(self, scratch: Path) -> Path:
        """Return the file, or a copy if a journal or WAL file beside it must be applied first."""
        beside = [
            name
            for end in _BESIDE
            if (name := self._file.with_name(self._file.name + end)).is_file() and name.stat().st_size
        ]
        if not beside:
            return self._file
        for file in (self._file, *beside):
            shutil.copyfile(file, scratch / file.name)
        return scratch / self._file.name

    def _read_topics(self, base: sqlite3.Connection) -> None:
        tables = {name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not {"topics", "messages"} <= tables:
            raise sqlite3.DatabaseError("the tables of rosbag2 are not in it")
        columns = [row[1] for row in base.execute("PRAGMA table_info(topics)")]
        definitions: dict[str, tuple[str, str]] = {}
        if "message_definitions" in tables:
            definitions = {
                kind: (text, form)
                for kind, form, text in base.execute(
                    "SELECT topic_type, encoding, encoded_message_definition FROM message_definitions"
                )
            }
        for row in base.execute("SELECT * FROM topics ORDER BY id"):
            facts = dict(zip(columns, row, strict=True))
            self._add_topic(facts, *definitions.get(facts["type"], ("", "")))

    def _add_topic(self, facts: dict[str, Any], text: str, form: str) -> None:
        topic = BagTopic(
            str(facts["name"]),
            str(facts["type"]),
            str(facts.get("serialization_format") or CDR),
            text,
            form,
            str(facts.get("offered_qos_profiles") or ""),
            str(facts.get("type_description_hash") or ""),
        )
        self._topics[int(facts["id"])] = topic
        self._contents.topics.setdefault(topic.name, topic)

    def _salvaged(self, keep: Keep, taken: set[int]) -> Iterator[BagMessage]:
        """Yield the messages that queries did not give, from the pages."""
        found: dict[int, tuple[int, int, bytes]] = {}
        topics: dict[int, list[Value]] = {}
        definitions: dict[str, tuple[str, str]] = {}
        for number, row in Pages(self._file).rows():
            match row:
                case [None | int(), int(topic_id), int(log_ns), bytes(data)]:
                    found[number] = (topic_id, log_ns, data)
                case [None | int(), str(name), str(kind), str(), *_] if name.startswith("/") and "/" in kind:
                    topics[number] = row
                case [None | int(), str(kind), "ros2msg" | "ros2idl" as form, str(text), str()]:
                    definitions[kind] = (text, form)
        for number in sorted(topics.keys() - self._topics.keys()):
            facts: dict[str, Any] = dict(zip(_TOPIC_COLUMNS, [number, *topics[number][1:6]], strict=False))
            self._add_topic(facts, *definitions.get(str(facts["type"]), ("", "")))
        unknown = 0
        for number in sorted(found.keys() - taken):
            topic_id, log_ns, data = found[number]
            topic = self._topics.get(topic_id)
            if topic is None:
                unknown += 1
                continue
            taken.add(number)
            self._contents.take(topic, log_ns)
            if keep(topic):
                yield BagMessage(topic, log_ns, log_ns, 0, data)
        if unknown:
            self._damage.append(f"{self._file.name}: {unknown} messages of topics whose names are lost; left out")
