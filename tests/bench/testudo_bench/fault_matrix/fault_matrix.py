"""Runs rows of the fault matrix, each in the fleet that it needs."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
from testudo_bench.fault_matrix.harness.fleet_bed import OWN_BED, FleetBed
from testudo_bench.fault_matrix.harness.fleet_harness import FleetHarness, HarnessError, StalledError, write_fleet
from testudo_bench.fault_matrix.row_outcome import RowOutcome

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
_ORDER = ("none", "driving", "tasked", "tracked", "own", "pursued", "weak", "recorded", "run")
"""Kinds of fleets; first those that many rows share, which give most results in the least time."""
_ONCE = ("none", "own", "run", "weak", "pursued", "recorded")  # Fleets that are started anew for each repetition


_RECORD_S = 3.0
TRIES = 10  # attempts at one repetition while the machine stalls before the injection


def run_matrix(
    rows: Sequence[FaultRow], repetitions: int, folder: Path, say: Callable[[str], None], bed: FleetBed = OWN_BED
) -> Iterator[RowOutcome]:
    """Yield the outcome of each row, ordered by the fleet that it needs; ``folder`` is empty."""
    left_out = [row for row in rows if bed is not OWN_BED and row.not_emulated]
    for row in left_out:
        yield RowOutcome(row, (), row.limit_s(bed), row.not_emulated)
    for kind in _ORDER:
        chosen = [row for row in rows if row.fleet == kind and row not in left_out]
        if not chosen:
            continue
        if kind in _ONCE:
            for row in chosen:
                say(f"{row.number}: {row.fault}")
                places = (folder / f"{kind}_{row.number}_{row.inject.__name__}_{k}" for k in range(repetitions))
                found = (_alone(row, place, bed) for place in places)
                yield RowOutcome(row, tuple(one for one in found if one is not None), row.limit_s(bed))
            continue
        with _harness(kind, folder / kind, bed) as harness:
            for row in chosen:
                say(f"{row.number}: {row.fault}")
                yield RowOutcome(row, tuple(_repeated(row, harness, repetitions)), row.limit_s(bed))


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


def _alone(row: FaultRow, folder: Path, bed: FleetBed) -> FaultFinding | None:
    """Return one repetition of a row that needs its own fleet, or no fleet; None if the machine stalls every time."""
    if row.fleet == "none":
        return row.inject(folder)
    if row.fleet == "own":
        found = (row.inject(folder / str(attempt), bed) for attempt in range(TRIES))
        return next((one for one in found if one is not None), None)
    for attempt in range(TRIES):
        here = folder / str(attempt)
        with _harness(row.fleet, here, bed) as harness:  # a new one: the fault persists
            found = _record(harness) if row.fleet == "run" else once(row, harness)
        if found is not None:
            return row.inject(here / "run") or found if row.fleet == "run" else found
    return None


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
