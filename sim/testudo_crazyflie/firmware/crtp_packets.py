"""CRTP packets, tables of contents, and the small services: link, platform, console, memory.

A packet has one byte of header (port, two reserved bits, channel) and up to 30 bytes of data.
"""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

MOST_DATA = 30
_RESERVED = 0x0C

CONSOLE, PARAMETERS, COMMANDER, MEMORY, LOG, LOCALISATION = 0x0, 0x2, 0x3, 0x4, 0x5, 0x6
GENERIC, HIGH_LEVEL, SUPERVISOR, PLATFORM, LINK = 0x7, 0x8, 0x9, 0xD, 0xF
NULL_CHANNEL = 3
"""Channel of port `LINK` for packets that only keep the connection alive."""


@dataclass(frozen=True)
class Packet:
    """One packet, up or down."""

    port: int
    channel: int
    data: bytes = b""

    @property
    def is_null(self) -> bool:
        """Return whether it carries nothing."""
        return self.port == LINK and self.channel == NULL_CHANNEL


def encode(packet: Packet) -> bytes:
    """Return the bytes of a packet.

    Raises:
        ValueError: more than 30 bytes of data.
    """
    if len(packet.data) > MOST_DATA:
        raise ValueError(f"found {len(packet.data)} bytes of data, expected at most {MOST_DATA}")
    return bytes([packet.port << 4 | _RESERVED | packet.channel]) + packet.data


def decode(raw: bytes) -> Packet | None:
    """Return the packet in some bytes; None if they cannot be one."""
    if not 1 <= len(raw) <= 1 + MOST_DATA:
        return None
    return Packet(raw[0] >> 4, raw[0] & 0x03, bytes(raw[1:]))


_GET_ITEM, _GET_INFO = 2, 3
_CHANNEL = 0


@dataclass(frozen=True)
class Entry:
    """One variable of a table."""

    name: str  # `group.name`
    type_byte: int  # type and flags, as log and parameters number them
    format: str  # of one value, for `struct`


class TableOfContents:
    """Ordered entries; the index of an entry is its id."""

    def __init__(self, port: int, entries: Sequence[Entry], tail: bytes = b"") -> None:
        """Take the entries; ``tail`` follows in the answer that describes the table.

        Raises:
            ValueError: a name too long for a packet, or a repeated one.
        """
        self._port, self.entries, self._tail = port, tuple(entries), tail
        self.ids = {entry.name: number for number, entry in enumerate(self.entries)}
        if len(self.ids) != len(self.entries):
            raise ValueError("a name is repeated in a table of contents")
        for entry in self.entries:
            if len(entry.name) + 1 > 26:
                raise ValueError(f"{entry.name}: found {len(entry.name)} characters, expected at most 25")
        self.crc = 0
        for entry in self.entries:
            self.crc = zlib.crc32(struct.pack("<IB", self.crc, entry.type_byte) + entry.name.encode())

    def answer(self, data: bytes) -> Packet | None:
        """Return the answer to a request on the channel of the table."""
        if data[:1] == bytes([_GET_INFO]):
            return self._answer(struct.pack("<BHI", _GET_INFO, len(self.entries), self.crc) + self._tail)
        if data[:1] == bytes([_GET_ITEM]) and len(data) >= 3:
            number = struct.unpack_from("<H", data, 1)[0]
            if number >= len(self.entries):
                return self._answer(bytes([_GET_ITEM]))
            entry = self.entries[number]
            group, _, name = entry.name.partition(".")
            names = group.encode() + b"\0" + name.encode() + b"\0"
            return self._answer(struct.pack("<BHB", _GET_ITEM, number, entry.type_byte) + names)
        return None

    def _answer(self, data: bytes) -> Packet:
        return Packet(self._port, _CHANNEL, data)


PROTOCOL_VERSION = 12
FIRMWARE = b"testudo"
DEVICE = b"CF21"
_MAGIC = b"Bitcraze Crazyflie"
_ECHO, _SOURCE = 0, 1
_COMMAND, _VERSION = 0, 1
_GET_PROTOCOL, _GET_FIRMWARE, _GET_DEVICE = 0, 1, 2
_ARM, _RECOVER, _NOTIFY = 1, 2, 3
_COUNT, _DETAILS = 1, 2
_INFO, _READ, _WRITE = 0, 1, 2
_TRAJECTORY_MEMORY, _TRAJECTORY_BYTES = 0x12, 4096
_FAILED = 5


def answer_link(packet: Packet) -> list[Packet]:
    """Return the answers of the link service: an echo, or the identification."""
    if packet.channel == _ECHO:
        return [packet]
    if packet.channel == _SOURCE:
        return [Packet(LINK, _SOURCE, _MAGIC.ljust(MOST_DATA, b"\0"))]
    return []


def answer_version(data: bytes) -> list[Packet]:
    """Return the answer of the platform service to a question for a version."""
    answers = {_GET_PROTOCOL: struct.pack("<I", PROTOCOL_VERSION), _GET_FIRMWARE: FIRMWARE, _GET_DEVICE: DEVICE}
    if data[:1] and data[0] in answers:
        return [Packet(PLATFORM, _VERSION, data[:1] + answers[data[0]])]
    return []


class MemoryService:
    """The memory of the vehicle, which stores trajectories."""

    def __init__(self) -> None:
        """Begin with zeros."""
        self._bytes = bytearray(_TRAJECTORY_BYTES)

    def handle(self, packet: Packet) -> list[Packet]:
        """Return the answers to a packet of the client."""
        data = packet.data
        if packet.channel == _INFO and data[:1] == bytes([_COUNT]):
            return [Packet(MEMORY, _INFO, bytes([_COUNT, 1]))]
        if packet.channel == _INFO and data[:1] == bytes([_DETAILS]) and len(data) >= 2:
            if data[1] != 0:
                return [Packet(MEMORY, _INFO, data[:2])]
            about = struct.pack("<BBBI", _DETAILS, 0, _TRAJECTORY_MEMORY, _TRAJECTORY_BYTES)
            return [Packet(MEMORY, _INFO, about + bytes(8))]
        if packet.channel == _READ and len(data) >= 6:
            number, start, count = struct.unpack_from("<BIB", data)
            good = number == 0 and start + count <= _TRAJECTORY_BYTES and count <= MOST_DATA - 6
            found = bytes(self._bytes[start : start + count]) if good else b""
            return [Packet(MEMORY, _READ, data[:5] + bytes([0 if good else _FAILED]) + found)]
        if packet.channel == _WRITE and len(data) >= 5:
            number, start = struct.unpack_from("<BI", data)
            good = number == 0 and start + len(data) - 5 <= _TRAJECTORY_BYTES
            if good:
                self._bytes[start : start + len(data) - 5] = data[5:]
            return [Packet(MEMORY, _WRITE, data[:5] + bytes([0 if good else _FAILED]))]
        return []


def console(text: str) -> list[Packet]:
    """Return a text as packets of the console."""
    raw = text.encode()
    return [Packet(CONSOLE, 0, raw[k : k + MOST_DATA]) for k in range(0, len(raw), MOST_DATA)]
