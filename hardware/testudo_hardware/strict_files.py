"""Strict readers of JSON values and TOML files: no unknown key, no missing key, no wrong type, no NaN."""

import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeGuard, TypeVar, Union, get_args, get_origin, get_type_hints

from testudo_hardware.errors import TestudoError

OPTIONAL = {"optional": True}  # metadata of a field that may be missing, as in files written before the field existed
_NAMES = {float: "a number", int: "a whole number", str: "a text", bool: "true or false", type(None): "null"}


def is_table(value: Any) -> TypeGuard[Mapping[str, Any]]:
    """Return whether a value read from a file is a table (JSON object, YAML mapping)."""
    return isinstance(value, Mapping)


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """Return whether a value read from a file is a list."""
    return isinstance(value, list)


def read_as(kind: Any, value: Any, where: str, error: type[TestudoError]) -> Any:
    """Return a JSON ``value`` as ``kind``; lists become tuples, numbers must be finite.

    In a union of dataclasses the value's key `kind` selects one; a field with the metadata `OPTIONAL` may be missing.

    Args:
        kind: a dataclass, float, int, str, bool, Any, literal texts, or tuple, dict or union of such.
        value: the result of `json.loads`.
        where: file and field, for errors.
        error: type of the error to raise.

    Raises:
        TestudoError: of the type ``error``; names the field, what was found and what is expected.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if is_dataclass(origin or kind):
        return _read_fields(kind, value, where, error)
    if origin is Literal and type(value) is str and value in inner:
        return value
    if origin in (Union, UnionType):
        return _read_union(inner, value, where, error)
    if origin is tuple and is_list(value):
        return tuple(read_as(inner[0], item, f"{where}[{index}]", error) for index, item in enumerate(value))
    if origin is dict and is_table(value):
        return {key: read_as(inner[1], item, f"{where}.{key}", error) for key, item in value.items()}
    fits = type(value) in (int, float) if kind is float else kind is Any or type(value) is kind
    if not fits or origin is not None:
        raise error(f"{where}: found {_shown(value)}, expected {_kind_name(kind)}")
    _check_finite(value, where, error)
    return float(value) if kind is float else value


def _read_fields(kind: Any, value: Any, where: str, error: type[TestudoError]) -> Any:
    if not is_table(value):
        raise error(f"{where}: found {_shown(value)}, expected an object")
    made, parameters = get_origin(kind) or kind, get_args(kind)
    hints = {name: parameters[0] if isinstance(hint, TypeVar) else hint for name, hint in get_type_hints(made).items()}
    names = [field.name for field in fields(made)]
    missing = [field.name for field in fields(made) if field.name not in value and dict(field.metadata) != OPTIONAL]
    if missing:
        raise error(f"{where}.{missing[0]}: missing; expected {_kind_name(hints[missing[0]])}")
    unknown = sorted(set(value) - set(names))
    if unknown:
        raise error(f"{where}.{unknown[0]}: unknown key; known are {', '.join(names)}")
    given = [name for name in names if name in value]
    return made(**{name: read_as(hints[name], value[name], f"{where}.{name}", error) for name in given})


def _read_union(kinds: tuple[Any, ...], value: Any, where: str, error: type[TestudoError]) -> Any:
    if value is None and type(None) in kinds:
        return None
    others = [kind for kind in kinds if kind is not type(None)]
    if len(others) == 1:
        return read_as(others[0], value, where, error)
    if all(is_dataclass(kind) for kind in others):
        known = {text: kind for kind in others for text in get_args(get_type_hints(kind)["kind"])}
        if not is_table(value):
            raise error(f"{where}: found {_shown(value)}, expected an object")
        found = value.get("kind")
        if not isinstance(found, str) or found not in known:
            raise error(f"{where}.kind: found {_shown(found)}, expected one of {', '.join(known)}")
        return _read_fields(known[found], value, where, error)
    for kind in others:
        if type(value) is kind:
            return read_as(kind, value, where, error)
    raise error(f"{where}: found {_shown(value)}, expected {' or '.join(map(_kind_name, others))}")


def _check_finite(value: Any, where: str, error: type[TestudoError]) -> None:
    """Refuse numbers that are not finite: JSON has no NaN, but 1e999 is read as infinity."""
    items: Iterable[tuple[str, Any]] = ()
    if is_table(value):
        items = ((f".{key}", item) for key, item in value.items())
    elif is_list(value):
        items = ((f"[{index}]", item) for index, item in enumerate(value))
    elif isinstance(value, int | float) and not isinstance(value, bool) and not _is_finite(value):
        raise error(f"{where}: found {value}, expected a finite number")
    for key, item in items:
        _check_finite(item, where + key, error)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer that no float can hold
        return False


def _kind_name(kind: Any) -> str:
    if kind in _NAMES:
        return _NAMES[kind]
    origin, inner = get_origin(kind), get_args(kind)
    if origin is tuple:
        return f"a list, each item {_kind_name(inner[0])}"
    if origin is Literal:
        return f"one of {', '.join(inner)}"
    return " or ".join(map(_kind_name, inner)) if origin in (Union, UnionType) else "an object"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def read_toml(
    name_or_path: str | Path, known: Mapping[str, Any], what: str, error: type[TestudoError]
) -> tuple[dict[str, Any], str]:
    """Return the tables of a TOML file, and its name for errors.

    Args:
        name_or_path: a known name, or a path that ends in ``.toml``.
        known: files by name.
        what: what such a file describes: ``robot``, ``link``.
        error: type of the error to raise.

    Raises:
        TestudoError: of the type ``error``; no such file, or not TOML.
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
