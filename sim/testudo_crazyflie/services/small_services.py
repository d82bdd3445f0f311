"""The services that need no state of flight: link (port 15), platform (13), memory (4) and console (0)."""

from __future__ import annotations

import struct

from testudo_crazyflie.services.crtp_packets import CONSOLE, LINK, MEMORY, MOST_DATA, PLATFORM, Packet

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
    """Return the answers of the link service: an echo, or who this is."""
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
    """The one memory of the vehicle: where trajectories are put."""

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
