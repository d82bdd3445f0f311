"""Log blocks: groups of variables that the vehicle sends at a period (port 5)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from testudo_crazyflie.services.crtp_packets import LOG, Entry, Packet, TableOfContents

TICK_S = 0.01
"""Unit of log periods."""
_TYPES = {
    "uint8": (1, "<B"),
    "uint16": (2, "<H"),
    "uint32": (3, "<I"),
    "int8": (4, "<b"),
    "int16": (5, "<h"),
    "int32": (6, "<i"),
    "float": (7, "<f"),
    "fp16": (8, "<e"),
}
_FORMATS = dict(_TYPES.values())
_CONTROL, _DATA = 1, 2
_DELETE, _START, _STOP, _RESET, _CREATE, _APPEND, _START_MS = 2, 3, 4, 5, 6, 7, 8
_NO_ENTRY, _TOO_BIG, _NOT_A_COMMAND, _NO_MEMORY, _EXISTS = 2, 7, 8, 12, 17
_MOST_BLOCKS, _MOST_VARIABLES, _MOST_BYTES = 16, 128, 26
_SETTING = struct.Struct("<BH")


@dataclass(frozen=True)
class Variable:
    """A variable that can be logged."""

    type: str
    """One of uint8, uint16, uint32, int8, int16, int32, float."""
    read: Callable[[], float]


@dataclass
class _Block:
    items: list[tuple[int, str]] = field(default_factory=list)
    """Number of the variable, and the format in which it is sent."""
    ticks: int = 0
    """Period in ticks; zero is stopped."""
    waited: int = 0


class LogService:
    """The log blocks of one vehicle."""

    def __init__(self, variables: Mapping[str, Variable]) -> None:
        """Take the variables by `group.name`."""
        self._variables = tuple(variables.values())
        tail = bytes([_MOST_BLOCKS, _MOST_VARIABLES])
        self.contents = TableOfContents(
            LOG, [Entry(name, *_TYPES[item.type]) for name, item in variables.items()], tail
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
            return self._create(number, data[2:])
        if number not in self._blocks:
            return _NO_ENTRY
        if command == _APPEND:
            return self._append(number, data[2:])
        return self._change(command, number, data[2:])

    def _create(self, number: int, settings: bytes) -> int:
        if number in self._blocks:
            return _EXISTS
        if len(self._blocks) >= _MOST_BLOCKS:
            return _NO_MEMORY
        self._blocks[number] = _Block()
        return self._append(number, settings)

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
            form = _FORMATS.get(kind & 0x0F)
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
