"""Numbers of one log file, whatever its format: rows, names of the columns, and where each row stood."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class LogTable:
    """Rows of one file, or of one kind of record in it."""

    names: tuple[str, ...]
    """Of the columns; empty where the file names none."""
    count: int
    """Columns of the file."""
    columns: dict[int, np.ndarray] = field(repr=False)
    """Those that were read, by index from 0, each (R,)."""
    places: np.ndarray = field(repr=False)
    """(R,) line or record of each row, from 1."""
    time_ns: np.ndarray | None = field(default=None, repr=False)
    """(R,) stamps, where the format itself has them."""
    absent: dict[int, np.ndarray] = field(default_factory=dict, repr=False)
    """By index, (R,) where a field was empty; columns without empty fields are not in it."""

    def __len__(self) -> int:
        return len(self.places)

    def take(self, rows: np.ndarray) -> LogTable:
        """Return the table of some of the rows, by index."""
        return LogTable(
            self.names,
            self.count,
            {k: column[rows] for k, column in self.columns.items()},
            self.places[rows],
            None if self.time_ns is None else self.time_ns[rows],
            {k: mark[rows] for k, mark in self.absent.items()},
        )

    def index(self, column: int | str) -> int | None:
        """Return the index of a column that is given by its number from 1 or its name; None if there is none."""
        return index_of(column, self.names, self.count)


def index_of(column: int | str, names: tuple[str, ...], count: int) -> int | None:
    """Return the index of a column from 0; None if there is none."""
    if isinstance(column, int):
        return column - 1 if column <= count else None
    return names.index(column) if column in names else None
