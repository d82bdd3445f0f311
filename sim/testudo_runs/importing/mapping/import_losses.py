"""Unusable parts of a source: their places and the reasons."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

_SHOWN = 6


@dataclass(frozen=True)
class Loss:
    """One reason with all its places in one file."""

    file: str
    """File name; empty where the reason contains it."""
    why: str
    count: int
    """Lines, records or files."""
    places: str
    """Text such as ``lines 12-15, 80``; empty for a whole file."""
    example: str = ""

    def __str__(self) -> str:
        where = "".join(f"{part}: " for part in (self.file, self.places) if part)
        return f"{where}{self.why}" + (f", such as {self.example}" if self.example else "")

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, JSON-ready."""
        return {"file": self.file, "why": self.why, "count": self.count, "places": self.places, "example": self.example}


@dataclass
class _Place:
    numbers: list[int] = field(default_factory=list)
    example: str = ""


@dataclass
class FileLosses:
    """Collects the losses of one file by reason."""

    file: Path
    word: str = "line"
    """Unit that is counted: line or record."""
    _by_reason: dict[str, _Place] = field(default_factory=dict, repr=False)

    def add(self, why: str, numbers: Iterable[int] = (), example: str = "") -> None:
        """Add lines or records, counted from 1; no number means the whole file."""
        place = self._by_reason.setdefault(why, _Place())
        place.numbers.extend(int(number) for number in numbers)
        place.example = place.example or example

    def add_where(self, why: str, numbers: Iterable[int]) -> None:
        """Add lines or records if there are any."""
        found = list(numbers)
        if found:
            self.add(why, found)

    def all(self) -> list[Loss]:
        """Return one loss for each reason."""
        return [
            Loss(self.file.name, why, len(place.numbers) or 1, ranges(place.numbers, self.word), place.example)
            for why, place in self._by_reason.items()
        ]


def ranges(numbers: Iterable[int], word: str) -> str:
    """Return numbers as text with ranges: ``lines 12-15, 80 and 3 more``."""
    found = np.unique(np.fromiter(numbers, np.int64))
    if not len(found):
        return ""
    breaks = np.flatnonzero(np.diff(found) > 1)
    first, last = found[np.r_[0, breaks + 1]], found[np.r_[breaks, len(found) - 1]]
    texts = [f"{a}" if a == b else f"{a}-{b}" for a, b in zip(first[:_SHOWN], last[:_SHOWN], strict=True)]
    more = int((last[_SHOWN:] - first[_SHOWN:] + 1).sum())
    return f"{word}{'s' if len(found) > 1 else ''} {', '.join(texts)}" + (f" and {more} more" if more else "")


def losses_text(text: bytes) -> str:
    """Return the first bytes of a text in printable form."""
    plain = text[:24].strip().decode("ascii", "backslashreplace")
    return "'" + "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in plain) + "'" + "..." * (len(text) > 24)
