"""YAML files of others, with the line of every key: whoever refuses one can say which line to change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from testudo_deploy.strict_yaml import StrictLoader, parse_yaml
from testudo_hardware.errors import TestudoError

Keys = tuple[str, ...]


@dataclass(frozen=True)
class LinedYaml:
    """What a YAML file holds, and where."""

    file: Path
    values: Mapping[str, Any]
    lines: Mapping[Keys, int]
    """By the keys that lead to a value."""

    def get(self, *keys: str) -> Any:
        """Return a value; None where a key is missing or leads nowhere."""
        found: Any = self.values
        for key in keys:
            if not isinstance(found, Mapping) or key not in found:
                return None
            found = found[key]
        return found

    def where(self, *keys: str) -> str:
        """Return file, line and name of a key; of one that is missing, the line of the table that should have it."""
        known = next((keys[:count] for count in range(len(keys), 0, -1) if keys[:count] in self.lines), ())
        return f"{self.file}:{self.lines.get(known, 1)}: {'.'.join(keys)}"


def read_lined(file: Path, error: type[TestudoError]) -> LinedYaml:
    """Read a YAML file whose top is a table.

    Raises:
        TestudoError: of the type ``error``; unreadable, not YAML, a key twice, or no table.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        raise error(f"{file}: cannot be read: {cause}") from cause
    values = parse_yaml(text, file, error)
    if not isinstance(values, Mapping):
        raise error(f"{file}: found {type(values).__name__}, expected tables")
    return LinedYaml(file, values, dict(_lines(yaml.compose(text, Loader=StrictLoader), ())))


def _lines(node: Any, keys: Keys) -> Iterator[tuple[Keys, int]]:
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        inner = (*keys, str(key.value))
        yield inner, key.start_mark.line + 1
        yield from _lines(value, inner)
