"""The table of contents of log variables or parameters, and how a client reads it (commands of version 2)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from testudo_crazyflie.services.crtp_packets import Packet

_GET_ITEM, _GET_INFO = 2, 3
_CHANNEL = 0


@dataclass(frozen=True)
class Entry:
    """One variable as the table shows it."""

    name: str
    """`group.name`."""
    type_byte: int
    """Type and flags, as log and parameters number them."""
    format: str
    """Of one value, for `struct`."""


class TableOfContents:
    """The entries in their order; the number of an entry is its id."""

    def __init__(self, port: int, entries: Sequence[Entry], tail: bytes = b"") -> None:
        """Take the entries; ``tail`` follows in the answer that describes the table.

        Raises:
            ValueError: a name that fits in no packet, or one that stands twice.
        """
        self._port, self.entries, self._tail = port, tuple(entries), tail
        self.ids = {entry.name: number for number, entry in enumerate(self.entries)}
        if len(self.ids) != len(self.entries):
            raise ValueError("a name stands twice in a table of contents")
        for entry in self.entries:
            if len(entry.name) + 1 > 26:
                raise ValueError(f"{entry.name}: found {len(entry.name)} characters, expected at most 25")
        self.crc = 0
        for entry in self.entries:
            self.crc = zlib.crc32(struct.pack("<IB", self.crc, entry.type_byte) + entry.name.encode())

    def answer(self, data: bytes) -> Packet | None:
        """Return the answer to a request on the channel of the table."""
        if data[:1] == bytes([_GET_INFO]):
            return self._said(struct.pack("<BHI", _GET_INFO, len(self.entries), self.crc) + self._tail)
        if data[:1] == bytes([_GET_ITEM]) and len(data) >= 3:
            number = struct.unpack_from("<H", data, 1)[0]
            if number >= len(self.entries):
                return self._said(bytes([_GET_ITEM]))
            entry = self.entries[number]
            group, _, name = entry.name.partition(".")
            names = group.encode() + b"\0" + name.encode() + b"\0"
            return self._said(struct.pack("<BHB", _GET_ITEM, number, entry.type_byte) + names)
        return None

    def _said(self, data: bytes) -> Packet:
        return Packet(self._port, _CHANNEL, data)
