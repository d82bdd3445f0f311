"""Fields of a text log's line, quoted ones among them, as the csv module of Python reads them.

A field that begins with a double quote may hold delimiters, doubled quotes and line ends. A stray quote must not
swallow what follows it: a record goes over a few lines at most, and only if it then is whole.
"""

from __future__ import annotations

import csv

QUOTE = b'"'
MOST_LINES = 16
"""Of one record."""
_WHITESPACE = "whitespace"


def fields_of(line: bytes, delimiter: str) -> list[bytes]:
    """Return the fields of a line, or of several that are one record; quotes are taken off."""
    if delimiter == _WHITESPACE:
        return line.split()
    if QUOTE not in line or delimiter == '"':
        return line.split(delimiter.encode())
    found = _read(line, delimiter)
    return line.split(delimiter.encode()) if found is None else [text.encode("latin-1") for text in found]


def is_open(line: bytes, delimiter: str) -> bool:
    """Return whether a quoted field goes on in the next line."""
    if QUOTE not in line or delimiter in (_WHITESPACE, '"'):
        return False
    # only within quotes is the end of a line a part of a field
    return _read(line, delimiter) != _read(line + b"\n", delimiter)


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
    """Return what stands before a comment, which a sign within quotes does not begin."""
    before, found, _ = line.partition(sign)
    while found and is_open(before, delimiter):
        more, found, _ = line[len(before) + len(sign) :].partition(sign)
        before += sign + more
    return before


def _read(line: bytes, delimiter: str) -> list[str] | None:
    """Return the fields as csv has them; None where it refuses the line."""
    try:
        return next(csv.reader([line.decode("latin-1")], delimiter=delimiter), None)
    except csv.Error:  # an end of line outside of quotes, or a field that is too long
        return None
