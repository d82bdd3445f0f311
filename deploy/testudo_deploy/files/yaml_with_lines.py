"""YAML files of others, with the line of every key: whoever refuses one can say which line to change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from testudo_deploy.files.strict_yaml import StrictLoader, parse_tables, read_text
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


def read_lined(file: Path, error: type[TestudoError], expected: str) -> LinedYaml:
    """Read a YAML file whose top is a table; ``expected`` says in errors what should be in it.

    Raises:
        TestudoError: of the type ``error``; unreadable, not YAML, a key twice, or no table.
    """
    text = read_text(file, "file", error, expected)
    values = parse_tables(text, file, error, expected)
    return LinedYaml(file, values, dict(_lines(yaml.compose(text, Loader=StrictLoader), ())))


def _lines(node: Any, keys: Keys) -> Iterator[tuple[Keys, int]]:
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        inner = (*keys, str(key.value))
        yield inner, key.start_mark.line + 1
        yield from _lines(value, inner)
