"""Strict readers of JSON values and TOML files: no unknown key, no missing key, no wrong type, no NaN."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from testudo_hardware.errors import TestudoError

OPTIONAL = {"optional": True}
"""Metadata of a field that files written before it was there lack."""


def read_as(kind: Any, value: Any, where: str, error: type[TestudoError]) -> Any:
    """Return a JSON ``value`` as ``kind``; lists become tuples, numbers must be finite.

    Of several dataclasses the value's key `kind` chooses one; a field with the metadata
    `OPTIONAL` may be left out.

    Args:
        kind: a dataclass, float, int, str, bool, Any, literal texts, or tuple, dict or union of such.
        value: what `json.loads` gave.
        where: names file and field in errors.
        error: what to raise.

    Raises:
        TestudoError: of the type ``error``; names the field, what was found, what is expected.
    """
    if is_dataclass(kind):
        return _read_fields(kind, value, where, error)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal and type(value) is str and value in inner:
        return value
    if origin in (Union, UnionType):
        return _read_union(inner, value, where, error)
    if origin is tuple and isinstance(value, list):
        return tuple(read_as(inner[0], item, f"{where}[{index}]", error) for index, item in enumerate(value))
    if origin is dict and isinstance(value, Mapping):
        items = value.items()
        return {key: read_as(inner[1], item, f"{where}.{key}", error) for key, item in items}
    fits = type(value) in (int, float) if kind is float else kind is Any or type(value) is kind
    if not fits or origin is not None:
        raise error(f"{where}: found {_shown(value)}, expected {_kind_name(kind)}")
    _finite(value, where, error)
    return float(value) if kind is float else value


def _read_fields(kind: Any, value: Any, where: str, error: type[TestudoError]) -> Any:
    if not isinstance(value, Mapping):
        raise error(f"{where}: found {_shown(value)}, expected an object")
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind)]
    given = [name for name in names if name in value]
    missing = [field.name for field in fields(kind) if field.name not in value and field.metadata != OPTIONAL]
    if missing:
        raise error(f"{where}.{missing[0]}: missing; expected {_kind_name(hints[missing[0]])}")
    unknown = sorted(set(value) - set(names))
    if unknown:
        raise error(f"{where}.{unknown[0]}: unknown key; known are {', '.join(names)}")
    return kind(**{name: read_as(hints[name], value[name], f"{where}.{name}", error) for name in given})


def _read_union(kinds: tuple[Any, ...], value: Any, where: str, error: type[TestudoError]) -> Any:
    if value is None and type(None) in kinds:
        return None
    others = [kind for kind in kinds if kind is not type(None)]
    if len(others) == 1:
        return read_as(others[0], value, where, error)
    if all(is_dataclass(kind) for kind in others):
        return _read_kind(others, value, where, error)
    for kind in others:
        if type(value) is kind:
            return read_as(kind, value, where, error)
    raise error(f"{where}: found {_shown(value)}, expected {' or '.join(map(_kind_name, others))}")


def _read_kind(kinds: list[Any], value: Any, where: str, error: type[TestudoError]) -> Any:
    """Return the dataclass whose field `kind` has the text that the value has."""
    known = {text: kind for kind in kinds for text in get_args(get_type_hints(kind)["kind"])}
    if not isinstance(value, Mapping):
        raise error(f"{where}: found {_shown(value)}, expected an object")
    found = value.get("kind")
    if not isinstance(found, str) or found not in known:
        raise error(f"{where}.kind: found {_shown(found)}, expected one of {', '.join(known)}")
    return _read_fields(known[found], value, where, error)


def _finite(value: Any, where: str, error: type[TestudoError]) -> Any:
    """Return ``value``; JSON knows no NaN, but 1e999 reads as infinity."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            _finite(item, f"{where}.{key}", error)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _finite(item, f"{where}[{index}]", error)
    elif isinstance(value, int | float) and not isinstance(value, bool) and not _is_finite(value):
        raise error(f"{where}: found {value}, expected a finite number")
    return value


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer that no float can hold
        return False


def _kind_name(kind: Any) -> str:
    names = {float: "a number", int: "a whole number", str: "a text", bool: "true or false"}
    if kind in names:
        return names[kind]
    if get_origin(kind) is tuple:
        return f"a list, each item {_kind_name(get_args(kind)[0])}"
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(_kind_name(item) for item in get_args(kind))
    return "null" if kind is type(None) else "an object"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


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
