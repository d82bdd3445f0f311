"""The results of verbs and benchmarks: values for `--json`, tables for the terminal."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from testudo_hardware.errors import TestudoError

_WIDE = 160  # width of a table in a file [characters]


@dataclass(frozen=True)
class Report:
    """The same facts for programs and for people."""

    values: dict[str, Any]
    tables: tuple[Table, ...]

    def show(self, json_path: Path | None) -> None:
        """Print the tables, and write the values to ``json_path``.

        Raises:
            TestudoError: the file cannot be written.
        """
        # in a file or a pipe, tables keep their columns
        console = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else _WIDE)
        for table in self.tables:
            console.print(table)
        if json_path is None:
            return
        try:
            json_path.write_text(json.dumps(self.values, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise TestudoError(f"--json {json_path}: cannot be written: {error.strerror}") from error
        console.print(Text(f"wrote {json_path}"))


def warn(lines: Iterable[str]) -> None:
    """Print warnings."""
    for line in lines:
        Console().print(Text(f"warning: {line}", style="yellow"), soft_wrap=True)


def table(title: str, columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> Table:
    """Return a table; numbers are right-aligned and have six digits."""
    made = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    made.show_header = any(columns)
    for index, column in enumerate(columns):
        made.add_column(Text(column), overflow="fold", no_wrap=index == 0)
    for row in rows:
        made.add_row(*(cell(value) for value in row))
    return made


def facts(title: str, values: Mapping[str, Any]) -> Table:
    """Return a table of names and values; nested objects are shown as dotted names."""
    # left-aligned: numbers below each other here have different units
    rows = [(name, cell(value).plain) for name, value in _flat(values)]
    return table(title, ("", ""), rows or [("none", "")])


def cell(value: Any) -> Text:
    """Return the text of a value in a table."""
    if isinstance(value, float):
        return Text(f"{value:.6g}", justify="right")
    if isinstance(value, list | tuple):
        items = cast("Sequence[Any]", value)
        return Text(", ".join(cell(item).plain for item in items) or "none")
    return Text("-" if value is None or value == "" else str(value))


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            rows += _flat(cast("Mapping[str, Any]", value), f"{prefix}{key}.")
        else:
            rows.append((f"{prefix}{key}", value))
    return rows


@dataclass(frozen=True)
class BenchResult:
    """The outcome of one benchmark."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    values: dict[str, Any]  # JSON-ready, the keys that `docs/results.md` names
    more: tuple[BenchResult, ...] = ()  # further tables, below


def machine() -> dict[str, Any]:
    """Return what the figures were measured on."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
