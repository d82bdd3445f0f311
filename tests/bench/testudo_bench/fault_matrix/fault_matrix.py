"""Runs rows of the fault matrix, each in the fleet that it needs."""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testudo_bench.fault_matrix.faults import (
    file_faults,
    guard_faults,
    peer_faults,
    process_faults,
    robot_faults,
    task_faults,
)
from testudo_bench.fault_matrix.harness.fault_case import FaultFinding, FaultRow
from testudo_bench.fault_matrix.harness.fleet_bed import OWN_BED, FleetBed, vendor_bed
from testudo_bench.fault_matrix.harness.fleet_harness import FleetHarness, HarnessError, StalledError, write_fleet
from testudo_deploy.commands.report import BenchResult

ROWS: tuple[FaultRow, ...] = tuple(
    sorted(
        (
            *robot_faults.ROWS,
            *peer_faults.ROWS,
            *process_faults.ROWS,
            *file_faults.ROWS,
            *guard_faults.ROWS,
            *task_faults.ROWS,
        ),
        key=lambda row: row.number,
    )
)
_ORDER = ("none", "own", "driving", "tasked", "tracked", "pursued", "weak", "recorded", "run")
_ONCE = ("none", "own", "run", "weak", "pursued", "recorded")  # Fleets that are started anew for each repetition


_RECORD_S = 3.0
TRIES = 10  # attempts at one repetition while the machine stalls before the injection
_STALLED = "the machine stalled at every repetition"


@dataclass(frozen=True)
class RowOutcome:
    """All repetitions of one row."""

    row: FaultRow
    found: tuple[FaultFinding, ...]
    limit_s: float | None = None  # of the robots into which it was injected
    left_out: str = ""  # why it was not injected

    @property
    def worst_s(self) -> float | None:
        """Return the longest time, if the row requires one."""
        times = [one.time_s for one in self.found if one.time_s is not None]
        return max(times) if times and self.limit_s is not None else None

    @property
    def stolen_s(self) -> float:
        """Return the processor time that the host withheld during the longest time."""
        return max(((one.time_s, one.stolen_s) for one in self.found if one.time_s is not None), default=(0.0, 0.0))[1]

    @property
    def passed(self) -> bool:
        """Return whether every repetition met the requirement in time."""
        in_time = self.limit_s is None or (self.worst_s is not None and self.worst_s <= self.limit_s)
        return bool(self.found) and all(one.passed for one in self.found) and in_time

    @property
    def note(self) -> str:
        """Return the note of the first failed repetition, else of the last one."""
        if not self.found:
            return self.left_out or _STALLED
        return next((one.note for one in self.found if not one.passed), self.found[-1].note)


def run_matrix(
    rows: Sequence[FaultRow], repetitions: int, folder: Path, say: Callable[[str], None], bed: FleetBed = OWN_BED
) -> Iterator[RowOutcome]:
    """Yield the outcome of each row, ordered by the fleet that it needs; ``folder`` is empty."""
    left_out = [row for row in rows if bed is not OWN_BED and row.not_emulated]
    for row in left_out:
        yield RowOutcome(row, (), row.limit_s(bed.spec), row.not_emulated)
    for kind in _ORDER:
        chosen = [row for row in rows if row.fleet == kind and row not in left_out]
        if not chosen:
            continue
        if kind in _ONCE:
            for row in chosen:
                say(f"{row.number}: {row.fault}")
                places = (folder / f"{kind}_{row.number}_{row.inject.__name__}_{k}" for k in range(repetitions))
                yield RowOutcome(row, tuple(_alone(row, place, bed) for place in places), row.limit_s(bed.spec))
            continue
        with _harness(kind, folder / kind, bed) as harness:
            for row in chosen:
                say(f"{row.number}: {row.fault}")
                yield RowOutcome(row, tuple(_repeated(row, harness, repetitions)), row.limit_s(bed.spec))


def _repeated(row: FaultRow, harness: FleetHarness, repetitions: int) -> Iterator[FaultFinding]:
    """Yield repetitions in one fleet; a stalled one is repeated."""
    done = 0
    for _ in range(3 * repetitions):
        if done == repetitions:
            return
        found = once(row, harness)
        if found is not None:
            done += 1
            yield found


def once(row: FaultRow, harness: FleetHarness) -> FaultFinding | None:
    """Return the finding of one injection; None if the machine stalled: the caller repeats it."""
    try:
        harness.wait_until_all_drive()
        return row.inject(harness)
    except StalledError:
        return None
    except HarnessError as error:
        return FaultFinding(False, None, str(error))
    except Exception as error:  # noqa: BLE001 -- one row that breaks must not cost the others their results
        return FaultFinding(False, None, f"the injection failed: {type(error).__name__}: {error}")


def _alone(row: FaultRow, folder: Path, bed: FleetBed) -> FaultFinding:
    """Return one repetition of a row that needs its own fleet, or none."""
    if row.fleet == "none":
        return row.inject(folder) or FaultFinding(False, None, _STALLED)
    if row.fleet == "own":
        found = (row.inject(folder / str(attempt), bed) for attempt in range(TRIES))
        return next((one for one in found if one is not None), FaultFinding(False, None, _STALLED))
    for attempt in range(TRIES):
        here = folder / str(attempt)
        with _harness(row.fleet, here, bed) as harness:  # a new one: the fault persists
            found = _record(harness) if row.fleet == "run" else once(row, harness)
        if found is not None:
            return row.inject(here / "run") or found if row.fleet == "run" else found
    return FaultFinding(False, None, _STALLED)


def _record(harness: FleetHarness) -> FaultFinding | None:
    """Record a run of some seconds; None if the machine stalls."""
    try:
        harness.wait_until_all_drive()
    except StalledError:
        return None
    time.sleep(_RECORD_S)
    return FaultFinding(True)


@contextmanager
def _harness(kind: str, folder: Path, bed: FleetBed) -> Iterator[FleetHarness]:
    folder.mkdir(parents=True)
    options: dict[str, Any] = {}
    if kind in ("recorded", "run"):
        options["run_folder"] = folder / "run"
    if kind == "weak":
        options["plant"] = robot_faults.WEAK
    # the pursuer commands its robot from outside, as a vendor's driver without keys permits
    keyed = kind != "pursued"
    tracking, tasked = kind in ("tracked", "pursued"), kind == "tasked"
    fleet = write_fleet(folder, bed=bed, tracking=tracking, fast=kind == "weak", keyed=keyed, tasked=tasked)
    with FleetHarness(folder, fleet, bed=bed, **options) as harness:
        yield harness


_REPEATS, _QUICK = 5, 1


def bench_faults(
    *,
    robot: str | None = None,
    repeats: int = _REPEATS,
    quick: bool = False,
    say: Callable[[str], None] = print,
) -> BenchResult:
    """Inject every fault of the matrix over DDS into three robots on the MuJoCo plant, and time the brake.

    With a vendor's robot the plant emulates its driver: topics, types, rates, quality of service, noise, ages,
    time-outs and quirks of its link profile. Times are those of its robot file, and rows that do not apply say why.

    Times run from the fault to the brake command on the actuator topic; with a dead guard, to the brake of the driver.
    Beside the longest time stands the processor time that the host of a virtual machine withheld meanwhile, in steps
    of 10 ms over all cores; it changes no verdict.

    Args:
        robot: a vendor's robot, by a case of `testudo bench emulated`; our own by default.
        repeats: repetitions of each row; the longest time counts.
        quick: one repetition of each.
        say: receives progress messages.
    """
    outcomes: list[RowOutcome] = []
    bed = OWN_BED if robot is None else vendor_bed(robot)
    with tempfile.TemporaryDirectory() as folder:
        try:
            outcomes.extend(run_matrix(ROWS, _QUICK if quick else repeats, Path(folder), say, bed))
        except KeyboardInterrupt:
            say("interrupted: finished rows are shown")
    outcomes.sort(key=lambda outcome: outcome.row.number)
    run = [outcome for outcome in outcomes if not outcome.left_out]
    numbers = {outcome.row.number for outcome in run}
    passed = {number for number in numbers if all(one.passed for one in run if one.row.number == number)}
    values = {
        "robot": bed.name,
        "rows": [_values(outcome) for outcome in outcomes],
        "numbers": len(numbers),
        "passed": len(passed),
        "failed": sorted(numbers - passed),
    }
    apart = len({outcome.row.number for outcome in outcomes} - numbers)
    title = f"fault matrix{f' of {bed.name}' if bed.name else ''}: {len(passed)} of {len(numbers)} rows held" + (
        f", {apart} do not apply" if apart else ""
    )
    columns = ("row", "fault", "required", "within", "worst", "host withheld", "of", "verdict", "note")
    return BenchResult(title, columns, [_shown(outcome) for outcome in outcomes], values)


def _milliseconds(time_s: float | None) -> str:
    return "-" if time_s is None else f"{1e3 * time_s:.0f} ms"


def _shown(outcome: RowOutcome) -> tuple[str, ...]:
    row = outcome.row
    return (
        str(row.number),
        row.fault,
        row.required,
        _milliseconds(outcome.limit_s),
        _milliseconds(outcome.worst_s),
        _milliseconds(outcome.worst_s and outcome.stolen_s),
        str(len(outcome.found)),
        "not run" if outcome.left_out else "held" if outcome.passed else "FAILED",
        outcome.note,
    )


def _values(outcome: RowOutcome) -> dict[str, Any]:
    row = outcome.row
    return {
        "row": row.number,
        "fault": row.fault,
        "required": row.required,
        "limit_s": outcome.limit_s,
        "worst_s": outcome.worst_s,
        "times_s": [found.time_s for found in outcome.found],
        "stolen_s": [found.stolen_s for found in outcome.found],
        "passed": None if outcome.left_out else outcome.passed,
        "note": outcome.note,
    }
