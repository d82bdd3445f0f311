"""What the repetitions of one row of the fault matrix found: its verdict, its table row, and its entry in a file."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from testudo_bench.fault_matrix.harness.fault_case import FaultFinding, FaultRow

COLUMNS = ("row", "fault", "required", "within", "worst", "host withheld", "of", "verdict", "note")
_NO_RESULT = "the machine stalled at every repetition"


@dataclass(frozen=True)
class RowOutcome:
    """All repetitions of one row that came to a result."""

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
    def verdict(self) -> str:
        """Return held, LATE for the right reaction after its time, FAILED, stalled without a result, or not run."""
        if self.left_out:
            return "not run"
        if not self.found:
            return "stalled"
        if self.passed:
            return "held"
        return "LATE" if all(one.passed for one in self.found) and self.worst_s is not None else "FAILED"

    @property
    def note(self) -> str:
        """Return the note of the first failed repetition, else of the last one."""
        if not self.found:
            return self.left_out or _NO_RESULT
        return next((one.note for one in self.found if not one.passed), self.found[-1].note)

    def shown(self) -> tuple[str, ...]:
        """Return its row of the table."""
        return (
            str(self.row.number),
            self.row.fault,
            self.row.required,
            _milliseconds(self.limit_s),
            _milliseconds(self.worst_s),
            _milliseconds(self.worst_s and self.stolen_s),
            str(len(self.found)),
            self.verdict,
            self.note,
        )

    def values(self) -> dict[str, Any]:
        """Return its entry, JSON-ready."""
        return {
            "row": self.row.number,
            "inject": self.row.inject.__name__,
            "fault": self.row.fault,
            "required": self.row.required,
            "limit_s": self.limit_s,
            "worst_s": self.worst_s,
            "times_s": [found.time_s for found in self.found],
            "stolen_s": [found.stolen_s for found in self.found],
            "passed": None if self.left_out else self.passed,
            "verdict": self.verdict,
            "note": self.note,
            "found": [asdict(found) for found in self.found],
        }


def matrix_values(robot: str, outcomes: Sequence[RowOutcome]) -> dict[str, Any]:
    """Return the entries of rows in their order, and how many numbers of rows held, JSON-ready."""
    ordered = sorted(outcomes, key=lambda outcome: outcome.row.number)
    run = [outcome for outcome in ordered if not outcome.left_out]
    numbers = {outcome.row.number for outcome in run}
    failed = {outcome.row.number for outcome in run if not outcome.passed}
    return {
        "robot": robot,
        "rows": [outcome.values() for outcome in ordered],
        "numbers": len(numbers),
        "passed": len(numbers - failed),
        "failed": sorted(failed),
        "not_run": sorted({outcome.row.number for outcome in ordered} - numbers),
    }


def _milliseconds(time_s: float | None) -> str:
    return "-" if time_s is None else f"{1e3 * time_s:.0f} ms"
