"""Results of a verb as a JSON file."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from testudo_hardware.errors import TestudoError


def check_output(path: Path | None, option: str = "--json") -> None:
    """Refuse an output path that cannot be written, before long work starts.

    Raises:
        TestudoError: it is a folder, or its parent folder does not exist.
    """
    if path is not None and path.is_dir():
        raise TestudoError(f"{option} {path}: is a folder, expected a file")
    if path is not None and not path.parent.is_dir():
        raise TestudoError(f"{option} {path}: folder {path.parent} does not exist; create it or give another path")


def write_output(path: Path | None, values: Any, console: Console) -> None:
    """Write values to the file given by `--json`, if any.

    Raises:
        TestudoError: the file cannot be written.
    """
    if path is None:
        return
    try:
        path.write_text(json.dumps(values, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise TestudoError(f"--json {path}: cannot be written: {error.strerror}") from error
    console.print(Text(f"wrote {path}"))
