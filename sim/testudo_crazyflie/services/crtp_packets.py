"""CRTP packets: one byte of header (port, two reserved bits, channel) and up to 30 bytes of data."""

from __future__ import annotations

from dataclasses import dataclass

MOST_DATA = 30
_RESERVED = 0x0C

CONSOLE, PARAMETERS, COMMANDER, MEMORY, LOG, LOCALISATION = 0x0, 0x2, 0x3, 0x4, 0x5, 0x6
GENERIC, HIGH_LEVEL, SUPERVISOR, PLATFORM, LINK = 0x7, 0x8, 0x9, 0xD, 0xF
NULL_CHANNEL = 3
"""Of port `LINK`: packets that only keep the radio talking."""


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
    """Return a packet as it travels.

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
