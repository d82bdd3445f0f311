"""The file of a study: what is done is kept in it, and not done again."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from testudo_bench.learning.study_arms import Budget, Run
from testudo_bench.learning.team_cost import Cost
from testudo_deploy.files.atomic_files import write_whole
from testudo_hardware.errors import TestudoError


@dataclass
class SavedResults:
    """What has been measured under a budget; grows, and is written after each step."""

    budget: Budget
    file: Path | None = None
    runs: list[Run] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)

    @classmethod
    def open(cls, budget: Budget, file: Path | None) -> SavedResults:
        """Return what the file holds of a study with this budget; empty without a file.

        Raises:
            TestudoError: the file is something else, or of another budget (the number of seeds may differ).
        """
        if file is None or not file.exists():
            return cls(budget, file)
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
            found, runs = values["budget"], [Run.from_dict(run) for run in values["runs"]]
            costs = [Cost(**cost) for cost in values["costs"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TestudoError(
                f"--json {file}: holds no study of `bench learning` that could go on; give another file"
            ) from error
        for name, expected in asdict(budget).items():
            if name != "seeds" and found.get(name) != expected:
                raise TestudoError(
                    f"--json {file}: budget.{name}: found {found.get(name)!r}, expected {expected!r}; "
                    "give another file, or the options of that study"
                )
        return cls(budget, file, [run for run in runs if run.seed < budget.seeds], costs)

    def add_run(self, run: Run) -> None:
        """Keep a training."""
        self.runs.append(run)
        self._write()

    def add_cost(self, cost: Cost) -> None:
        """Keep the cost of a team size."""
        self.costs.append(cost)
        self._write()

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "budget": asdict(self.budget),
            "runs": [asdict(run) for run in self.runs],
            "costs": [asdict(cost) for cost in self.costs],
        }

    def _write(self) -> None:
        if self.file is None:
            return
        try:
            write_whole(self.file, json.dumps(self.to_dict(), indent=2) + "\n")
        except OSError as error:
            raise TestudoError(f"--json {self.file}: cannot be written: {error.strerror}") from error
