"""Reads binary logs of the SD card of the Crazyflie, in the block format and in the newer event format.

Blocks: one byte with the number of variables, then ``name(type),`` for each, a checksum; then blocks of a byte with the
number of records, the packed records, a checksum. A file with 35 variables therefore begins with ``#``. Checksums are
CRC-32 over everything since the last one, stored such that the CRC of data and checksum is all ones.

Events: the byte BC, version, number of kinds; for each kind its number, name and variables ``name(type)``; then events
of a number, a stamp (milliseconds in version 1, microseconds in version 2) and the packed variables; at the end the
CRC-32 of the whole file. Types are letters of Python's `struct`, little-endian without gaps.
"""

import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from testudo_runs.importing.logs.log_stamps import MOST_COUNTS, unwrapped
from testudo_runs.importing.mapping.column_conversion import FileLosses, LogTable, losses_text

_EVENTS_MARK = 0xBC
_VARIABLE = re.compile(rb"([\w. \-]+)\(([bBhHiIlLqQefd?])\)")
_DTYPES = {letter: f"<{letter}" for letter in "bBhHiIqQefd"} | {"l": "<i4", "L": "<u4", "?": "u1"}
"""NumPy types by letter of `struct`."""
_RESIDUE = 0xFFFFFFFF
_LONGEST_DAMAGE_NS = 60_000_000_000
_LONGEST_NAME = 128
_TICK = "tick"


@dataclass(frozen=True)
class _Kind:
    """One record type."""

    name: str
    names: tuple[str, ...]
    dtype: np.dtype


def looks_like_usd(head: bytes) -> bool:
    """Return whether the first bytes of a file are those of an SD card log."""
    if not head:
        return False
    if head[0] == _EVENTS_MARK:
        return len(head) >= 5 and 1 <= struct.unpack_from("<H", head, 1)[0] <= 2
    return _VARIABLE.match(head, 1) is not None and head[1:].partition(b",")[0].endswith(b")")


def read_usd(file: Path, losses: FileLosses) -> list[LogTable]:
    """Read a log; one table with stamps for each record type; ``losses`` collects unreadable records.

    Raises:
        OSError: the file cannot be read at all.
    """
    losses.word = "record"
    data = file.read_bytes()
    if not data:
        losses.add("holds nothing")
        return []
    return _read_events(data, losses) if data[0] == _EVENTS_MARK else _read_blocks(data, losses)


def tick_unit(ticks: np.ndarray) -> int:
    """Return the nanoseconds of one clock count: milliseconds, or microseconds in some firmware."""
    steps = np.abs(np.diff(ticks.astype(np.int64)))
    return 1_000 if len(steps) and np.median(steps) > MOST_COUNTS else 1_000_000


def _read_blocks(data: bytes, losses: FileLosses) -> list[LogTable]:
    kind, at = _block_head(data, losses)
    if kind is None:
        return []
    parts, places, record = [], [], 1
    while at < len(data):
        count, size = data[at], kind.dtype.itemsize
        end = at + 1 + count * size
        if end + 4 > len(data):
            whole = max(0, (len(data) - at - 1) // size)
            losses.add("the file is cut within a block, which has no checksum then", range(record, record + whole + 1))
            break
        if crc32(data[at : end + 4]) == _RESIDUE:
            parts.append(np.frombuffer(data, kind.dtype, count, at + 1))
            places.append(np.arange(record, record + count))
            at, record = end + 4, record + count
            continue
        found = _next_block(data, at + 1, kind, parts[-1] if parts else None)
        lost = max(1, ((found or len(data)) - at) // size)
        losses.add("a block's checksum is wrong", range(record, record + lost))
        if found is None:
            break
        at, record = found, record + lost
    if not parts:
        losses.add("holds no sound record")
        return []
    rows, place = np.concatenate(parts), np.concatenate(places)
    return [_table(kind, rows, place, _tick_ns(rows, kind))]


def _block_head(data: bytes, losses: FileLosses) -> tuple[_Kind | None, int]:
    """Return the record type and the offset of the records."""
    at, variables = 1, []
    for _ in range(data[0]):
        end = data.find(b",", at, at + _LONGEST_NAME)
        found = _VARIABLE.fullmatch(data[at:end].strip()) if end >= 0 else None
        if found is None:
            losses.add(f"the header is damaged, expected {data[0]} variables", (), losses_text(data[at : at + 24]))
            return None, at
        variables.append(found)
        at = end + 1
    if crc32(data[: at + 4]) != _RESIDUE:
        losses.add("the header's checksum is wrong: names and types may be, too")
        return None, at
    return _kind("", variables), at + 4


def _next_block(data: bytes, at: int, kind: _Kind, after: np.ndarray | None) -> int | None:
    """Return the offset of the next block with a correct checksum; None if there is none.

    Only offsets are tried whose first record is close in time after the last valid one, so that the cost does not grow
    with the length of the damage.
    """
    starts = np.arange(at, len(data) - 5 - kind.dtype.itemsize)
    if after is not None and _TICK in kind.names:
        fields: Any = kind.dtype.fields
        field = fields[f"v{kind.names.index(_TICK)}"]
        windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(data, np.uint8), field[0].itemsize)
        ticks = windows[starts + 1 + field[1]].copy().view(field[0])[:, 0].astype(np.int64)
        last = after[f"v{kind.names.index(_TICK)}"].astype(np.int64)
        longest = _LONGEST_DAMAGE_NS // tick_unit(last)
        starts = starts[(ticks > last[-1]) & (ticks - last[-1] < longest)]
    for start in starts.tolist():
        count = data[start]
        end = start + 1 + count * kind.dtype.itemsize
        if count and end + 4 <= len(data) and crc32(data[start : end + 4]) == _RESIDUE:
            return start
    return None


def _tick_ns(rows: np.ndarray, kind: _Kind) -> np.ndarray | None:
    if _TICK not in kind.names:
        return None
    field = rows[f"v{kind.names.index(_TICK)}"]
    unit = tick_unit(field)
    ns = field.astype(np.int64) * unit
    return unwrapped(ns, (1 << 32) * unit, np.ones(len(ns), bool)) if field.dtype.itemsize == 4 else ns


def _read_events(data: bytes, losses: FileLosses) -> list[LogTable]:
    head = _event_head(data, losses)
    if head is None:
        return []
    version, kinds, at = head
    stamp, end = struct.Struct("<HI" if version == 1 else "<HQ"), len(data)
    sealed = crc32(data[:-4]) == int.from_bytes(data[-4:], "little")
    if sealed:
        end -= 4
    else:
        losses.add("the checksum at the end is wrong or cut off: values may be damaged")
    found: dict[int, tuple[list[int], list[int], list[int]]] = {number: ([], [], []) for number in kinds}
    record = 1
    while at + stamp.size <= end:
        number, time = stamp.unpack_from(data, at)
        kind = kinds.get(number)
        if kind is None:
            if sealed or end - at > 4:
                losses.add("an event of a kind that the header does not name; what follows cannot be read", [record])
            break
        if at + stamp.size + kind.dtype.itemsize > end:
            losses.add("the file is cut within an event", [record])
            break
        for values, value in zip(found[number], (at + stamp.size, time, record), strict=True):
            values.append(value)
        at, record = at + stamp.size + kind.dtype.itemsize, record + 1
    unit = 1_000_000 if version == 1 else 1_000
    return [_event_table(data, kinds[number], *lists, unit) for number, lists in found.items() if lists[0]]


def _event_head(data: bytes, losses: FileLosses) -> tuple[int, dict[int, _Kind], int] | None:
    """Return version, record types by number, and the offset of the events."""
    try:
        version, count = struct.unpack_from("<HH", data, 1)
        if version not in (1, 2):
            losses.add(f"found version {version} of the event log, expected 1 or 2")
            return None
        at, kinds = 5, {}
        for _ in range(count):
            (number,) = struct.unpack_from("<H", data, at)
            name, at = _text(data, at + 2)
            (size,) = struct.unpack_from("<H", data, at)
            at, variables = at + 2, []
            for _ in range(size):
                text, at = _text(data, at)
                variables.append(_VARIABLE.fullmatch(text))
            kinds[number] = _kind(name.decode("ascii", "replace"), variables)
    except (struct.error, ValueError, TypeError):  # an invalid variable has no match groups
        losses.add("the header is damaged")
        return None
    return version, kinds, at


def _text(data: bytes, at: int) -> tuple[bytes, int]:
    end = data.index(b"\0", at, at + _LONGEST_NAME)
    return data[at:end], end + 1


def _event_table(data: bytes, kind: _Kind, at: list[int], times: list[int], records: list[int], unit: int) -> LogTable:
    """Return the events of one type; an impossible stamp becomes -1."""
    size = kind.dtype.itemsize
    index = np.array(at)[:, None] + np.arange(size)
    rows = np.frombuffer(data, np.uint8)[index].copy().view(kind.dtype)[:, 0] if size else np.zeros(len(at), kind.dtype)
    limit = (1 << 62) // unit
    time_ns = np.array([time * unit if time < limit else -1 for time in times], np.int64)
    return _table(kind, rows, np.array(records), time_ns)


def _kind(name: str, variables: list[re.Match[bytes]]) -> _Kind:
    names = tuple(found[1].decode().strip() for found in variables)
    return _Kind(name, names, np.dtype([(f"v{k}", _DTYPES[found[2].decode()]) for k, found in enumerate(variables)]))


def _table(kind: _Kind, rows: np.ndarray, places: np.ndarray, time_ns: np.ndarray | None) -> LogTable:
    return LogTable(
        kind.names, len(kind.names), {k: rows[f"v{k}"].astype(float) for k in range(len(kind.names))}, places, time_ns
    )
