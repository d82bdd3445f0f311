"""Reads text and CSV logs in blocks; a block with errors is read line by line."""

import csv
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from testudo_runs.importing.mapping.column_conversion import FileLosses, LogTable, index_of, losses_text
from testudo_runs.importing.mapping.mapping_file import TextMap

QUOTE = b'"'
MOST_LINES = 16
"""Most lines of one record."""
_WHITESPACE = "whitespace"


def fields_of(line: bytes, delimiter: str) -> list[bytes]:
    """Return the fields of a record of one or more lines, without quotes."""
    if delimiter == _WHITESPACE:
        return line.split()
    if QUOTE not in line or delimiter == '"':
        return line.split(delimiter.encode())
    found = _csv_fields(line, delimiter)
    return line.split(delimiter.encode()) if found is None else [text.encode("latin-1") for text in found]


def is_open(line: bytes, delimiter: str) -> bool:
    """Return whether a quoted field continues in the next line."""
    if QUOTE not in line or delimiter in (_WHITESPACE, '"'):
        return False
    # a line end is part of a field only within quotes
    return _csv_fields(line, delimiter) != _csv_fields(line + b"\n", delimiter)


def record_end(lines: list[bytes], begin: int, delimiter: str) -> int | None:
    """Return the index of the line at which a record with an open quote ends.

    ``len(lines)`` if more lines may close it, None if it takes more than `MOST_LINES` of them.
    """
    last = min(begin + MOST_LINES, len(lines))
    for end in range(begin + 1, last):
        if QUOTE in lines[end] and not is_open(b"\n".join(lines[begin : end + 1]), delimiter):
            return end
    return len(lines) if last < begin + MOST_LINES else None


def without_comment(line: bytes, sign: bytes, delimiter: str) -> bytes:
    """Return the part of a line before a comment; a sign within quotes begins none."""
    before, found, _ = line.partition(sign)
    while found and is_open(before, delimiter):
        more, found, _ = line[len(before) + len(sign) :].partition(sign)
        before += sign + more
    return before


def _csv_fields(line: bytes, delimiter: str) -> list[str] | None:
    """Return the fields as the module csv reads them; None where it refuses the line."""
    try:
        return next(csv.reader([line.decode("latin-1")], delimiter=delimiter), None)
    except csv.Error:  # a line end outside quotes, or a field that is too long
        return None


BLOCK_BYTES = 1 << 18
_LONGEST_LINE = 1 << 20
_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_NOT_FINITE = re.compile(rb"[+-]?(nan|inf|infinity)", re.IGNORECASE)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
DELIMITERS = (",", ";", "\t", "|", "whitespace")
_WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff")


def read_text(file: Path, kind: TextMap, losses: FileLosses, tell: Callable[[int], None] = lambda _: None) -> LogTable:
    """Read the columns of a log that its mapping names.

    ``losses`` collects unreadable lines, ``tell`` is called with the number of bytes of each block.

    Raises:
        OSError: the file cannot be read at all.
    """
    reader = _Reader(kind, losses)
    with file.open("rb") as stream:
        for block, first_line in _blocks(stream.read, losses, tell):
            reader.take(block, first_line)
    return reader.table()


def column_names(line: bytes, kind: TextMap) -> tuple[str, ...]:
    """Return the column names in a header line."""
    text = line.strip().removeprefix(kind.comment.encode()).strip()
    names = fields_of(text, kind.delimiter) if text else ()
    return tuple(name.decode("utf-8", "replace").strip().strip("\"'") for name in names)


def _blocks(
    read: Callable[[int], bytes], losses: FileLosses, tell: Callable[[int], None]
) -> Iterator[tuple[bytes, int]]:
    """Yield blocks of whole lines, each with the number of its first line."""
    rest, line, begun, skips = b"", 1, False, False
    while data := read(BLOCK_BYTES):
        tell(len(data))
        if not begun:
            if data.startswith(_WIDE_MARKS):
                losses.add("is UTF-16 text, expected UTF-8")
                return
            data, begun = data.removeprefix(_BYTE_ORDER_MARK), True
        if skips:
            _, end, data = data.partition(b"\n")
            skips, line = not end, line + len(end)
        data = rest + data
        end = data.rfind(b"\n") + 1
        block, rest = data[:end], data[end:]
        if block:
            yield block, line
            line += block.count(b"\n")
        if len(rest) > _LONGEST_LINE:
            losses.add("a line of over a million bytes", [line], losses_text(rest))
            rest, skips = b"", True
    if rest.strip():
        losses.add("the last line has no end: it may be cut", [line], losses_text(rest))


class _Reader:
    """Collects the rows of the blocks."""

    def __init__(self, kind: TextMap, losses: FileLosses) -> None:
        self._kind, self._losses = kind, losses
        self._sign = kind.comment.encode()
        self._names: tuple[str, ...] | None = () if kind.header == "none" else None
        self._last_comment = b""
        self._count = kind.columns or 0
        self._used: list[int] = []
        self._rows: list[np.ndarray] = []
        self._absent: list[np.ndarray] = []
        self._places: list[np.ndarray] = []
        self._held, self._line = b"", 1
        self._spans = False

    def take(self, block: bytes, first_line: int, *, last: bool = False) -> None:
        """Read whole lines; an incomplete record is held back for the next block, unless this is the last."""
        block, first_line = self._held + block, first_line - self._held.count(b"\n")
        self._held = b""
        lines = block.split(b"\n")[:-1]
        self._line = first_line + len(lines)
        counts, first = _fields(block, self._kind.delimiter)
        if QUOTE in block:
            counts = self._quoted(lines, counts, last=last)
            first = first[: len(lines)]
        numbers = np.arange(first_line, first_line + len(lines))
        wanted = counts > 0
        if self._sign:
            for k in np.flatnonzero(wanted & (first == self._sign[0])):
                if lines[k].lstrip().startswith(self._sign):
                    wanted[k] = False
                    if self._names is None or not self._used:
                        self._last_comment = lines[k]
        at = np.flatnonzero(wanted)
        if len(at) and not self._used:
            at = self._begin(lines, counts, at)
        if not self._used:
            return
        wrong = counts[at] != self._count
        for k in at[wrong].tolist():
            why = f"fields are missing or too many, expected {self._count}"
            self._losses.add(why, [int(numbers[k])], losses_text(lines[k]))
        at = at[~wrong]
        rows, absent, places = self._parsed([lines[k] for k in at], numbers[at])
        self._rows.append(rows)
        self._absent.append(absent)
        self._places.append(places)

    def table(self) -> LogTable:
        """Return the rows read."""
        if self._held:
            self.take(b"", self._line, last=True)
        rows = np.concatenate(self._rows) if self._rows else np.zeros((0, len(self._used)))
        absent = np.concatenate(self._absent) if self._absent else np.zeros(rows.shape, bool)
        places = np.concatenate(self._places) if self._places else np.zeros(0, np.int64)
        if not len(places):
            self._losses.add("holds no line of numbers")
        return LogTable(
            self._names or (),
            self._count,
            {c: rows[:, k] for k, c in enumerate(self._used)},
            places,
            absent={c: absent[:, k] for k, c in enumerate(self._used) if absent[:, k].any()},
        )

    def _quoted(self, lines: list[bytes], counts: np.ndarray, *, last: bool) -> np.ndarray:
        """Return the number of fields per line; a record of several lines moves to its first one, the others are blank.

        An incomplete record at the end is removed and held back.
        """
        for k, line in enumerate(lines):
            if not counts[k] or QUOTE not in line or (self._sign and line.lstrip().startswith(self._sign)):
                continue
            counts[k] = len(fields_of(line, self._kind.delimiter))
            if not is_open(line, self._kind.delimiter):
                continue
            end = record_end(lines, k, self._kind.delimiter)
            if end == len(lines) and not last:
                self._held = b"\n".join([*lines[k:], b""])
                del lines[k:]
                return counts[:k]
            record = b"\n".join(lines[k : end + 1]) if end is not None and end < len(lines) else b""
            count = len(fields_of(record, self._kind.delimiter))
            if record and end is not None and count == (self._count or count):
                lines[k], counts[k], counts[k + 1 : end + 1], self._spans = record, count, 0, True
        return counts

    def _begin(self, lines: list[bytes], counts: np.ndarray, at: np.ndarray) -> np.ndarray:
        """Read names and number of columns before the first numbers; return the indices of lines of numbers."""
        in_line = self._kind.header == "line" or (
            self._kind.header == "comment" and not self._last_comment and _is_header(lines[at[0]], self._kind)
        )
        head = lines[at[0]] if self._kind.header != "comment" or in_line else self._last_comment
        if self._names is None:
            if in_line:
                self._names, at = column_names(lines[at[0]], self._kind), at[1:]
            else:
                self._names = column_names(self._last_comment, self._kind)
            self._count = self._count or len(self._names or ())
        if not self._count and len(at):
            found, often = np.unique(counts[at], return_counts=True)
            self._count = int(found[often.argmax()])
        if self._count:
            self._used = _used(self._kind, self._names or (), self._count)
        if self._count == 1 and not self._kind.columns:
            self._tell_delimiter(head)
        return at

    def _tell_delimiter(self, head: bytes) -> None:
        """Report the delimiter that splits a line into fields where the one of the mapping does not."""
        counts = {other: len(column_names(head, replace(self._kind, delimiter=other))) for other in DELIMITERS}
        best = max(counts, key=lambda other: counts[other])
        if counts[best] > 1:
            self._losses.add(
                f"the first line has one field by the delimiter {self._kind.delimiter!r} of the mapping; "
                f"by {best!r} it has {counts[best]}: correct `delimiter`",
                (),
                losses_text(head),
            )

    def _parsed(self, lines: list[bytes], numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return rows (R, U), the mask (R, U) of empty fields, and the line numbers (R,)."""
        if not lines:
            return np.zeros((0, len(self._used))), np.zeros((0, len(self._used)), bool), numbers
        if self._spans and any(b"\n" in line for line in lines):
            return self._line_by_line(lines, numbers)
        delimiter = None if self._kind.delimiter == "whitespace" else self._kind.delimiter
        comma = self._kind.decimal == ","
        try:
            rows = np.loadtxt(
                ((line.replace(b",", b".") if comma else line).decode("ascii") for line in lines),
                delimiter=delimiter,
                usecols=self._used,
                comments=None,
                ndmin=2,
                quotechar=None if delimiter is None else '"',
            )
        except ValueError:  # decoding errors included
            return self._line_by_line(lines, numbers)
        if rows.shape != (len(lines), len(self._used)):
            return self._line_by_line(lines, numbers)
        return rows, np.zeros(rows.shape, bool), numbers

    def _line_by_line(self, lines: list[bytes], numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rows, absent, places = [], [], []
        for line, number in zip(lines, numbers.tolist(), strict=True):
            text = without_comment(line, self._sign, self._kind.delimiter) if self._sign else line
            fields = [part.strip() for part in fields_of(text, self._kind.delimiter)]
            if self._kind.decimal == ",":
                fields = [part.replace(b",", b".") for part in fields]
            taken = [fields[k] for k in self._used] if len(fields) == self._count else [b"?"]
            wrong = [part for part in taken if part and not _NUMBER.fullmatch(part) and not _NOT_FINITE.fullmatch(part)]
            if wrong:
                self._losses.add(_why_no_number(wrong[0]), [number], losses_text(wrong[0]))
                continue
            rows.append([float(part) if part else np.nan for part in taken])
            absent.append([not part for part in taken])
            places.append(number)
        shape = (len(rows), len(self._used))
        return np.array(rows).reshape(shape), np.array(absent, bool).reshape(shape), np.array(places, np.int64)


def _why_no_number(part: bytes) -> str:
    if part.count(b",") == 1 and _NUMBER.fullmatch(part.replace(b",", b".")):
        return 'a field has a decimal comma: give `decimal: ","`'
    return "a field is no number"


def _is_header(line: bytes, kind: TextMap) -> bool:
    """Return whether a line holds names only: a header without its comment sign."""
    return not any(
        _NUMBER.fullmatch(part.strip()) or _NOT_FINITE.fullmatch(part.strip())
        for part in fields_of(line, kind.delimiter)
    )


def _used(kind: TextMap, names: tuple[str, ...], count: int) -> list[int]:
    """Return the indices of the columns that the mapping names and the file has."""
    wanted = {kind.time.column} | {
        channel.column for ways in kind.roles.values() for way in ways for channel in way.channels.values()
    }
    return sorted({index for column in wanted if (index := index_of(column, names, count)) is not None})


def _fields(block: bytes, delimiter: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of fields of each line, 0 if blank, and its first byte that is not a space."""
    data = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    blank = (data == ord(" ")) | (data == ord("\t")) | (data == ord("\r")) | (data == ord("\n"))
    starts = ~blank & np.r_[True, blank[:-1]]
    words = np.diff(np.cumsum(starts)[ends], prepend=0)
    first = np.zeros(len(ends), np.uint8)
    at = np.flatnonzero(starts)
    line_of = np.searchsorted(ends, at)
    first[line_of[::-1]] = data[at[::-1]]
    if delimiter == "whitespace":
        return words, first
    marks = np.diff(np.cumsum(data == ord(delimiter))[ends], prepend=0)
    return np.where(words > 0, marks + 1, 0), first
