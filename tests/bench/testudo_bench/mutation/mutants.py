"""`testudo bench mutants`: puts small faults into a copy of the checkout, one at a time, and runs their tests."""

import compileall
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode

from testudo_deploy.commands.report import BenchResult
from testudo_deploy.files.atomic_files import write_whole
from testudo_hardware.errors import TestudoError

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[3]
KILLED = "killed"
_VERDICTS = {0: "survived", 1: KILLED, None: "too slow"}
"""By exit status of pytest. All others say that the test was not found or not collected, which proves nothing."""
_LIMIT_S, _CONTROL_LIMIT_S = 240.0, 1800.0


@dataclass(frozen=True)
class Mutant:
    """One small fault: ``old`` occurs once in ``file`` and becomes ``new``, and the pytest node ``test`` must fail."""

    id: str
    file: str
    old: str
    new: str
    test: str
    why: str

    def apply(self, text: str) -> str:
        """Return the text of the file with the fault.

        Raises:
            TestudoError: the old text does not occur exactly once.
        """
        if (count := text.count(self.old)) != 1:
            raise TestudoError(f"mutant {self.id}: found {count} times {self.old!r} in {self.file}, expected once")
        return text.replace(self.old, self.new)


def read_mutants() -> tuple[Mutant, ...]:
    """Return the mutants of all groups."""
    tables = [tomllib.loads(file.read_text(encoding="utf-8")) for file in sorted(HERE.glob("*.toml"))]
    return tuple(Mutant(**values) for table in tables for values in table["mutant"])


def bench_mutants(*, saved: Path | None = None, say: Callable[[str], None] = lambda _: None) -> BenchResult:
    """Check that the tests notice small faults in shield, guard, supervisor, contract and replay.

    Ctrl-C stops the check; the same command resumes it if no source has changed.

    Args:
        saved: JSON file with the verdict on each mutant.
        say: called with progress messages.

    Raises:
        TestudoError: a test fails without a fault, or a mutant does not match its file.
    """
    mutants, interrupted = read_mutants(), False
    with tempfile.TemporaryDirectory() as name:
        tree = copy_checkout(folder := Path(name).resolve())
        verdicts = _read_saved(saved, tree)
        missing = [mutant for mutant in mutants if mutant.id not in verdicts]
        try:
            say(f"{len(missing)} tests without a fault")
            status, output = run_tests(folder, [one.test for one in missing], _CONTROL_LIMIT_S) if missing else (0, "")
            if status != 0:
                raise TestudoError(f"mutants: the tests fail without a fault, exit status {status}\n{output}")
            for number, mutant in enumerate(missing, start=1):
                say(f"mutant {number} of {len(missing)}: {mutant.id}")
                verdicts[mutant.id] = try_mutant(folder, mutant)
                if saved is not None:
                    write_whole(saved, json.dumps({"tree": tree, "mutants": verdicts}, indent=2) + "\n")
        except KeyboardInterrupt:
            interrupted = True
    rows = []
    for group in sorted({mutant.id.partition("-")[0] for mutant in mutants}):
        found = [verdict for name, verdict in verdicts.items() if name.startswith(f"{group}-")]
        rows.append((group, str(len(found)), str(found.count(KILLED))))
    others = [(one.id, verdicts[one.id], one.why) for one in mutants if verdicts.get(one.id, KILLED) != KILLED]
    more = BenchResult("mutants that were not killed", ("mutant", "verdict", "what would go wrong"), others, {})
    values = {"tree": tree, "killed": len(verdicts) - len(others), "of": len(mutants), "mutants": verdicts}
    title = f"{values['killed']} of {values['of']} mutants killed" + ("; interrupted" if interrupted else "")
    return BenchResult(title, ("group", "mutants", "killed"), rows, values, (more,) if others else ())


def copy_checkout(folder: Path) -> str:
    """Copy the files that are or would be committed, and return a hash of those that are Python or TOML."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    found = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode != 0:
        raise TestudoError(f"{ROOT}: found no git checkout; mutants need its list of files")
    digest = hashlib.sha256()
    for name in sorted({name for name in found.stdout.split("\0") if (ROOT / name).is_file()}):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
        if name.endswith((".py", ".toml")):
            digest.update(name.encode() + b"\0" + (folder / name).read_bytes() + b"\0")
    # checked by hash: a fault of equal length within the same second leaves size and time as they were
    compileall.compile_dir(folder, quiet=2, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
    return digest.hexdigest()


def run_tests(folder: Path, tests: Sequence[str], limit_s: float = _LIMIT_S) -> tuple[int | None, str]:
    """Run tests of the copy; return pytest's exit status, None after the time limit [s], and the end of its output."""
    roots = [str(folder / Path(one).relative_to(ROOT)) for one in sys.path if Path(one).is_relative_to(ROOT)]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not slow", *tests]
    how = {"cwd": folder, "env": os.environ | {"PYTHONPATH": os.pathsep.join(roots)}, "timeout": limit_s}
    try:
        done = subprocess.run(command, **how, capture_output=True, text=True, check=False)
    except subprocess.TimeoutExpired:
        return None, ""
    return done.returncode, (done.stdout + done.stderr)[-1500:]


def try_mutant(folder: Path, mutant: Mutant) -> str:
    """Return the verdict on a mutant: whether its test fails in the copy with the fault."""
    text = (folder / mutant.file).read_text(encoding="utf-8")
    (folder / mutant.file).write_text(mutant.apply(text), encoding="utf-8")
    status, _ = run_tests(folder, [mutant.test])
    (folder / mutant.file).write_text(text, encoding="utf-8")
    return _VERDICTS.get(status, "test not collected")


def _read_saved(saved: Path | None, tree: str) -> dict[str, str]:
    """Return the verdicts of a file that were found on this tree."""
    try:
        if saved is None or not saved.exists():
            return {}
        values = json.loads(saved.read_text(encoding="utf-8"))
        return values["mutants"] if values["tree"] == tree else {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TestudoError(f"--json {saved}: found no verdicts on mutants; give another file") from error
