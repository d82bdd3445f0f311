"""Dated folders, and files that others may read meanwhile: they are whole, or still as they were."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def dated_folder(parent: str, kind: str = "") -> Path:
    """Return a folder below ``parent`` named by the local time, and what it holds if that is told; it is not made."""
    name = time.strftime("%Y-%m-%d-%H%M%S")
    return Path(parent) / (f"{name}-{kind}" if kind else name)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give the path of a file to write, of the same suffix, that takes the place of ``path`` once the block ends well.

    After an error, or a kill, what stood at ``path`` stands there still.
    """
    partial = path.with_name(f".{path.stem}.partial{path.suffix}")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_whole(path: Path, text: str) -> None:
    """Write a text file as `whole_file` does."""
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8")
