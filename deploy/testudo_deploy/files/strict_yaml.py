"""YAML files: one document, text keys, no key twice; of third-party files also the line of every key, for errors."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from testudo_hardware.errors import TestudoError
from testudo_hardware.strict_files import is_table

_TEXT_TAG = "tag:yaml.org,2002:str"


class StrictLoader(yaml.SafeLoader):
    """Refuses repeated keys, of which YAML would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping of a node with unique text keys."""
        seen: set[str] = set()
        for key, _ in node.value:
            wrong = "" if key.tag == _TEXT_TAG else "is not a text"
            if wrong or key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} {wrong or 'occurs twice'}", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def parse_tables(text: str, file: Path | str, error: type[TestudoError], expected: str) -> Mapping[str, Any]:
    """Return the tables of a YAML text; ``expected`` is for errors.

    Raises:
        TestudoError: of the type ``error``; empty, no table at the top, not YAML, or a repeated key.
    """
    values = parse_yaml(text, file, error)
    if values is None:
        raise error(f"{file}: is empty; expected {expected}")
    if not is_table(values):
        kind = "a list" if isinstance(values, list) else f"{values!r:.40} alone"
        raise error(f"{file}: found {kind}; expected {expected}")
    return values


def read_text(file: Path, kind: str, error: type[TestudoError], expected: str) -> str:
    """Return the text of a file; ``kind`` and ``expected`` content are for errors.

    Raises:
        TestudoError: of the type ``error``; unreadable, or not text.
    """
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError as cause:
        raise error(f"{file}: no such {kind}") from cause
    except UnicodeDecodeError as cause:
        raise error(f"{file}: is not a text file; expected {expected}") from cause
    except OSError as cause:
        raise error(f"{file}: cannot be read: {cause}") from cause


def parse_yaml(text: str, file: Path | str, error: type[TestudoError]) -> Any:
    """Return the value of a YAML text; ``file`` names it in errors.

    Raises:
        TestudoError: of the type ``error``; not YAML, or a repeated key.
    """
    try:
        return yaml.load(text, Loader=StrictLoader)  # noqa: S506 -- derives from SafeLoader
    except yaml.reader.ReaderError as cause:
        raise error(f"{file}: is not a text file: {' '.join(str(cause).split())}; expected YAML") from cause
    except (yaml.YAMLError, ValueError, RecursionError) as cause:
        raise error(f"{file}: not a YAML file: {' '.join(str(cause).split())}") from cause


Keys = tuple[str, ...]


@dataclass(frozen=True)
class LinedYaml:
    """Values of a YAML file with their lines."""

    file: Path
    values: Mapping[str, Any]
    lines: Mapping[Keys, int]  # by the keys of a value

    def get(self, *keys: str) -> Any:
        """Return a value; None where a key is missing."""
        found: Any = self.values
        for key in keys:
            if not is_table(found) or key not in found:
                return None
            found = found[key]
        return found

    def where(self, *keys: str) -> str:
        """Return file, line and name of a key; of a missing key the line of its table."""
        known = next((keys[:count] for count in range(len(keys), 0, -1) if keys[:count] in self.lines), ())
        return f"{self.file}:{self.lines.get(known, 1)}: {'.'.join(keys)}"


def read_lined(file: Path, error: type[TestudoError], expected: str) -> LinedYaml:
    """Read a YAML file with a table at the top; ``expected`` content is for errors.

    Raises:
        TestudoError: of the type ``error``; unreadable, not YAML, a repeated key, or no table.
    """
    text = read_text(file, "file", error, expected)
    values = parse_tables(text, file, error, expected)
    return LinedYaml(file, values, dict(_lines(StrictLoader(text).get_single_node(), ())))


def _lines(node: Any, keys: Keys) -> Iterator[tuple[Keys, int]]:
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        inner = (*keys, str(key.value))
        yield inner, key.start_mark.line + 1
        yield from _lines(value, inner)
