# ruff: noqa: INP001 (a script, not a package)
"""Writes docs/results.md from the figures in docs/results/*.json, one section for each file, by name.

Example: .venv/bin/python tools/results.py          # writes the page
         .venv/bin/python tools/results.py --check  # exits with 1 if page and figures differ
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "docs" / "results"
PAGE = ROOT / "docs" / "results.md"
HEAD = """# Results

Each section names the command that made its figures, the day and the machine. Timings are medians of several runs;
compilation is timed separately; no test asserts a timing. `testudo bench` prints its machine and writes it under
the JSON key `machine`. `make results` writes this page from `docs/results/*.json`.
"""


class Table(msgspec.Struct, forbid_unknown_fields=True):
    """One table; every row has as many cells as there are columns."""

    columns: list[str]
    rows: list[list[str]]
    title: str = ""


class Picture(msgspec.Struct, forbid_unknown_fields=True):
    """A picture beside the page."""

    file: str
    text: str


class Section(msgspec.Struct, forbid_unknown_fields=True):
    """The figures of one benchmark or study."""

    title: str
    about: str
    commands: list[str]
    date: str
    machine: str
    tables: list[Table]
    findings: list[str] = []
    picture: Picture | None = None


def page() -> str:
    """Return the text of the page.

    Raises:
        SystemExit: a file of figures does not have the fields above, or a row has another number of cells than columns.
    """
    return "\n".join([HEAD, *(_section(file) for file in sorted(FIGURES.glob("*.json")))])


def _section(file: Path) -> str:
    try:
        section = msgspec.json.decode(file.read_bytes(), type=Section)
    except msgspec.DecodeError as error:
        sys.exit(f"{file.relative_to(ROOT)}: {error}")
    commands = ", then ".join(f"`{command}`" for command in section.commands)
    lines = [f"## {section.title}", "", section.about, ""]
    lines += [f"Made by {commands}, {section.date}, on {section.machine}.", ""]
    for table in section.tables:
        wrong = [row for row in table.rows if len(row) != len(table.columns)]
        if wrong:
            sys.exit(f"{file.relative_to(ROOT)}: row {wrong[0]}: expected {len(table.columns)} cells")
        lines += [f"{table.title}:", ""] if table.title else []
        rows = [table.columns, ["---"] * len(table.columns), *table.rows]
        lines += [*(f"| {' | '.join(row)} |" for row in rows), ""]
    if section.picture is not None:
        lines += [f"![{section.picture.text}]({section.picture.file})", ""]
    lines += [f"- {finding}" for finding in section.findings]
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description="Write docs/results.md from docs/results/*.json.")
    parser.add_argument("--check", action="store_true", help="only compare; exit with 1 if page and figures differ")
    if not parser.parse_args().check:
        PAGE.write_text(page(), encoding="utf-8")
    elif page() != PAGE.read_text(encoding="utf-8"):
        sys.exit(f"{PAGE.relative_to(ROOT)}: differs from docs/results/*.json; run `make results`")


if __name__ == "__main__":
    main()
