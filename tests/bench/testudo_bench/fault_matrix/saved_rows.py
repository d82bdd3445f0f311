"""Outcomes of rows in the JSON file of `testudo bench faults`: the same command goes on where it was stopped."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import testudo_bench.emulated
import testudo_bench.fault_matrix
import testudo_deploy
import testudo_hardware
import testudo_nodes
import testudo_plant
import testudo_sim
from testudo_bench.fault_matrix.harness.fault_case import FaultFinding, FaultRow
from testudo_bench.fault_matrix.harness.fleet_bed import FleetBed
from testudo_bench.fault_matrix.row_outcome import RowOutcome, matrix_values
from testudo_deploy.files.atomic_files import set_aside, write_whole
from testudo_deploy.files.package_hash import package_hash
from testudo_hardware.errors import TestudoError

_SOURCES = (
    testudo_deploy,
    testudo_hardware,
    testudo_nodes,
    testudo_plant,
    testudo_sim,
    testudo_bench.emulated,
    testudo_bench.fault_matrix,
)


def matrix_hash() -> str:
    """Return the begin of a hash of what a run of the matrix depends on: nodes, robots, profiles and faults."""
    return package_hash(_SOURCES, (".py", ".toml"))


@dataclass
class SavedRows:
    """Outcomes of rows, also of earlier runs; written at each new one if there is a file."""

    path: Path | None
    bed: FleetBed
    source: str
    outcomes: dict[tuple[int, str], RowOutcome] = field(default_factory=dict)
    began_anew: str = ""
    """Why what the file held before is not used, and where it is now."""

    def missing(self, rows: Sequence[FaultRow], repetitions: int) -> list[FaultRow]:
        """Return the rows without so many results; one on which the machine stalled is tried again."""
        found = {key: len(outcome.found) for key, outcome in self.outcomes.items()}
        return [row for row in rows if found.get(_key(row), 0) < repetitions]

    def add(self, outcome: RowOutcome) -> None:
        """Take and write the outcome of a row."""
        self.outcomes[_key(outcome.row)] = outcome
        if self.path is not None:
            write_whole(self.path, json.dumps(self.values()) + "\n")

    def values(self) -> dict[str, Any]:
        """Return what the file holds, JSON-ready."""
        return {**matrix_values(self.bed.name, list(self.outcomes.values())), "source": self.source}


def read_saved_rows(path: Path | None, bed: FleetBed, rows: Sequence[FaultRow]) -> SavedRows:
    """Return the outcomes in a file; none without a file, and none of another robot or other sources.

    A file of those is kept beside, under its name and `.before`.

    Raises:
        TestudoError: it is no file of this benchmark.
    """
    saved = SavedRows(path, bed, matrix_hash())
    if path is None or not path.exists():
        return saved
    by_key = {_key(row): row for row in rows}
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        robot, source = values["robot"], values["source"]
        entries = {(one["row"], one["inject"]): one for one in values["rows"]}
        found = {key: tuple(FaultFinding(**each) for each in one["found"]) for key, one in entries.items()}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TestudoError(f"--json {path}: is no output of `testudo bench faults`; give another file") from error
    if (robot, source) != (bed.name, saved.source):
        what = f"robot {robot or 'our own'}" if robot != bed.name else f"other sources ({source})"
        kept = set_aside(path)
        saved.began_anew = f"{path} held rows of {what}, which are in {kept} now: begun anew"
        return saved
    for key in by_key.keys() & found.keys():
        row, why = by_key[key], "" if found[key] else entries[key]["note"]
        left_out = why if entries[key]["passed"] is None else ""
        saved.outcomes[key] = RowOutcome(row, found[key], row.limit_s(bed), left_out)
    return saved


def _key(row: FaultRow) -> tuple[int, str]:
    return row.number, row.inject.__name__
