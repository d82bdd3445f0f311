"""Log blocks, which the vehicle sends at a period (port 5), and parameters (port 2)."""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from testudo_crazyflie.firmware.crtp_packets import LOG, PARAMETERS, Entry, Packet, TableOfContents

TICK_S = 0.01
"""Unit of log periods."""
_FORMATS = {
    "uint8": "<B",
    "uint16": "<H",
    "uint32": "<I",
    "int8": "<b",
    "int16": "<h",
    "int32": "<i",
    "float": "<f",
    "fp16": "<e",
}
"""Formats of `struct` by type; the position of a type, from 1, is its number in log blocks."""
_LOG_TYPES = {name: number for number, name in enumerate(_FORMATS, 1)}
_LOG_FORMATS = dict(enumerate(_FORMATS.values(), 1))
_PARAMETER_TYPES = {"uint8": 8, "uint16": 9, "uint32": 10, "int8": 0, "int16": 1, "int32": 2, "float": 6}
_CONTROL, _DATA = 1, 2
_DELETE, _START, _STOP, _RESET, _CREATE, _APPEND, _START_MS = 2, 3, 4, 5, 6, 7, 8
_NO_ENTRY, _TOO_BIG, _NOT_A_COMMAND, _NO_MEMORY, _EXISTS = 2, 7, 8, 12, 17
_MOST_BLOCKS, _MOST_VARIABLES, _MOST_BYTES = 16, 128, 26
_SETTING = struct.Struct("<BH")


@dataclass(frozen=True)
class Variable:
    """A variable that can be logged."""

    type: str  # one of uint8, uint16, uint32, int8, int16, int32, float
    read: Callable[[], float]


@dataclass
class _Block:
    items: list[tuple[int, str]] = field(default_factory=list)
    """Number of the variable, and the format in which it is sent."""
    ticks: int = 0  # period in ticks; zero is stopped
    waited: int = 0


class LogService:
    """The log blocks of one vehicle."""

    def __init__(self, variables: Mapping[str, Variable]) -> None:
        """Take the variables by `group.name`."""
        self._variables = tuple(variables.values())
        tail = bytes([_MOST_BLOCKS, _MOST_VARIABLES])
        self.contents = TableOfContents(
            LOG, [Entry(name, _LOG_TYPES[item.type], _FORMATS[item.type]) for name, item in variables.items()], tail
        )
        self._blocks: dict[int, _Block] = {}

    def handle(self, packet: Packet) -> list[Packet]:
        """Return the answers to a packet of the client."""
        if packet.channel == 0:
            answer = self.contents.answer(packet.data)
            return [] if answer is None else [answer]
        if packet.channel == _CONTROL and packet.data:
            data = packet.data.ljust(2, b"\0")
            return [Packet(LOG, _CONTROL, data[:2] + bytes([self._control(data)]))]
        return []

    def reset(self) -> None:
        """Delete all blocks."""
        self._blocks.clear()

    @property
    def running(self) -> int:
        """Return the number of active blocks."""
        return sum(block.ticks > 0 for block in self._blocks.values())

    def tick(self, time_s: float) -> list[Packet]:
        """Return the packets of a tick; ``time_s`` since the vehicle was switched on."""
        sent = []
        stamp = struct.pack("<I", round(1000 * time_s) & 0xFFFFFF)[:3]
        for number, block in self._blocks.items():
            if not block.ticks:
                continue
            block.waited += 1
            if block.waited >= block.ticks:
                block.waited = 0
                sent.append(Packet(LOG, _DATA, bytes([number]) + stamp + self._values(block)))
        return sent

    def _values(self, block: _Block) -> bytes:
        return b"".join(_packed(form, self._variables[number].read()) for number, form in block.items)

    def _control(self, data: bytes) -> int:
        command, number = data[0], data[1]
        if command == _RESET:
            self.reset()
            return 0
        if command == _CREATE:
            if number in self._blocks or len(self._blocks) >= _MOST_BLOCKS:
                return _EXISTS if number in self._blocks else _NO_MEMORY
            self._blocks[number] = _Block()
            return self._append(number, data[2:])
        if number not in self._blocks:
            return _NO_ENTRY
        if command == _APPEND:
            return self._append(number, data[2:])
        return self._change(command, number, data[2:])

    def _change(self, command: int, number: int, rest: bytes) -> int:
        block = self._blocks[number]
        if command == _DELETE:
            del self._blocks[number]
        elif command == _STOP:
            block.ticks = 0
        elif command == _START:
            block.ticks, block.waited = (rest[0] if rest else 0), 0
        elif command == _START_MS:
            period_s = struct.unpack_from("<H", rest.ljust(2, b"\0"))[0] / 1000
            block.ticks, block.waited = max(1, round(period_s / TICK_S)), 0
        else:
            return _NOT_A_COMMAND
        return 0

    def _append(self, number: int, settings: bytes) -> int:
        block = self._blocks[number]
        used = sum(len(other.items) for other in self._blocks.values())
        whole = len(settings) // _SETTING.size * _SETTING.size
        for kind, variable in _SETTING.iter_unpack(settings[:whole]):
            form = _LOG_FORMATS.get(kind & 0x0F)
            if form is None or variable >= len(self._variables):
                return _NO_ENTRY
            size = sum(struct.calcsize(other) for _, other in block.items)
            if size + struct.calcsize(form) > _MOST_BYTES:
                return _TOO_BIG
            if used >= _MOST_VARIABLES:
                return _NO_MEMORY
            block.items.append((variable, form))
            used += 1
        return 0


def _packed(form: str, value: float) -> bytes:
    """Return a value in a format; overflow wraps, as in C."""
    if form in ("<f", "<e"):
        return struct.pack(form, value)
    size = struct.calcsize(form)
    return (int(value) & ((1 << 8 * size) - 1)).to_bytes(size, "little")


_EXTENDED, _READ_ONLY = 0x10, 0x40
_READ, _WRITE, _MISC = 1, 2, 3
_SET_BY_NAME, _TYPE, _STORE, _STATE, _CLEAR, _DEFAULT, _TYPE_2, _DEFAULT_2 = 0, 2, 3, 4, 5, 6, 7, 8
_PERSISTENT = 1
_NOT_ALLOWED, _INVALID = 13, 22


@dataclass(frozen=True)
class Parameter:
    """One parameter as the firmware declares it."""

    name: str
    type: str  # one of uint8, uint16, uint32, int8, int16, int32, float
    default: float
    read_only: bool = False
    persistent: bool = False

    @property
    def type_byte(self) -> int:
        """Return type and flags in the table of contents."""
        flags = (_EXTENDED if self.persistent else 0) | (_READ_ONLY if self.read_only else 0)
        return _PARAMETER_TYPES[self.type] | flags


class ParameterService:
    """All parameters of one vehicle."""

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        """Begin with the defaults."""
        self._parameters = tuple(parameters)
        self.contents = TableOfContents(
            PARAMETERS, [Entry(item.name, item.type_byte, _FORMATS[item.type]) for item in self._parameters]
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
            number = _number(data)
            known = number < len(self._values)
            value = b"\0" + self._packed(number, self._values[number]) if known else bytes([_NO_ENTRY])
            return [Packet(PARAMETERS, _READ, data[:2] + value)]
        if packet.channel == _WRITE and len(data) >= 3:
            return self._write(data)
        if packet.channel == _MISC and data:
            return [Packet(PARAMETERS, _MISC, answer) for answer in self._misc(data)]
        return []

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
            answer = group + b"\0" + name + b"\0" + bytes([self._set_by_name(data[1:])])
            return [bytes([_SET_BY_NAME]) + answer]
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
        if not tail or tail[0] != _PARAMETER_TYPES[self._parameters[number].type]:
            return _INVALID
        if self._parameters[number].read_only:
            return _NOT_ALLOWED
        return 0 if self._take(number, tail[1:]) else _INVALID

    def _packed(self, number: int, value: float) -> bytes:
        form = self.contents.entries[number].format
        return struct.pack(form, value if form == "<f" else int(value))


def _number(data: bytes) -> int:
    return struct.unpack_from("<H", data)[0]
