"""What a report can hold. Every section is optional: a report shows what there is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from testudo_analysis.replay import InputMutation, OpenLoopGap, Reinference
from testudo_deploy.contract.contract import Contract
from testudo_runs.run_reader import RecordedRun


@dataclass(frozen=True)
class ReportVerdict:
    """One line of the headline table."""

    name: str
    value: str
    """As it is shown."""
    bar: str
    """What is asked for, as it is shown; empty if nothing is."""
    passed: bool | None
    """None where nothing is asked for."""
    is_timing: bool = False
    """Depends on the machine: shown, but no part of the overall verdict."""


@dataclass(frozen=True)
class TrainingSection:
    """How the policy was trained."""

    rows: tuple[Mapping[str, float], ...]
    """`metrics.jsonl`: one mapping for each update, by metric name."""
    seconds: float
    """Without compilation."""
    compile_s: float
    facts: Mapping[str, str] = field(default_factory=dict)
    """Configuration that is worth a line, by name."""

    @classmethod
    def read(cls, metrics: Path, compile_s: float = 0.0, facts: Mapping[str, str] | None = None) -> Self:
        """Read the metrics of a training run; a last line that was cut off is left out."""
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
    """Held-out episodes of one team size; intervals are of 95 %."""

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
    success_bar: float | None = None
    """Success that is asked for; None where none is."""

    @classmethod
    def from_values(cls, values: Mapping[str, Any], success_bar: float | None = None) -> Self:
        """Read an evaluation's values (`testudo evaluate --json`); further keys are ignored."""
        return _picked(cls, values, success_bar=success_bar)


@dataclass(frozen=True)
class ParitySection:
    """How far the exported graph is from the JAX function."""

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
    film: Path | None = None
    """A .gif, .webp or .png of it."""
    view: Path | None = None
    """A page of it, in the folder of the report: `rendering.page`."""
    tolerance_m: float = 0.1
    """Distance to the goal that counts as arrived."""


@dataclass(frozen=True)
class ReinferenceSection:
    """Re-inference of the run, and its negative control."""

    result: Reinference
    altered: tuple[InputMutation, ...] = ()
    """`alterations_caught`: each must be caught."""


@dataclass(frozen=True)
class FlownRun:
    """What came of one of several runs over ROS 2; lengths m, times s."""

    seed: int
    """Of the fleet's start and of the plant."""
    outcome: str
    time_s: float
    """Until the last robot had arrived."""
    contacts: int
    separation_m: float
    """Least distance of the centres of two robots, as the plant saw it at every physics step."""
    control_points_m: float
    """Least distance of the control points of two robots, as they knew them, in the shield's measure."""
    kept_m: float
    """What the shield keeps between control points."""
    late_ticks: int
    ticks: int
    load: float
    """Of the machine when the run ended: how many processes wanted a core, mean of a minute."""

    @property
    def short_m(self) -> float:
        """Return by how much control points came nearer than the shield keeps them; 0 if they did not."""
        return max(0.0, self.kept_m - self.control_points_m)


@dataclass(frozen=True)
class ReportData:
    """Everything that a report shows."""

    title: str
    subtitle: str = ""
    wall_s: float | None = None
    """Time that the whole job took."""
    wall_bar_s: float | None = None
    training: TrainingSection | None = None
    training_bar_s: float | None = None
    """Time for training with compilation that is asked for."""
    evaluation: tuple[EvaluationRow, ...] = ()
    parity: ParitySection | None = None
    fleet: FleetSection | None = None
    runs: tuple[FlownRun, ...] = ()
    """Several runs over ROS 2, of which `fleet` is the first."""
    reinference: ReinferenceSection | None = None
    gap: OpenLoopGap | None = None
    contract: Contract | None = None
    """Of the policy: margins, timing, hashes."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Software and machine, by name."""
    hashes: Mapping[str, str] = field(default_factory=dict)
    """Files and what they must be, by name."""
    next_steps: tuple[tuple[str, str], ...] = ()
    """What to do next: a command and what it is for."""


def _picked(kind: type[Any], values: Mapping[str, Any], **more: Any) -> Any:
    known = {item.name for item in fields(kind)}
    return kind(**{name: value for name, value in values.items() if name in known}, **more)
