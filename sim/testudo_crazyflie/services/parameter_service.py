"""Parameters: reading, writing and persistent storage (port 2)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from testudo_crazyflie.services.crtp_packets import PARAMETERS, Entry, Packet, TableOfContents

_TYPES = {
    "uint8": (0x08, "<B"),
    "uint16": (0x09, "<H"),
    "uint32": (0x0A, "<I"),
    "int8": (0x00, "<b"),
    "int16": (0x01, "<h"),
    "int32": (0x02, "<i"),
    "float": (0x06, "<f"),
}
_EXTENDED, _READ_ONLY = 0x10, 0x40
_READ, _WRITE, _MISC = 1, 2, 3
_SET_BY_NAME, _TYPE, _STORE, _STATE, _CLEAR, _DEFAULT, _TYPE_2, _DEFAULT_2 = 0, 2, 3, 4, 5, 6, 7, 8
_PERSISTENT = 1
_NO_ENTRY, _NOT_ALLOWED, _INVALID = 2, 13, 22


@dataclass(frozen=True)
class Parameter:
    """One parameter as the firmware declares it."""

    name: str
    type: str
    """One of uint8, uint16, uint32, int8, int16, int32, float."""
    default: float
    read_only: bool = False
    persistent: bool = False


class ParameterService:
    """All parameters of one vehicle."""

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        """Begin with the defaults."""
        self._parameters = tuple(parameters)
        self.contents = TableOfContents(
            PARAMETERS, [Entry(item.name, _type_byte(item), _TYPES[item.type][1]) for item in self._parameters]
        )
        self._values = [item.default for item in self._parameters]
        self._stored: dict[int, float] = {}

    def __getitem__(self, name: str) -> float:
        """Return the value of a parameter."""
        return self._values[self.contents.ids[name]]

    def __setitem__(self, name: str, value: float) -> None:
        """Set a parameter from inside, read-only or not."""
        self._values[self.contents.ids[name]] = value

    def handle(self, packet: Packet) -> list[Packet]:
        """Return the answers to a packet of the client."""
        data = packet.data
        if packet.channel == 0:
            answer = self.contents.answer(data)
            return [] if answer is None else [answer]
        if packet.channel == _READ and len(data) >= 2:
            return [Packet(PARAMETERS, _READ, data[:2] + self._read(_number(data)))]
        if packet.channel == _WRITE and len(data) >= 3:
            return self._write(data)
        if packet.channel == _MISC and data:
            return [Packet(PARAMETERS, _MISC, said) for said in self._misc(data)]
        return []

    def _read(self, number: int) -> bytes:
        if number >= len(self._values):
            return bytes([_NO_ENTRY])
        return b"\0" + self._packed(number, self._values[number])

    def _write(self, data: bytes) -> list[Packet]:
        number = _number(data)
        if number >= len(self._values):
            return [Packet(PARAMETERS, _WRITE, data[:2] + bytes([_NO_ENTRY]))]
        if self._parameters[number].read_only or not self._take(number, data[2:]):
            return []
        return [Packet(PARAMETERS, _WRITE, data)]

    def _take(self, number: int, raw: bytes) -> bool:
        form = self.contents.entries[number].format
        if len(raw) < struct.calcsize(form):
            return False
        self._values[number] = struct.unpack_from(form, raw)[0]
        return True

    def _misc(self, data: bytes) -> list[bytes]:
        if data[0] == _SET_BY_NAME:
            group, name = [*data[1:].split(b"\0", 2), b"", b""][:2]
            said = group + b"\0" + name + b"\0" + bytes([self._set_by_name(data[1:])])
            return [bytes([_SET_BY_NAME]) + said]
        if len(data) < 3:
            return []
        number = struct.unpack_from("<H", data, 1)[0]
        return [data[:3] + self._about(data[0], number)]

    def _about(self, command: int, number: int) -> bytes:
        """Return the type information of a parameter, after command and id."""
        if number >= len(self._parameters):
            return bytes([_NO_ENTRY])
        kept = self._parameters[number].persistent
        default = self._packed(number, self._parameters[number].default)
        if command in (_TYPE, _TYPE_2):
            return (b"\0" if command == _TYPE_2 else b"") + bytes([_PERSISTENT if kept else 0])
        if command in (_DEFAULT, _DEFAULT_2):
            good = (b"\0" if command == _DEFAULT_2 else b"") + default
            return bytes([_NO_ENTRY]) if self._parameters[number].read_only else good
        return self._keep(command, number, default) if kept else bytes([_NO_ENTRY])

    def _keep(self, command: int, number: int, default: bytes) -> bytes:
        """Return the answer to a query or command about persistent storage."""
        if command == _STATE:
            stored = self._stored.get(number)
            return b"\0" + default if stored is None else b"\1" + default + self._packed(number, stored)
        if command == _STORE:
            self._stored[number] = self._values[number]
        elif command == _CLEAR:
            self._stored.pop(number, None)
        return bytes([0 if command in (_STORE, _CLEAR) else _INVALID])

    def _set_by_name(self, data: bytes) -> int:
        group, _, rest = data.partition(b"\0")
        name, _, tail = rest.partition(b"\0")
        number = self.contents.ids.get(f"{group.decode(errors='replace')}.{name.decode(errors='replace')}")
        if number is None:
            return _NO_ENTRY
        if not tail or tail[0] != _TYPES[self._parameters[number].type][0]:
            return _INVALID
        if self._parameters[number].read_only:
            return _NOT_ALLOWED
        return 0 if self._take(number, tail[1:]) else _INVALID

    def _packed(self, number: int, value: float) -> bytes:
        form = self.contents.entries[number].format
        return struct.pack(form, value if form == "<f" else int(value))


def _number(data: bytes) -> int:
    return struct.unpack_from("<H", data)[0]


def _type_byte(item: Parameter) -> int:
    flags = (_EXTENDED if item.persistent else 0) | (_READ_ONLY if item.read_only else 0)
    return _TYPES[item.type][0] | flags
