"""`testudo bench screen`: on which tasks training in the true dynamics beats training in the described ones."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from testudo_bench.learning.candidates import CANDIDATES, Candidate
from testudo_bench.learning.screened_task import WORTH, Gain, Worlds, scores
from testudo_deploy.commands.report import BenchResult
from testudo_deploy.files.atomic_files import write_whole
from testudo_hardware.errors import TestudoError
from testudo_sim.devices import devices

COLUMNS = ("candidate", "score", "trained as described", "trained in the truth", "gain (95 %)", "contacts", "tells")
_BAR = 12


@dataclass(frozen=True)
class ScreenBudget:
    """Effort for each candidate, equal for both trainings."""

    seeds: int = 5
    worlds: int = 64
    updates: int = 100  # of 32 decisions in each world
    episodes: int = 128  # held-out episodes of each policy


QUICK = ScreenBudget(seeds=2, worlds=8, updates=10, episodes=16)  # only to test that all works


def bench_screen(
    *,
    scenario: str | None = None,
    repeats: int | None = None,
    worlds: int | None = None,
    minutes: float | None = None,
    quick: bool = False,
    saved: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> BenchResult:
    """Find tasks on which training in the true dynamics beats training in the described ones by 20 % of the score.

    For each candidate, a task and a plant that is not as described, PPO learns one policy in each dynamics, with equal
    budgets; both are scored on the plant. Ctrl-C stops the screen; the same command goes on from the file.

    Args:
        scenario: only the candidates of this scenario, or the one of this name; default: all, without those that
            need an accelerator where there is none.
        repeats: seeds.
        worlds: parallel worlds of a training.
        minutes: time after which no further candidate begins.
        quick: ten updates of two seeds of one candidate, only to test that all works.
        saved: file of the results.
        say: called with progress messages.

    Raises:
        TestudoError: an option is out of range, no candidate has the name, or the file is of another screen.
    """
    base = QUICK if quick else ScreenBudget()
    budget = ScreenBudget(repeats or base.seeds, worlds or base.worlds, base.updates, base.episodes)
    for option, found in (("--repeats", repeats), ("--worlds", worlds)):
        if found is not None and found < 1:
            raise TestudoError(f"{option}: found {found}, expected at least 1")
    chosen = chosen_candidates(scenario, accelerator=jax.default_backend() != "cpu")
    chosen = chosen[:1] if quick else chosen
    results = SavedScreen.open(budget, saved)
    interrupted, began = False, time.perf_counter()
    try:
        for number, candidate in enumerate(chosen):
            late = minutes is not None and time.perf_counter() - began > 60 * minutes
            if candidate.name not in results.found and not late:
                results.add(candidate, screened(candidate, budget, _reporter(candidate, number, len(chosen), say)))
    except KeyboardInterrupt:
        interrupted = True
    values = results.to_dict() | {
        "worth": WORTH,
        "quick": quick,
        "interrupted": interrupted,
        "seconds": time.perf_counter() - began,
        "device": devices().to_dict(),
    }
    title = (
        f"Training in the true dynamics against training in the described ones, scored on the plant; PPO, "
        f"{budget.updates * budget.worlds * 32:,} decisions each, {budget.episodes} held-out episodes, mean (least to "
        f"most) of {budget.seeds} seeds; a task tells from {WORTH:.0%} of the score on, with an interval without 0; "
        f"{values['seconds']:.0f} s"
    )
    rows = [_row(one, results.found[one.name]) for one in CANDIDATES if one.name in results.found]
    return BenchResult(title, COLUMNS, rows, values)


def chosen_candidates(scenario: str | None, *, accelerator: bool) -> tuple[Candidate, ...]:
    """Return the candidates of a scenario or name; of None all that this machine can train in minutes.

    Raises:
        TestudoError: no candidate has this scenario or name.
    """
    if scenario is None:
        return tuple(one for one in CANDIDATES if accelerator or not one.needs_accelerator)
    found = tuple(one for one in CANDIDATES if scenario in (one.name, one.scenario))
    if not found:
        names = sorted({one.name for one in CANDIDATES} | {one.scenario for one in CANDIDATES})
        raise TestudoError(f"--scenario: found {scenario!r}, expected one of {', '.join(names)}")
    return found


def screened(candidate: Candidate, budget: ScreenBudget, tell: Callable[[float, str], None]) -> dict[str, Any]:
    """Train policies of all seeds in both dynamics, and return their scores on the plant, JSON-ready."""
    began = time.perf_counter()
    worlds = Worlds(candidate, budget.worlds, budget.updates)
    arms = {"described": worlds.components.environment, "true": worlds.true_world}
    policies = [
        worlds.learnt(
            world,
            budget.seeds,
            lambda share, name=name, k=k: tell(0.45 * (k + share), f"training in the {name} dynamics"),
        )
        for k, (name, world) in enumerate(arms.items())
    ]
    tell(0.9, "held-out episodes on the plant")
    # both together, so that the episodes are compiled once
    played = worlds.episodes_of(jax.tree.map(lambda *x: jnp.concatenate(x), *policies), budget.episodes)
    both = scores(candidate, played)
    described, true = both[: budget.seeds], both[budget.seeds :]
    gain = Gain.of(true, described, more_is_better=candidate.more_is_better)
    return {
        **candidate.to_dict(),
        "described": described.tolist(),
        "true": true.tolist(),
        "gain": {"mean": gain.mean, "low": _finite(gain.low), "high": _finite(gain.high)},
        "tells": gain.tells,
        "success": np.mean(played.success, axis=1).tolist(),
        "episodes_with_contact": int(np.sum(played.touched)),
        "episodes": int(played.touched.size),
        "seconds": time.perf_counter() - began,
    }


class SavedScreen:
    """Results of a screen by candidate, written to the file after each."""

    def __init__(self, budget: ScreenBudget, file: Path | None, found: dict[str, Any]) -> None:
        """Hold the results so far."""
        self.budget, self.file, self.found = budget, file, found

    @classmethod
    def open(cls, budget: ScreenBudget, file: Path | None) -> "SavedScreen":
        """Return the saved results of a screen with this budget; none without a file.

        Results of a candidate that is declared otherwise by now are left out.

        Raises:
            TestudoError: the file has other contents or another budget, or its folder does not exist.
        """
        if file is None or not file.exists():
            if file is not None and not file.parent.is_dir():
                raise TestudoError(f"--json {file}: folder {file.parent} does not exist; create it or give another")
            return cls(budget, file, {})
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
            saved, found = values["budget"], dict(values["candidates"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TestudoError(f"--json {file}: expected the results of `bench screen`; give another file") from error
        for name, expected in asdict(budget).items():
            if saved.get(name) != expected:
                raise TestudoError(
                    f"--json {file}: budget.{name}: found {saved.get(name)!r}, expected {expected!r}; give another "
                    "file, or the options of the saved screen"
                )
        declared = {one.name: json.loads(json.dumps(one.to_dict())) for one in CANDIDATES}
        current = {
            name: one
            for name, one in found.items()
            if name in declared and all(one.get(key) == value for key, value in declared[name].items())
        }
        return cls(budget, file, current)

    def add(self, candidate: Candidate, result: dict[str, Any]) -> None:
        """Add the result of a candidate."""
        self.found[candidate.name] = result
        if self.file is not None:
            write_whole(self.file, json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n")

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {"budget": asdict(self.budget), "candidates": self.found}


def _reporter(
    candidate: Candidate, number: int, total: int, say: Callable[[str], None]
) -> Callable[[float, str], None]:
    def report(share: float, what: str) -> None:
        done = round(_BAR * (number + share) / total)
        say(f"{'█' * done}{'░' * (_BAR - done)} {number + 1} of {total}, {candidate.name}: {what}")

    report(0.0, "building the worlds")
    return report


def _row(candidate: Candidate, result: dict[str, Any]) -> tuple[str, ...]:
    gain = result["gain"]
    interval = "" if gain["low"] is None else f" ({gain['low']:+.0%} to {gain['high']:+.0%})"
    return (
        f"{candidate.name}: {candidate.about}",
        f"{candidate.score}{'' if candidate.more_is_better else ' (s), less is better'}",
        _spread(result["described"]),
        _spread(result["true"]),
        f"{gain['mean']:+.0%}{interval}",
        f"{result['episodes_with_contact']} of {result['episodes']}",
        "yes" if result["tells"] else "no",
    )


def _spread(values: Sequence[float]) -> str:
    return f"{np.mean(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
