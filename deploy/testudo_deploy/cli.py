"""The `testudo` program: finds its verbs among the entry points and runs one.

A verb is an entry point of the group `testudo.commands`, ``name = "module:function [extras]"``. Its
signature is its command line (read by tyro) and its docstring is its help: a summary line and an `Example:` block. A
verb returns None, or an exit status.
"""

import ast
import difflib
import gc
import inspect
import os
import re
import sys
import traceback
from collections.abc import Sequence
from functools import cache
from importlib import metadata, util
from pathlib import Path

from testudo_deploy.files.collection_pause import collection_paused
from testudo_deploy.files.compiled_programs import keep_compiled_programs
from testudo_deploy.files.registered import entry_points
from testudo_hardware.errors import TestudoError

GROUP = "testudo.commands"
USAGE = """usage: testudo [--debug] VERB ...

Train a robot team, shield it, ship one ONNX file, run it on ROS 2, replay what happened.
"""
OPTIONS = """
options:
  --help       this text; `testudo VERB --help` for one verb
  --version    version of Testudo
  --debug      show the traceback of an error (so does TESTUDO_DEBUG=1)"""
_SECTION = re.compile(r"^(Args|Returns|Raises|Yields):\s*$", re.MULTILINE)
_OWN_ROS = {"ros-rclpy": "rclpy", "ros-common-interfaces": "diagnostic_msgs"}
"""Distributions that a ROS 2 of the system provides without metadata, each with a module that proves it."""
_PLAIN = re.compile(r"([\w.-]+)[^;\[(@]*; extra == [\"']([\w.-]+)[\"']")
"""A requirement of an extra and nothing else: by far most of them, and the parser of all takes long to start."""
_EXAMPLE = re.compile(r"^Examples?:\s*\n\s+(testudo .*)$", re.MULTILINE)


class UsageError(TestudoError):
    """The command line names something that does not exist."""


def verbs() -> dict[str, metadata.EntryPoint]:
    """Return every registered verb by name, hidden ones included.

    Raises:
        UsageError: two distributions register the same name.
    """
    found: dict[str, metadata.EntryPoint] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        if point.name in found and found[point.name].value != point.value:
            raise UsageError(
                f"verb {point.name!r} is registered twice, as {found[point.name].value!r} and as "
                f"{point.value!r}: uninstall one of the two packages"
            )
        found[point.name] = point
    return found


def missing_requirements(point: metadata.EntryPoint) -> list[str]:
    """Return the distributions that the extras of a verb ask for and that are not installed."""
    if point.dist is None or not point.extras:
        return []
    return list(_missing_of(point.dist, frozenset(point.extras)))


@cache  # many verbs ask for the same extras, and a requirement takes long to read
def _missing_of(dist: metadata.Distribution, extras: frozenset[str]) -> tuple[str, ...]:
    return tuple(sorted(set(_missing(dist, set(extras), seen=set()))))


def _canonical(name: str) -> str:
    """Return a name of a distribution or an extra as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _missing(dist: metadata.Distribution, extras: set[str], seen: set[tuple[str, str]]) -> list[str]:
    name = _canonical(dist.name)
    wanted = {extra for extra in extras if (name, extra) not in seen}
    seen |= {(name, extra) for extra in wanted}
    absent: list[str] = []
    for text in dist.requires or [] if wanted else []:
        words = _canonical(text)
        if not any(_canonical(extra) in words for extra in wanted):
            continue  # read only what may ask for such an extra
        plain = _PLAIN.fullmatch(text)
        if plain is not None:
            if _canonical(plain[2]) in map(_canonical, wanted) and not _is_installed(plain[1]):
                absent.append(plain[1])
            continue
        from packaging.requirements import Requirement  # noqa: PLC0415 -- slow to import, and seldom needed

        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or marker.evaluate({"extra": ""}):
            continue
        if not any(marker.evaluate({"extra": extra}) for extra in wanted):
            continue
        if not _is_installed(requirement.name):
            absent.append(requirement.name)
        elif requirement.extras:
            absent += _missing(metadata.distribution(requirement.name), requirement.extras, seen)
    return absent


@cache
def _is_installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return name in _OWN_ROS and util.find_spec(_OWN_ROS[name]) is not None
    return True


def docstring_of(point: metadata.EntryPoint) -> str:
    """Return the docstring of a verb, or else of its module, without importing anything."""
    file = _source_file(point.module)
    if file is None:
        return ""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    own = next((node for node in functions if node.name == point.attr), tree)
    return ast.get_docstring(own) or ast.get_docstring(tree) or ""


def _source_file(module: str) -> Path | None:
    # `find_spec` of a dotted name imports its parents; that of the first part imports nothing
    package, *rest = module.split(".")
    spec = util.find_spec(package)
    if spec is None:
        return None
    if not rest:
        return Path(spec.origin) if spec.origin else None
    stems = [Path(folder).joinpath(*rest) for folder in spec.submodule_search_locations or ()]
    files = [file for stem in stems for file in (stem.with_suffix(".py"), stem / "__init__.py")]
    return next((file for file in files if file.is_file()), None)


def general_help() -> str:
    """Return the text of `testudo --help`, made without importing any verb."""
    rows: list[str] = []
    examples: list[str] = []
    hidden: list[str] = []
    for name, point in verbs().items():
        if missing_requirements(point):
            hidden.append(f"  {name:<12} needs: pip install '{_extra_to_install(point)}'")
            continue
        text = docstring_of(point)
        rows.append(f"  {name:<12} {text.partition(chr(10))[0]}".rstrip())
        examples += [f"  {found[1]}" for found in [_EXAMPLE.search(text)] if found]
    parts = [USAGE, "verbs:", *rows]
    if hidden:
        parts += ["", "not installed:", *hidden]
    if examples:
        parts += ["", "examples:", *examples]
    return "\n".join([*parts, OPTIONS])


def _extra_to_install(point: metadata.EntryPoint) -> str:
    return f"{point.dist.name if point.dist else 'testudo'}[{','.join(sorted(point.extras))}]"


def _find(name: str) -> metadata.EntryPoint:
    known = verbs()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}."
        raise UsageError(f"there is no verb {name!r}; {hint} See `testudo --help`.")
    absent = missing_requirements(known[name])
    if absent:
        raise UsageError(
            f"`testudo {name}` needs {', '.join(absent)}, which is not installed here: "
            f"pip install '{_extra_to_install(known[name])}'"
        )
    return known[name]


def _run(name: str, arguments: Sequence[str]) -> int:
    keep_compiled_programs()
    os.environ.setdefault("TYPEGUARD_DISABLE_PLUGIN_AUTOLOAD", "1")  # no further search of all distributions by tyro
    point = _find(name)
    with collection_paused():  # all that an import makes stays
        function = point.load()
        import tyro  # noqa: PLC0415 -- only when a verb runs: keeps `testudo --help` quick

        gc.freeze()
    # tyro's own reading of a docstring drops the examples.
    description = _SECTION.split(inspect.getdoc(function) or "")[0].strip()
    status = tyro.cli(function, prog=f"testudo {name}", description=description, args=list(arguments))
    return status if isinstance(status, int) else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit status: 2 for a wrong input, 130 for Ctrl-C.

    ``arguments`` are the words after `testudo`; None takes those of the process.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words or os.environ.get("TESTUDO_DEBUG", "0") not in ("", "0")
    words = [word for word in words if word != "--debug"]
    try:
        if not words or words[0] in ("-h", "--help", "help"):
            print(general_help())
            return 0
        if words[0] == "--version":
            print(metadata.version("testudo"))
            return 0
        return _run(words[0], words[1:])
    except TestudoError as error:
        if debug:
            traceback.print_exc()
        print(f"testudo: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        if debug:
            traceback.print_exc()
        print("testudo: stopped by Ctrl-C.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `testudo inspect ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        gc.freeze()  # Python would look for reference cycles among everything before it ends
