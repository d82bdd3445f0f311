"""YAML as our files are read: one document, text keys, no key twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from testudo_hardware.errors import TestudoError

_TEXT_TAG = "tag:yaml.org,2002:str"


class StrictLoader(yaml.SafeLoader):
    """Refuses a key that stands twice, of which YAML would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping of a node, whose keys must differ."""
        seen: set[str] = set()
        for key, _ in node.value:
            wrong = "" if key.tag == _TEXT_TAG else "is not a text"
            if wrong or key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} {wrong or 'stands twice'}", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def parse_yaml(text: str, file: Path | str, error: type[TestudoError]) -> Any:
    """Return what a YAML text holds; ``file`` names it in errors.

    Raises:
        TestudoError: of the type ``error``; not YAML, or a key stands twice.
    """
    try:
        return yaml.load(text, Loader=StrictLoader)  # noqa: S506 -- derives from SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError) as cause:
        raise error(f"{file}: not a YAML file: {' '.join(str(cause).split())}") from cause
