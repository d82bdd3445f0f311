"""Machine code of C sources, made once by the computer's own compiler and kept in the user's cache."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from testudo_hardware.errors import TestudoError

COMPILERS = ("cc", "gcc", "clang")
SWITCH = "TESTUDO_COMPILED"
"""Environment variable: policy nodes compile their bodies where it is 1; 0 refuses to compile anywhere."""
FLAGS = ["-O1", "-ffp-contract=off", "-fno-fast-math", "-fPIC", "-shared", "-w"]
"""No product and sum may be joined, nothing reordered: NumPy's roundings. -O1: of -O2's 3 s of compiling half, for 2 µs
of 20 a tick."""
_LONGEST_S = 300.0


class NotCompiledError(TestudoError):
    """There is no machine code; the text says why, and what to do."""


def shared_library(source: str) -> ctypes.PyDLL:
    """Return the loaded library of a C source, compiled if it is not in the cache.

    Several processes that ask for the same wait for the first.

    Raises:
        NotCompiledError: switched off, no compiler, or it failed.
    """
    if os.environ.get(SWITCH) == "0":
        raise NotCompiledError(f"{SWITCH}=0 is set")
    compiler = _compiler()
    text = "\n".join((*FLAGS, platform.machine(), str(Path(compiler).stat().st_mtime_ns), source))
    name = hashlib.sha256(text.encode()).hexdigest()[:32]
    try:
        file = _cache() / f"{name}.so"
        with file.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not file.exists():
                _compile(compiler, source, file)
        return ctypes.PyDLL(str(file))
    except (OSError, RuntimeError) as error:  # a user without a home folder is a RuntimeError
        raise NotCompiledError(f"the cache of compiled bodies cannot be used: {error}") from error


def try_compiler() -> None:
    """Compile a source that needs the headers of C, and keep nothing of it.

    Raises:
        NotCompiledError: no compiler, or it failed.
    """
    source = "#include <math.h>\ndouble root(double x) { return sqrt(x); }\n"
    try:
        with tempfile.TemporaryDirectory() as made:
            _compile(_compiler(), source, Path(made) / "root.so")
    except OSError as error:
        raise NotCompiledError(f"the C compiler cannot be tried: {error}") from error


def is_asked_for() -> bool:
    """Return whether policy nodes are to compute their bodies as machine code."""
    return os.environ.get(SWITCH) == "1"


def _compiler() -> str:
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        raise NotCompiledError(f"no C compiler was found ({', '.join(COMPILERS)}); `apt install gcc` adds one")
    return compiler


def _cache() -> Path:
    """Return the folder of this user; nobody else may write it, since its files are executed.

    Raises:
        OSError: it belongs to another user, or others may write it.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    folder = (Path(base) if base else Path.home() / ".cache") / "testudo" / "compiled"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    state = folder.stat()
    if state.st_uid != os.getuid() or state.st_mode & 0o022:
        raise OSError(f"{folder}: found a folder that others may write, expected one of this user alone (chmod 700)")
    return folder


@contextmanager
def _ordinary_priority() -> Generator[None]:
    """Take real-time priority from this thread, so that the compiler, which inherits it, does not stop other nodes."""
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    if policy == os.SCHED_OTHER:
        yield
        return
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameters)


def _compile(compiler: str, source: str, file: Path) -> None:
    with tempfile.TemporaryDirectory(dir=file.parent) as made:
        code, result = Path(made) / "bodies.c", Path(made) / "bodies.so"
        code.write_text(source)
        command = [compiler, *FLAGS, "-o", str(result), str(code), "-lm"]
        try:
            with _ordinary_priority():
                done = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST_S, check=False)  # noqa: S603 -- the found compiler, on the text above
        except subprocess.TimeoutExpired:
            raise NotCompiledError(f"{compiler} did not end within {_LONGEST_S:.0f} s") from None
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["no message"]
            raise NotCompiledError(f"{compiler} failed with status {done.returncode}: {lines[0]}")
        result.replace(file)
