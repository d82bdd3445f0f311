"""`testudo bench emulated`: fleets of emulated vendors' robots in `navigation`, in lock-step, one row for each case."""

import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from testudo_bench.emulated.emulated_faults import ROWS, FaultOutcome, run_fault
from testudo_bench.emulated.lock_step_fleet import run_episode
from testudo_bench.emulated.prepared_case import PreparedCase, PreparedFlight, prepared
from testudo_bench.emulated.vendor_cases import CASES, VendorCase, find_cases
from testudo_deploy.commands.report import BenchResult
from testudo_deploy.files.atomic_files import write_whole
from testudo_hardware.errors import TestudoError
from testudo_policies.evaluation.shares import share_interval

COLUMNS = (
    "case",
    "n",
    "success",
    "95 %",
    "contacts",
    "median",
    "least [m]",
    "pose rms",
    "worst",
    "stated",
    "beyond",
    "as it must",
)
"""Share of episodes in which all robots arrived, and the lower end of its interval (Wilson); contacts;
median time to arrival; least distance of two centres; errors of the poses that the shield got [m], the error that the
robot file states, and the share of poses beyond it."""
_EPISODES, _FEWER, _QUICK = 100, 10, 2
BAR = 0.95
_FAULTS = "faults "
_FAULT_COLUMNS = ("case", "fault", "within", "stood after", "reason", "contacts", "verdict")
SCHEMA = "testudo/emulated/1"
Outcome = dict[str, Any]


def bench_emulated(
    *,
    robot: str | None = None,
    repeats: int = _EPISODES,
    minutes: float = 600.0,
    quick: bool = False,
    saved: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> BenchResult:
    """Drive four emulated robots of each vendor through episodes of `navigation`, in lock-step and without ROS.

    Robot, guard, pose source, plant and driver are the deployed classes; rates, ages, noise, time-outs and quirks are
    those of the link profile's `[emulation]`, and what the case makes worse. The policy drives at full speed
    straight to the goal.
    Each fault of `emulated_faults` is injected once into the robots of every case with a bar, and into drones, which
    have no episodes; one that does not apply says why.

    Args:
        robot: the name of a case, or the beginning of several; all by default.
        repeats: episodes of a case with a bar; the others have a tenth of them.
        minutes: time budget.
        quick: two episodes of each.
        saved: JSON file with the outcomes of all episodes, to which a later call adds.
        say: receives progress messages.

    Raises:
        TestudoError: an unknown case, or the file is of another benchmark.
    """
    chosen = find_cases(robot or "", "testudo bench emulated: --robot")
    found = _read(saved)
    counts = {one.name: _episodes_of(one, repeats, quick=quick) for one in chosen}
    _measure(found, list(_tasks(chosen, counts, found)), time.monotonic() + 60 * minutes, saved, say)
    figures = [_figures(one, found[one.name]) for one in CASES if found.get(one.name)]
    faults = [(key.removeprefix(_FAULTS), one) for key in found if key.startswith(_FAULTS) for one in found[key]]
    values = {"schema": SCHEMA, "cases": figures, "episodes": found}
    contacts = sum(one["contacts"] for one in figures)
    title = f"emulated robots: {contacts} contacts in {sum(one['episodes'] for one in figures)} episodes"
    held = sum(one["holds"] is True for _, one in faults)
    apart = sum(one["holds"] is None for _, one in faults)
    shown = BenchResult(
        f"faults: {held} of {len(faults) - apart} held" + (f", {apart} do not apply" if apart else ""),
        _FAULT_COLUMNS,
        [_fault_row(*one) for one in faults],
        {},
    )
    return BenchResult(title, COLUMNS, [_row(one) for one in figures], values, (shown,) if faults else ())


def _episodes_of(case: VendorCase, repeats: int, *, quick: bool) -> int:
    if case.expected == "faults":
        return 0
    return _QUICK if quick else repeats if case.expected == "bar" else -(-repeats // _FEWER)


def _read(saved: Path | None) -> dict[str, list[Outcome]]:
    if saved is None or not saved.exists():
        return {}
    values = json.loads(saved.read_text(encoding="utf-8"))
    if values.get("schema") != SCHEMA:
        raise TestudoError(f"{saved}: schema: found {values.get('schema')!r}, expected {SCHEMA!r}")
    return values["episodes"]


def _tasks(
    chosen: Sequence[VendorCase], counts: dict[str, int], found: dict[str, list[Outcome]]
) -> Iterator[tuple[str, int]]:
    """Yield case and number of each episode that is missing, the cases side by side."""
    for number in range(max(counts.values(), default=0)):
        for one in chosen:
            done = {episode["number"] for episode in found.get(one.name, [])}
            if number < counts[one.name] and number not in done:
                yield one.name, number
    for number in range(len(ROWS)):
        for one in chosen:
            key = _FAULTS + one.name
            if one.expected in ("bar", "faults") and number not in {
                outcome["number"] for outcome in found.get(key, [])
            }:
                yield key, number


def _measure(
    found: dict[str, list[Outcome]],
    tasks: Sequence[tuple[str, int]],
    until_s: float,
    saved: Path | None,
    say: Callable[[str], None],
) -> None:
    workers = len(os.sched_getaffinity(0))
    running: list[tuple[str, Future[Outcome]]] = []

    def take() -> None:
        name, future = running.pop(0)
        outcome = future.result()
        found.setdefault(name, []).append(outcome)
        found[name].sort(key=lambda one: one["number"])
        say(f"{name} {outcome['number']}: {outcome.get('outcome', outcome.get('name'))}")
        if saved is not None:
            write_whole(saved, json.dumps({"schema": SCHEMA, "episodes": found}))

    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        try:
            for name, number in tasks:
                if time.monotonic() > until_s:
                    break
                run = fault if name.startswith(_FAULTS) else episode
                running.append((name, pool.submit(run, name, number)))
                while len(running) > 2 * workers:
                    take()
            while running:
                take()
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)


@cache
def _prepared(name: str) -> PreparedCase | PreparedFlight:
    folder = Path(tempfile.mkdtemp(prefix="testudo_emulated_"))
    return prepared(next(one for one in CASES if one.name == name), folder)


def episode(name: str, number: int) -> Outcome:
    """Run one episode of a case; equal names and numbers give equal outcomes."""
    case = _prepared(name)
    if isinstance(case, PreparedFlight):
        raise TypeError(f"{name}: drones have no episodes")
    outcome = run_episode(case.fleet(number), number, case.scenario.horizon_s, case.scenario.tolerance_m)
    return {"number": number, "stated_m": case.spec.position_error_m, **asdict(outcome)}


def fault(name: str, number: int) -> Outcome:
    """Inject one fault into the robots of a case; ``name`` is its name with the word before it.

    ``holds`` is None, with the reason, where the fault does not apply to them.
    """
    case, row = _prepared(name.removeprefix(_FAULTS)), ROWS[number]
    left_out = row.left_out(case.spec)
    if left_out:
        return {"number": number, "holds": None, **asdict(FaultOutcome(row.name, 0.0, 0.0, left_out, 0))}
    outcome = run_fault(row, case.fleet(number), number)
    return {"number": number, "holds": outcome.holds, **asdict(outcome)}


def _fault_row(case: str, one: Outcome) -> tuple[str, ...]:
    if one["holds"] is None:
        return (case, one["name"], "-", "-", one["reason"], "-", "does not apply")
    times = (f"{1e3 * one[key]:.0f} ms" for key in ("limit_s", "stood_s"))
    return (case, one["name"], *times, one["reason"], str(one["contacts"]), "held" if one["holds"] else "FAILED")


def _figures(case: VendorCase, episodes: Sequence[Outcome]) -> dict[str, Any]:
    arrived = sorted(one["time_s"] for one in episodes if one["outcome"] == "arrived")
    poses = sum(one["errors"]["count"] for one in episodes)
    ticks: dict[str, int] = {}
    for one in episodes:
        for key, count in one["ticks"].items():
            ticks[key] = ticks.get(key, 0) + count
    success, contacts = len(arrived) / len(episodes), sum(one["contacts"] for one in episodes)
    holds = {"bar": success >= BAR, "control": not arrived, "shown": True}[case.expected] and contacts == 0
    return {
        "case": case.name,
        "what": case.what,
        "expected": case.expected,
        "episodes": len(episodes),
        "success": success,
        "success_low": share_interval(len(arrived), len(episodes))[0],
        "contacts": contacts,
        "median_s": arrived[len(arrived) // 2] if arrived else None,
        "separation_m": min(one["separation_m"] for one in episodes),
        "pose_rms_m": (sum(one["errors"]["square_m2"] for one in episodes) / poses) ** 0.5 if poses else None,
        "pose_worst_m": max(one["errors"]["worst_m"] for one in episodes),
        "stated_m": episodes[0]["stated_m"],
        "beyond": sum(one["errors"]["beyond"] for one in episodes) / poses if poses else None,
        "ticks": {key: count / max(sum(ticks.values()), 1) for key, count in sorted(ticks.items())},
        "holds": holds,
    }


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    def metres(value: float | None) -> str:
        return "-" if value is None else f"{value:.3f}"

    return (
        one["case"],
        str(one["episodes"]),
        f"{one['success']:.2f}",
        f"{one['success_low']:.2f}",
        str(one["contacts"]),
        "-" if one["median_s"] is None else f"{one['median_s']:.1f} s",
        metres(one["separation_m"]),
        metres(one["pose_rms_m"]),
        metres(one["pose_worst_m"]),
        metres(one["stated_m"]),
        "-" if one["beyond"] is None else f"{one['beyond']:.4f}",
        "-" if one["expected"] == "shown" else "yes" if one["holds"] else "NO",
    )
