"""Collects the source of functions and classes, and of all that they use, into the text of one file.

Each definition is copied as it stands, so that there is one implementation. Two definitions of the same name in
different modules are told apart by the name of the module. What a definition names only in annotations is not copied:
the file evaluates no annotation (`from __future__ import annotations`).
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from testudo_hardware.errors import TestudoError

_OWN = "testudo_"  # packages whose source is copied; all others are imported
_Key = tuple[str, str]  # module and name in it


@dataclass(frozen=True)
class Piece:
    """One copied definition."""

    module: str
    names: tuple[str, ...]  # in its module
    text: str
    renamed: bool  # the text has other names than its source


@dataclass(frozen=True)
class Bundle:
    """The copied definitions in an order in which they can be evaluated, and the imports that they need."""

    pieces: tuple[Piece, ...]
    imports: tuple[str, ...]

    def text(self) -> str:
        """Return the source of all pieces, each part under the name of its module."""
        parts: list[str] = []
        module = ""
        for piece in self.pieces:
            if piece.module != module:
                module = piece.module
                parts.append(f"# {module}")
            parts.append(piece.text)
        return "\n\n".join(parts) + "\n"


def bundle(roots: Collection[Any], replaced: Mapping[_Key, _Key], allowed: Collection[str]) -> Bundle:
    """Return the definitions of functions and classes and of all that they use.

    Args:
        roots: functions and classes.
        replaced: definitions, by module and name, that others of the same name take the place of.
        allowed: packages that the file may import.

    Raises:
        TestudoError: a definition needs another package.
    """
    collector = _Collector(replaced, allowed)
    for root in roots:
        collector.collect((root.__module__, root.__name__))
    return Bundle(tuple(collector.pieces), tuple(sorted(collector.imports)))


class _Collector:
    """Follows the names that definitions use, depth first, so that what a definition needs comes before it."""

    def __init__(self, replaced: Mapping[_Key, _Key], allowed: Collection[str]) -> None:
        self._replaced, self._allowed = replaced, allowed
        self._names: dict[_Key, str] = {}  # in the file
        self._taken: dict[str, _Key] = {}
        self.pieces: list[Piece] = []
        self.imports: set[str] = set()

    def collect(self, key: _Key) -> str:
        """Copy a definition, unless it is there already, and return its name in the file."""
        key = self._replaced.get(key, key)
        if key in self._names:
            return self._names[key]
        module, name = key
        source = _source(module)
        if name not in source.definitions:
            if name not in source.imports:
                raise TestudoError(f"{module}.{name}: cannot be copied: it is no definition of that module")
            return self._import(source.imports[name], name)
        node = source.definitions[name]
        defined = _defined(node)
        for each in defined:
            self._names[module, each] = self._free_name(each, module)
        if _uses_module(node, source):
            self.pieces.append(Piece(module, defined, self._constant(module, name), renamed=True))
            return self._names[key]
        names = {each: self._names[module, each] for each in defined}
        for used in _used(node):
            if used in source.definitions:
                names[used] = self.collect((module, used))
            elif used in source.imports:
                names[used] = self._import(source.imports[used], used)
        changed = {old: new for old, new in names.items() if old != new}
        text = _renamed(node, source.lines, changed) if changed else source.text(node)
        self.pieces.append(Piece(module, defined, text, bool(changed)))
        return self._names[key]

    def _free_name(self, name: str, module: str) -> str:
        key = (module, name)
        if self._taken.setdefault(name, key) != key:
            name = f"{name}_{module.rpartition('.')[2]}"
            if self._taken.setdefault(name, key) != key:
                raise TestudoError(f"{module}: cannot be copied: the name {name} is taken")
        return name

    def _import(self, imported: _Key, local: str) -> str:
        """Copy what an import statement names, or import it from a package that is allowed."""
        module, name = imported
        package = module.partition(".")[0]
        if package.startswith(_OWN):
            return self.collect((module, name))
        if package not in self._allowed:
            raise TestudoError(f"{module}: found where only {', '.join(sorted(self._allowed))} may be imported")
        line = f"from {module} import {name}" if name else f"import {module}"
        bound = name or package
        if local != bound:
            line += f" as {local}"
        if self._taken.setdefault(local, imported) != imported:
            raise TestudoError(f"{module}: cannot be imported: the name {local} is taken")
        self.imports.add(line)
        return local

    def _constant(self, module: str, name: str) -> str:
        value = getattr(import_module(module), name)
        if not isinstance(value, str | int | float):
            raise TestudoError(f"{module}.{name}: cannot be copied: {type(value).__name__} has no plain value")
        return f"{self._names[module, name]} = {value!r}"


@dataclass(frozen=True)
class _Source:
    """What a module defines and imports."""

    lines: list[str]
    definitions: dict[str, ast.stmt]
    imports: dict[str, _Key]  # local name to module and name; no name: the module itself

    def text(self, node: ast.stmt) -> str:
        first, last = _span(node)
        return "\n".join(self.lines[first:last])


@cache
def _source(module: str) -> _Source:
    text = inspect.getsource(import_module(module))
    definitions: dict[str, ast.stmt] = {}
    imports: dict[str, _Key] = {}
    for node in ast.parse(text).body:
        for name in _defined(node):
            definitions[name] = node
        if isinstance(node, ast.Import):
            imports |= {item.asname or item.name.partition(".")[0]: (item.name, "") for item in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.module != "__future__":
            imports |= {item.asname or item.name: (node.module, item.name) for item in node.names}
    return _Source(text.splitlines(), definitions, imports)


def _defined(node: ast.stmt) -> tuple[str, ...]:
    """Return the names that a statement of a module defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return (node.name,)
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return tuple(part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name))
    return ()


def _used(node: ast.AST) -> list[str]:
    """Return the names that a statement reads when it is evaluated or called, in order, without annotations."""
    return list(dict.fromkeys(item.id for item in _evaluated(node) if isinstance(item, ast.Name)))


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _evaluated(child)


def _uses_module(node: ast.stmt, source: _Source) -> bool:
    """Return whether a constant is taken from one of our modules as `module.NAME`."""
    if not isinstance(node, ast.Assign):
        return False
    return any(_is_own_module(source.imports[name]) for name in _used(node) if name in source.imports)


def _is_own_module(imported: _Key) -> bool:
    module, name = imported
    return module.startswith(_OWN) and (not name or isinstance(getattr(import_module(module), name), ModuleType))


def _span(node: ast.stmt) -> tuple[int, int]:
    """Return the first line of a statement, decorators included, and the line after its last, counted from zero."""
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(item.lineno for item in decorators)]) - 1, node.end_lineno or node.lineno


def _renamed(node: ast.stmt, lines: list[str], names: Mapping[str, str]) -> str:
    """Return the text of a statement with other names."""
    places = [(item.lineno, item.col_offset, item.id) for item in ast.walk(node) if isinstance(item, ast.Name)]
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        word = "def " if isinstance(node, ast.FunctionDef) else "class "
        places.append((node.lineno, node.col_offset + len(word), node.name))
    if any(isinstance(item, ast.arg) and item.arg in names for item in ast.walk(node)):
        raise TestudoError(f"line {node.lineno}: cannot be renamed: an argument has the name of a definition")
    first, last = _span(node)
    found = {number: line.encode() for number, line in enumerate(lines[first:last], first + 1)}
    for number, column, name in sorted(places, reverse=True):  # from the end, so that places before stay
        if name in names:
            line = found[number]
            found[number] = line[:column] + names[name].encode() + line[column + len(name.encode()) :]
    return "\n".join(line.decode() for line in found.values())
