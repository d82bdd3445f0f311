"""Comparison of old and new policy, on the same episodes and in the counterfactual of the run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from testudo_analysis.replay.counterfactual import CounterfactualVariant, HorizonSettings, simulate_from
from testudo_analysis.replay.replayed_team import one_team
from testudo_deploy.contract.contract import Contract
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_hardware.spec import RobotSpec
from testudo_policies.evaluation.evaluation import Evaluation
from testudo_policies.evaluation.evaluation_table import DRIVING
from testudo_policies.evaluation.shares import largest_share, share_interval
from testudo_policies.improve.paired_test import NEEDED, evidence
from testudo_runs.alignment import TeamRecording, prepare_run
from testudo_runs.run_reader import RecordedRun

SLOWER = 1.1  # a policy is worse if its median time exceeds the old one's by more than this factor


@dataclass(frozen=True)
class Comparison:
    """Both policies on the same held-out episodes of one environment."""

    name: str
    old: Evaluation
    new: Evaluation
    differences: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """(E,) in -1 to 1: see `paired_test.differences`."""

    def regressions(self) -> tuple[str, ...]:
        """Return in which respects the new policy is worse.

        Worse is: success below the old 95 % interval, a share of episodes with contacts above the old upper 95 % bound,
        or a median time to success more than a tenth longer.
        """
        old, new, found = self.old, self.new, []
        if new.success < old.success_low:
            found.append(
                f"{self.name}: success {new.success:.3f} is below the old policy's interval "
                f"({old.success_low:.3f} to {old.success_high:.3f})"
            )
        if new.episodes_with_contact / new.episodes > old.contact_rate_high:
            found.append(
                f"{self.name}: contacts in {new.episodes_with_contact} of {new.episodes} episodes, the old "
                f"policy had {old.episodes_with_contact}"
            )
        if new.time_to_success_s > SLOWER * old.time_to_success_s:  # false for NaN
            found.append(
                f"{self.name}: median time to success {new.time_to_success_s:.1f} s, the old policy needed "
                f"{old.time_to_success_s:.1f} s"
            )
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "name": self.name,
            "old": self.old.to_dict(),
            "new": self.new.to_dict(),
            "complaints": list(self.regressions()),
            "evidence": evidence([self.differences]),
        }


BETTER, NOT_WORSE, WORSE = "better", "not worse", "worse"


@dataclass(frozen=True)
class Verdict:
    """Whether the new policy ships: only one that the paired test calls better, and nothing calls worse."""

    regressions: tuple[str, ...]
    evidence: float

    @classmethod
    def of(cls, comparisons: Sequence[Comparison]) -> "Verdict":
        """Return the verdict of comparisons in several environments."""
        regressions = tuple(text for item in comparisons for text in item.regressions())
        return cls(regressions, evidence([item.differences for item in comparisons]))

    @property
    def name(self) -> str:
        """Return what the new policy is."""
        if self.regressions:
            return WORSE
        return BETTER if self.evidence >= NEEDED else NOT_WORSE

    @property
    def text(self) -> str:
        """Return the verdict as a sentence."""
        if self.name == WORSE:
            return "the new policy is worse, so the old one is kept:\n  " + "\n  ".join(self.regressions)
        measured = f"evidence {self.evidence:,.1f}, needed {NEEDED:g}"
        if self.name == BETTER:
            return f"the new policy is better ({measured})"
        return (
            f"the new policy is not worse, but not shown to be better ({measured}), so the old one is kept; more "
            "episodes, as --episodes 2000 with another --out, can show a smaller difference"
        )


def comparison_table(comparisons: tuple[Comparison, ...]) -> Table:
    """Return the table of both policies in all comparisons."""
    table = Table(title="Old policy against new, on the same held-out episodes")
    table.add_column("")
    for comparison in comparisons:
        table.add_column(f"old, {comparison.name}")
        table.add_column(f"new, {comparison.name}")
    for name, cell in _ROWS.items():
        table.add_row(name, *(cell(result) for item in comparisons for result in (item.old, item.new)))
    return table


def counterfactual_table(values: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return the table of both policies in the counterfactual of the run."""
    table = Table(
        "", *values, title="Counterfactual of the run: continued from its own states, with all layers of the shield"
    )
    rows: Mapping[str, Any] = {
        "worlds": lambda one: f"{one['worlds']}",
        "arrived": lambda one: f"{one['arrived'] / one['worlds']:.3f}",
        "  Wilson interval, 95 %": lambda one: f"{one['low']:.3f} to {one['high']:.3f}",
        "worlds with a contact": lambda one: f"{one['touched']}",
        r"median time \[s]": lambda one: "" if one["arrival_s"] is None else f"{one['arrival_s']:.1f}",
    }
    for name, cell in rows.items():
        table.add_row(name, *(cell(one) for one in values.values()))
    return table


_ROWS: Mapping[str, Any] = {
    "episodes": lambda r: f"{r.episodes:,}",
    "success": lambda r: f"{r.success:.3f}",
    "  Wilson interval, 95 %": lambda r: f"{r.success_low:.3f} to {r.success_high:.3f}",
    **DRIVING,
}


_MOMENTS = 4
_DRAWS = 16


@dataclass(frozen=True)
class CounterfactualResult:
    """Outcome of one policy, over the worlds from all start times."""

    worlds: int
    arrived: int
    low: float
    high: float  # 95 % Wilson interval of the share of worlds that arrived
    touched: int
    touched_high: float  # upper 95 % bound of the share of worlds with a contact
    arrival_s: float | None  # median [s] over the start times of the median arrival time; None if no world arrived

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return dict(vars(self))


def counterfactual(
    run: RecordedRun, contract: Contract, spec: RobotSpec, policy: Path, horizon_s: float, tell: Callable[[float], None]
) -> CounterfactualResult:
    """Simulate the identified team with a policy from states of the run.

    Args:
        run: run with a policy artefact.
        contract: contract of that policy, for arena and shield.
        spec: the identified robot.
        policy: artefact to simulate.
        horizon_s: simulated time [s].
        tell: called with the completed fraction.

    Raises:
        TestudoError: no time has poses of all robots, or the policy is for other robots.
    """
    recording = one_team(replace(prepare_run(run), contract=contract))
    recording = replace(recording, robots=tuple(replace(robot, spec=spec) for robot in recording.robots))
    variant = CounterfactualVariant("improved", PolicyArtefact.load(policy), shielded=True)
    found = simulate_from(
        recording, _start_times(recording), variant, HorizonSettings(horizon_s, _DRAWS), tell
    ).outcomes
    worlds, arrived, touched = (
        sum(values) for values in zip(*((one.worlds, one.arrived or 0, one.touched) for one in found), strict=True)
    )
    times = [one.arrival_s for one in found if one.arrival_s is not None]
    return CounterfactualResult(
        worlds,
        arrived,
        *share_interval(arrived, worlds),
        touched,
        largest_share(touched, worlds),
        float(np.median(times)) if times else None,
    )


def counterfactual_regressions(old: CounterfactualResult, new: CounterfactualResult) -> tuple[str, ...]:
    """Return in which respects the new policy is worse; see `Comparison.regressions`."""
    found = []
    if new.arrived / new.worlds < old.low:
        found.append(
            f"counterfactual of the run: {new.arrived} of {new.worlds} worlds arrive, with the old policy "
            f"{old.arrived} of {old.worlds}"
        )
    if new.touched / new.worlds > old.touched_high:
        found.append(
            f"counterfactual of the run: robots touch in {new.touched} of {new.worlds} worlds, with the old "
            f"policy in {old.touched}"
        )
    return tuple(found)


def _start_times(recording: TeamRecording) -> list[float]:
    """Return times in the first three quarters of the span with poses of all robots."""
    low, high = recording.span_s
    return [float(time_s) for time_s in low + (high - low) * np.arange(_MOMENTS) / _MOMENTS]
