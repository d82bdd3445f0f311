"""A folder that is written aside and stands in its place only when it is whole."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Yield a new folder beside ``folder`` that takes its place at the end; after an error nothing is left of it.

    Raises:
        OSError: it cannot be made, or not be moved into its place.
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
