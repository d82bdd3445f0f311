"""Start files: YAML (or JSON, which is YAML) that `train`, `evaluate` and tests begin from."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from testudo_hardware.files.strict_json import read_as
from testudo_sim.starts.start_distribution import STARTS_SCHEMA, StartDistribution, StartsError

__all__ = ["STARTS_SCHEMA", "load_starts", "parse_starts", "save_starts", "starts_text"]


def load_starts(path: str | Path) -> StartDistribution:
    """Read and check a start file.

    Raises:
        StartsError: unreadable, another schema, an unknown or missing key, or numbers that do not fit.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise StartsError(
            f"{file}: no such start file; `testudo incident RUN --save-scenario FILE` writes one"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise StartsError(f"{file}: cannot be read: {error}") from error
    return parse_starts(text, str(file))


def parse_starts(text: str, where: str) -> StartDistribution:
    """Read the text of a start file; ``where`` names it in errors.

    Raises:
        StartsError: see `load_starts`.
    """
    try:
        values: Any = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        first = str(error).splitlines()[0]
        raise StartsError(f"{where}: no YAML: {first}") from error
    starts: StartDistribution = read_as(StartDistribution, values, where, StartsError)
    starts.check(where)
    return starts


def save_starts(starts: StartDistribution, path: str | Path) -> Path:
    """Write a start file and return its path.

    Raises:
        StartsError: the numbers do not fit, or the file cannot be written.
    """
    file = Path(path)
    starts.check(str(file))
    text = starts_text(starts)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(
            f"# Start states of a real run: testudo evaluate POLICY --starts {file.name}\n{text}", encoding="utf-8"
        )
    except OSError as error:
        raise StartsError(f"{file}: cannot be written: {error.strerror}") from error
    return file


def starts_text(starts: StartDistribution) -> str:
    """Return the text of a start file."""
    values = _plain(asdict(starts))
    if starts.arena is None:
        del values["arena"]
    return yaml.dump(values, Dumper=_FlowLists, sort_keys=False, width=110)


def _plain(value: Any) -> Any:
    """Return tuples as lists, and numbers to a tenth of a millimetre and better."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return round(value, 6) if isinstance(value, float) else value


class _FlowLists(yaml.SafeDumper):
    """Writes rows of numbers on one line."""

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> Any:
        """Write what holds no mapping on one line."""
        flat = not any(isinstance(item, dict) for item in sequence)
        return super().represent_sequence(tag, sequence, flow_style=flat)
