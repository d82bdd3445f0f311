"""`testudo bench faults`: the fault matrix, measured."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testudo_bench.fault_matrix.matrix_runner import ROWS, RowOutcome, run_matrix
from testudo_deploy.bench.result import BenchResult

_REPEATS, _QUICK = 5, 1


def bench_faults(*, repeats: int = _REPEATS, quick: bool = False, say: Callable[[str], None] = print) -> BenchResult:
    """Inject every fault of the matrix over DDS into three robots on the MuJoCo plant, and time the brake.

    Times run from the fault to the brake command on the actuator topic; where the guard itself is dead, to the moment
    since which the driver brakes. What the host of a virtual machine took from its cores meanwhile stands beside the
    longest of them, in steps of 10 ms over all cores; it excuses nothing.

    Args:
        repeats: repetitions of each row; the worst counts.
        quick: one repetition of each.
        say: is told what goes on.
    """
    outcomes: list[RowOutcome] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            outcomes.extend(run_matrix(ROWS, _QUICK if quick else repeats, Path(folder), say))
        except KeyboardInterrupt:
            say("interrupted: what was done is shown")
    outcomes.sort(key=lambda outcome: outcome.row.number)
    numbers = {outcome.row.number for outcome in outcomes}
    passed = {
        number for number in numbers if all(outcome.passed for outcome in outcomes if outcome.row.number == number)
    }
    values = {
        "rows": [_values(outcome) for outcome in outcomes],
        "numbers": len(numbers),
        "passed": len(passed),
        "failed": sorted(numbers - passed),
    }
    title = f"fault matrix: {len(passed)} of {len(numbers)} rows held"
    columns = ("row", "fault", "required", "within", "worst", "host took", "of", "verdict", "note")
    return BenchResult(title, columns, [_shown(outcome) for outcome in outcomes], values)


def _milliseconds(time_s: float | None) -> str:
    return "-" if time_s is None else f"{1e3 * time_s:.0f} ms"


def _shown(outcome: RowOutcome) -> tuple[str, ...]:
    row = outcome.row
    return (
        str(row.number),
        row.fault,
        row.required,
        _milliseconds(row.limit_s),
        _milliseconds(outcome.worst_s),
        _milliseconds(outcome.worst_s and outcome.stolen_s),
        str(len(outcome.found)),
        "held" if outcome.passed else "FAILED",
        outcome.note,
    )


def _values(outcome: RowOutcome) -> dict[str, Any]:
    row = outcome.row
    return {
        "row": row.number,
        "fault": row.fault,
        "required": row.required,
        "limit_s": row.limit_s,
        "worst_s": outcome.worst_s,
        "times_s": [found.time_s for found in outcome.found],
        "stolen_s": [found.stolen_s for found in outcome.found],
        "passed": outcome.passed,
        "note": outcome.note,
    }
