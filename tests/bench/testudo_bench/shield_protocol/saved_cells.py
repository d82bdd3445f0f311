"""Results of cells in the JSON file of `testudo bench shield`: the same command goes on where it was stopped."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import testudo_bench.shield_protocol
import testudo_deploy
import testudo_hardware
import testudo_policies
import testudo_sim
from testudo_bench.shield_protocol.cell_runner import Job, Tables
from testudo_deploy.files.atomic_files import set_aside, write_whole
from testudo_deploy.files.package_hash import package_hash
from testudo_hardware.errors import TestudoError

_SOURCES = (
    testudo_deploy,
    testudo_hardware,
    testudo_policies,
    testudo_sim,
    testudo_bench.shield_protocol,
)
_DIGITS = 12


def protocol_hash(policy: Path | None) -> str:
    """Return the begin of a hash of what cells depend on: shield, simulation, robot files, and the policy if any."""
    sources = package_hash(_SOURCES, (".py", ".toml"))
    if policy is None:
        return sources
    digest = hashlib.sha256()
    files = [policy] if policy.is_file() else sorted(path for path in policy.rglob("*") if path.is_file())
    for path in files:
        digest.update(path.read_bytes())
    return f"{sources} {digest.hexdigest()[:_DIGITS]}"


@dataclass
class SavedCells:
    """Figures of whole cells, also of earlier runs; written at each new one if there is a file."""

    path: Path | None
    source: str
    cells: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    """By tier and name of the cell."""
    seconds: float = 0.0
    compile_s: float = 0.0
    robot_ticks: float = 0.0
    """Of the earlier runs: their time, that of their compilations, and the ticks that they simulated."""
    began_anew: str = ""
    """Why what the file held before is not used, and where it is now."""

    def has(self, job: Job) -> bool:
        """Return whether all episodes of a cell are there."""
        found = self.cells.get((job.choice.physics, job.cell.name))
        return found is not None and found["episodes"] == job.episodes

    def missing(self, jobs: Sequence[Job]) -> list[Job]:
        """Return the jobs that are still to do."""
        return [job for job in jobs if not self.has(job)]

    def add(self, figures: Mapping[str, Any]) -> None:
        """Take the figures of a whole cell."""
        self.cells[figures["tier"], figures["cell"]] = dict(figures)

    def write(self, seconds: float, tables: Tables) -> None:
        """Write the file whole, if there is to be one; ``seconds`` and ``tables`` are of all runs."""
        if self.path is not None:
            values = {"source": self.source, "seconds": seconds, "compile_s": tables.compile_s}
            values |= {"robot_ticks": tables.robot_ticks, "cells": list(self.cells.values())}
            write_whole(self.path, json.dumps(values) + "\n")


def read_saved_cells(path: Path | None, policy: Path | None) -> SavedCells:
    """Return the cells in a file; none without a file, and none of other sources or another policy.

    A file of those is kept beside, under its name and `.before`.

    Raises:
        TestudoError: it is no file of this benchmark.
    """
    saved = SavedCells(path, protocol_hash(policy))
    if path is None or not path.exists():
        return saved
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        source = values["source"]
        spent = {key: float(values[key]) for key in ("seconds", "compile_s", "robot_ticks")}
        cells = {(one["tier"], one["cell"]): one for one in values["cells"] if one["episodes"] > 0}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TestudoError(f"--json {path}: is no output of `testudo bench shield`; give another file") from error
    if source != saved.source:
        kept = set_aside(path)
        saved.began_anew = f"{path} held cells of other sources ({source}), which are in {kept} now: begun anew"
        return saved
    return replace(saved, cells=cells, **spent)
