"""TOML files that are asked for by name or by path: robots and link profiles."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testudo_hardware.errors import TestudoError


def read_toml(
    name_or_path: str | Path, known: Mapping[str, Any], what: str, error: type[TestudoError]
) -> tuple[dict[str, Any], str]:
    """Return the tables of a file, and what to call it in errors.

    Args:
        name_or_path: a name that is known, or a path that ends in ``.toml``.
        known: files by name.
        what: such a file describes: ``robot``, ``link``.
        error: is raised.

    Raises:
        TestudoError: of the given type; no such file, or it holds no TOML.
    """
    path, name = Path(name_or_path), str(name_or_path)
    if path.suffix == ".toml":
        if not path.is_file():
            raise error(f"{path}: no such {what} file")
        raw, where = path.read_bytes(), str(path)
    elif name in known:
        raw, where = known[name].read_bytes(), f"{name}.toml"
    else:
        raise error(
            f"{what} {name!r} is not known; known are {', '.join(sorted(known))}, or give the path of a .toml file"
        )
    try:
        return tomllib.loads(raw.decode()), where
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as cause:
        raise error(f"{where}: not a TOML file: {cause}") from cause
