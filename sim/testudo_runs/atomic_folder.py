"""Writes a folder under a temporary name and moves it to its place when it is complete."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``folder`` and rename it to ``folder`` at the end; an error removes it.

    Raises:
        OSError: the folder cannot be created or renamed.
    """
    made: Path | None = None
    try:
        folder.absolute().parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.absolute().parent))
        yield made
        made.chmod(0o755)
        made.replace(folder)
    finally:
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)
