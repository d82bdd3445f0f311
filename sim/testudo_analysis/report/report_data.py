"""Contents of a report; every section is optional."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from testudo_analysis.replay import InputMutation, Reinference
from testudo_analysis.replay.open_loop import OpenLoopGap
from testudo_deploy.contract.contract import Contract
from testudo_runs.run_reader import RecordedRun


@dataclass(frozen=True)
class ReportVerdict:
    """One row of the table of checks."""

    name: str
    value: str  # measured value, as text
    bar: str  # required value, as text; empty without one
    passed: bool | None  # None without a required value
    is_timing: bool = False  # the value depends on the machine, so it does not count for the overall verdict


@dataclass(frozen=True)
class TrainingSection:
    """Training of the policy."""

    rows: tuple[Mapping[str, float], ...]  # metrics of each update by name, from `metrics.jsonl`
    seconds: float  # training time [s] without compilation
    compile_s: float
    facts: Mapping[str, str] = field(default_factory=dict)  # configuration values to show, by name

    @classmethod
    def read(cls, metrics: Path, compile_s: float = 0.0, facts: Mapping[str, str] | None = None) -> Self:
        """Read the metrics of a training run; an incomplete last line is skipped."""
        rows = []
        for line in metrics.read_text(encoding="utf-8").splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:
                break
        seconds = float(rows[-1].get("seconds", 0.0)) if rows else 0.0
        return cls(tuple(rows), seconds, compile_s, facts or {})


@dataclass(frozen=True)
class EvaluationRow:
    """Evaluation on held-out episodes of one team size; intervals are 95 %."""

    team_size: int
    episodes: int
    success: float
    success_low: float
    success_high: float
    contacts: int
    episodes_with_contact: int
    contact_rate_high: float
    minimum_separation_m: float | None
    intervention_rate: float
    deadlocks: int
    time_to_success_s: float | None
    crossing_share: float | None = None
    success_bar: float | None = None  # required success; None without one
    layers: str = "1"  # active layers of the shield: `1`, `all` or `none`

    @property
    def team(self) -> str:
        """Return the team for a table: its size, and the layers if they are others than layer 1."""
        return f"{self.team_size} robots" + {"1": "", "all": ", all layers"}.get(self.layers, ", no shield")

    @classmethod
    def from_values(cls, values: Mapping[str, Any], success_bar: float | None = None) -> Self:
        """Read an evaluation's values (`testudo evaluate --json`); further keys are ignored."""
        return _picked(cls, values, success_bar=success_bar)


@dataclass(frozen=True)
class ParitySection:
    """Deviation of the exported graph from the JAX function."""

    tolerance: float
    inputs: int
    command_error: float
    hidden_error: float
    loop_steps: int
    loops: int
    teacher_forced_error: float
    free_running_drift: float
    max_error: float

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Self:
        """Read the parity of a contract (`Contract.parity`); further keys are ignored."""
        return _picked(cls, values)


@dataclass(frozen=True)
class FleetSection:
    """A recorded run of a fleet."""

    run: RecordedRun
    contract: Contract
    tolerance_m: float = 0.1  # distance to the goal that counts as arrived


@dataclass(frozen=True)
class ReinferenceSection:
    """Re-inference of the run, and its negative control."""

    result: Reinference
    altered: tuple[InputMutation, ...] = ()  # altered inputs (`mutations_detected`); re-inference must detect each


@dataclass(frozen=True)
class FlownRun:
    """Result of one of several runs over ROS 2; lengths [m], times [s]."""

    seed: int  # seed of the fleet's starts and of the plant
    outcome: str
    time_s: float  # time until the last arrival
    contacts: int
    separation_m: float  # least distance of two robot centres, over all physics steps of the plant
    control_points_m: float
    """Least distance of two control points, as the robots estimated them, in the shield's metric."""
    kept_m: float  # separation of control points that the shield keeps
    late_ticks: int
    ticks: int
    load: float  # one-minute load average of the machine at the end of the run

    @property
    def short_m(self) -> float:
        """Return by how much [m] the separation of control points was violated; 0 without a violation."""
        return max(0.0, self.kept_m - self.control_points_m)


@dataclass(frozen=True)
class ReportData:
    """All contents of a report."""

    title: str
    subtitle: str = ""
    wall_s: float | None = None  # wall time [s] of the whole job
    wall_bar_s: float | None = None
    training: TrainingSection | None = None
    training_bar_s: float | None = None  # required time [s] of training with compilation
    evaluation: tuple[EvaluationRow, ...] = ()
    parity: ParitySection | None = None
    fleet: FleetSection | None = None
    runs: tuple[FlownRun, ...] = ()  # several runs over ROS 2; the first one is `fleet`
    reinference: ReinferenceSection | None = None
    gap: OpenLoopGap | None = None
    contract: Contract | None = None  # contract of the policy, for margins and timing
    versions: Mapping[str, str] = field(default_factory=dict)  # software and machine, by name
    hashes: Mapping[str, str] = field(default_factory=dict)  # hashes by file name
    next_steps: tuple[tuple[str, str], ...] = ()  # next steps: commands and their purpose


def _picked(kind: type[Any], values: Mapping[str, Any], **more: Any) -> Any:
    known = {item.name for item in fields(kind)}
    return kind(**{name: value for name, value in values.items() if name in known}, **more)
