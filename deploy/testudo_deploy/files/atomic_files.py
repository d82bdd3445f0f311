"""Dated folders, and files that are replaced atomically: readers see the old or the new content."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


def dated_folder(parent: str, kind: str = "") -> Path:
    """Return a folder path below ``parent`` named by the local time and the ``kind`` of content; it is not created."""
    name = time.strftime("%Y-%m-%d-%H%M%S")
    return Path(parent) / (f"{name}-{kind}" if kind else name)


@contextmanager
def whole_file(path: Path) -> Generator[Path]:
    """Provide the path of a temporary file with the same suffix, which replaces ``path`` if the block succeeds.

    After an error or a kill ``path`` keeps its content.
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


def set_aside(path: Path) -> Path:
    """Rename a file whose content is not used any more to its name and `.before`, and return that path."""
    kept = path.with_name(f"{path.name}.before")
    return path.replace(kept)
