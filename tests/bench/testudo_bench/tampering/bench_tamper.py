"""`testudo bench tamper`: random single changes to a recorded run, and whether `testudo replay` reports them."""

import io
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np

from testudo_analysis.commands.replay import replay
from testudo_bench.tampering.changes import KINDS, changed
from testudo_bench.tampering.run_copy import RunCopy
from testudo_deploy.commands.report import BenchResult
from testudo_deploy.contract.shipped_policies import policy_file
from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.launch.fleet_run import run_fleet
from testudo_runs.bags.mcap_file import read_messages

COLUMNS = ("change", "chain kept", "chain computed again, without a key", "unchanged run")
"""Reported of all, when the chain of hashes stays as recorded; when it is computed again; reports of no change."""
_CHANGES, _QUICK = 1000, 40
_SECONDS = 3.0
_AGAIN = 5  # one of so many changes is also made with a chain that is computed again
_POLICY = "navigation"


def bench_tamper(
    *,
    policy: Path | None = None,
    repeats: int = _CHANGES,
    quick: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> BenchResult:
    """Change a run of four robots in lock-step, one thing at a time, and count what replay reports.

    Every topic is as likely as every other, and every field of its messages. A fifth of the changes is also made with
    a chain of hashes that is computed again, as somebody without the fleet key could do: only logic finds those.

    Args:
        policy: policy file with a fleet file beside it; by default the shipped one of navigation.
        repeats: number of changes.
        quick: 40 changes.
        say: called with progress messages.
    """
    began, count = perf_counter(), _QUICK if quick else repeats
    file = policy_file(Path(_POLICY)) if policy is None else policy
    with TemporaryDirectory(prefix="testudo_tamper_") as folder:
        say("recording a run in lock-step")
        fleet = load_fleet(file.parent / "fleet.yaml")
        run_fleet(fleet, run_folder=Path(folder) / "run", seed=3, duration_s=_SECONDS, lock_step=True)
        run = RunCopy.of(Path(folder) / "run")
        values = measure(run, Path(folder) / "changed", count, say)
    values |= {"seconds": perf_counter() - began, "run_s": _SECONDS, "messages": len(run.places)}
    return BenchResult(f"Single changes to a run of {len(run.places)} messages", COLUMNS, _rows(values), values)


def measure(run: RunCopy, folder: Path, count: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Make changes one after the other; return counts and what was not reported.

    ``folder`` is written for each change, and removed.
    """
    random = np.random.default_rng(0)
    made, found = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    missed: list[dict[str, str]] = []
    for number in range(count):
        say(f"change {number + 1} of {count}")
        kind = KINDS[number % len(KINDS)]
        copy, change = changed(run, kind, random)
        arms = {"kept": (copy, False)}
        if number // len(KINDS) % _AGAIN == 0:
            arms["again"] = (copy.chained(), True)
        for arm, (other, rewritten) in arms.items():
            made[arm, kind] += 1
            if _is_reported(other, folder, rewritten=rewritten):
                found[arm, kind] += 1
            else:
                missed.append({"arm": arm, **change._asdict()})
    false = sum(_is_reported(one, folder, rewritten=True) for one in (run, run.chained()))
    return {
        "changes": count,
        "made": {f"{arm}_{kind}": number for (arm, kind), number in made.items()},
        "reported": {f"{arm}_{kind}": found[arm, kind] for arm, kind in made},
        "all_reported": all(found["kept", kind] == made["kept", kind] for kind in KINDS),
        "reported_of_the_unchanged": int(false),
        "missed": missed,
    }


def _is_reported(run: RunCopy, folder: Path, *, rewritten: bool) -> bool:
    """Return whether replay reports the run: by its chain, or, if that was computed again, by its exit status."""
    with TemporaryDirectory(prefix=folder.name, dir=folder.parent) as made:
        target = run.write(Path(made) / "run", tells_hash=rewritten)
        damage: list[str] = []
        proof = read_messages(target, damage)[1]
        if damage or not proof.is_whole or not rewritten:
            return bool(damage) and not proof.is_whole
        with redirect_stdout(io.StringIO()):
            return replay(target, mode="reinference") != 0


def _rows(values: dict[str, Any]) -> list[tuple[str, ...]]:
    made, reported = values["made"], values["reported"]

    def share(arm: str, kind: str) -> str:
        key = f"{arm}_{kind}"
        return f"{reported[key]} of {made[key]}" if key in made else "-"

    rows = [(kind, share("kept", kind), share("again", kind), "") for kind in KINDS]
    return [*rows, ("none", "", "", f"{values['reported_of_the_unchanged']} of 2")]
