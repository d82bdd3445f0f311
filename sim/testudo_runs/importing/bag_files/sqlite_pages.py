"""Reads the rows of a damaged SQLite file page by page, without its tree.

Every leaf page of a table holds whole rows, whatever happened to the pages above it; a row's large values go on in
overflow pages. Which table a row is of is seen from its columns: rosbag2 has three that matter.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

HEADER = b"SQLite format 3\x00"
_LEAF = 0x0D
_PAGE_SIZES = frozenset(1 << k for k in range(9, 17))
_SIZES = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 7: 8, 8: 0, 9: 0}
_MOST_COLUMNS = 32

Value = int | float | bytes | str | None


def is_cut(file: Path) -> str:
    """Return in words how the size of a file does not fit its own count of pages; empty if it does."""
    with file.open("rb") as stream:
        head = stream.read(100)
    size = int.from_bytes(head[16:18], "big") if len(head) == 100 else 0
    size = 65_536 if size == 1 else size
    there = file.stat().st_size
    if size not in _PAGE_SIZES:
        return ""
    # the count holds only if the version that wrote it was the last one to write
    count = int.from_bytes(head[28:32], "big") if head[24:28] == head[92:96] else 0
    if there % size or there < size * count:
        return (
            f"it has {there} bytes, which is no whole number of pages"
            if there % size
            else (f"{count * size - there} bytes of it are missing")
        )
    return ""


class Pages:
    """The pages of one file."""

    def __init__(self, file: Path) -> None:
        self._data = file.read_bytes()
        head = self._data[:100]
        size = int.from_bytes(head[16:18], "big") if len(head) == 100 else 0
        size = 65_536 if size == 1 else size
        self._size = size if size in _PAGE_SIZES else 4096  # SQLite's default since 2016
        reserved = head[20] if len(head) > 20 and head[20] < 64 else 0
        self._usable = self._size - reserved
        self.lost_rows = 0

    def rows(self) -> Iterator[tuple[int, list[Value]]]:
        """Yield row number and columns of every row that stands whole in the file, in the order of the pages."""
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
                yield self._row(page, begin)
            except (IndexError, ValueError, struct.error):
                self.lost_rows += 1

    def _row(self, page: bytes, at: int) -> tuple[int, list[Value]]:
        length, at = _varint(page, at)
        number, at = _varint(page, at)
        if not 0 < length < len(self._data):
            raise ValueError("no row is so long")
        return number, _columns(self._payload(page, at, length))

    def _payload(self, page: bytes, at: int, length: int) -> bytes:
        """Return a row's bytes, with those on overflow pages."""
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
    """Return a number of one to nine bytes, big end first, and where it ends."""
    value = 0
    for k in range(8):
        byte = data[at + k]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + k + 1
    value = value << 8 | data[at + 8]
    return value - (1 << 64) if value >> 63 else value, at + 9
