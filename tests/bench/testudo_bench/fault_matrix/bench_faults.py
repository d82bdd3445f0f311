"""`testudo bench faults`: the rows of the fault matrix, or some of them, on our own robots or on those of a vendor."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from testudo_bench.fault_matrix.fault_matrix import ROWS, run_matrix
from testudo_bench.fault_matrix.harness.fault_case import FaultRow
from testudo_bench.fault_matrix.harness.fleet_bed import OWN_BED, vendor_bed
from testudo_bench.fault_matrix.row_outcome import COLUMNS
from testudo_bench.fault_matrix.saved_rows import read_saved_rows
from testudo_deploy.commands.report import BenchResult
from testudo_hardware.errors import TestudoError

_REPEATS, _QUICK = 5, 1


def bench_faults(
    *,
    robot: str | None = None,
    rows: str | None = None,
    repeats: int = _REPEATS,
    quick: bool = False,
    saved: Path | None = None,
    say: Callable[[str], None] = print,
) -> BenchResult:
    """Inject every fault of the matrix over DDS into three robots on the MuJoCo plant, and time the brake.

    With a vendor's robot the plant emulates its driver: topics, types, rates, quality of service, noise, ages,
    time-outs and quirks of its link profile. Times are those of its robot file, and rows that do not apply say why.

    Times run from the fault to the brake command on the actuator topic; with a dead guard, to the brake of the driver.
    Beside the longest time stands the processor time that the host of a virtual machine withheld meanwhile, in steps
    of 10 ms over all cores; it changes no verdict.

    Each row is in the file as soon as it has its verdict. Ctrl-C shows those that have one; the same command goes on
    with the others, and with those on which the machine stalled, unless a source has changed.

    Args:
        robot: a vendor's robot, by a case of `testudo bench emulated`; our own by default.
        rows: numbers of rows, as `9,25,36-38`; all by default.
        repeats: repetitions of each row; the longest time counts.
        quick: one repetition of each.
        saved: JSON file with the outcome of each row, also of earlier runs.
        say: receives progress messages.

    Raises:
        TestudoError: no such robot or row, or the file is of another benchmark.
    """
    bed, repetitions, ended = OWN_BED if robot is None else vendor_bed(robot), _QUICK if quick else repeats, ""
    chosen = _chosen(rows)
    found = read_saved_rows(saved, bed, ROWS)
    missing = found.missing(chosen, repetitions)
    with tempfile.TemporaryDirectory() as folder:
        done = len(chosen) - len(missing)

        def progress(text: str) -> None:
            say(f"{done} of {len(chosen)} faults; row {text}")

        try:
            for outcome in run_matrix(missing, repetitions, Path(folder), progress, bed):
                found.add(outcome)
                done += 1
        except KeyboardInterrupt:
            ended = "; interrupted, the same command goes on" if saved else "; interrupted"
    values = found.values()
    apart = len(values["not_run"])
    title = (
        f"fault matrix{f' of {bed.name}' if bed.name else ''}: {values['passed']} of {values['numbers']} rows held"
        + (f", {apart} do not apply" if apart else "")
        + ended
        + (f"; {found.began_anew}" if found.began_anew else "")
    )
    ordered = sorted(found.outcomes.values(), key=lambda outcome: outcome.row.number)
    return BenchResult(title, COLUMNS, [outcome.shown() for outcome in ordered], values)


def _chosen(text: str | None) -> list[FaultRow]:
    """Return the rows whose numbers a text gives.

    Raises:
        TestudoError: it is no list of numbers and ranges, or there is no such row.
    """
    if text is None:
        return list(ROWS)
    known, numbers = {row.number for row in ROWS}, set[int]()
    for part in text.split(","):
        first, _, last = (word.strip() for word in part.partition("-"))
        if not first.isdecimal() or not (last or first).isdecimal() or int(last or first) < int(first):
            raise TestudoError(f"testudo bench faults: --rows: found {part!r}, expected numbers as 9,25,36-38")
        numbers |= set(range(int(first), int(last or first) + 1))
    if numbers - known:
        lacking = ", ".join(map(str, sorted(numbers - known)))
        raise TestudoError(f"testudo bench faults: --rows: found {lacking}, expected {min(known)} to {max(known)}")
    return [row for row in ROWS if row.number in numbers]
