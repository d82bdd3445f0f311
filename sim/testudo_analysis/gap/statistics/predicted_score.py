"""What a run scored, against what the policy's file predicted; for other runs, why there is nothing to compare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from testudo_analysis.report.fleet_summary import summarise_fleet
from testudo_analysis.report.report_data import FleetSection
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.launch.run_folder import FLEET_FILE
from testudo_hardware.errors import TestudoError
from testudo_runs.recording.recording import Recording
from testudo_runs.recording.write import IMPORTED
from testudo_runs.run_reader import RecordedRun, read_run

_NEEDED = {"success", "success_low", "success_high", "contacts", "episodes", "intervention_rate"}


@dataclass(frozen=True)
class ScoreRow:
    """One figure, predicted and real."""

    name: str
    predicted: str
    real: str
    agrees: bool | None
    """None where one run can neither bear it out nor refute it."""


@dataclass(frozen=True)
class ScoreComparison:
    """Predicted against real score of a run."""

    rows: tuple[ScoreRow, ...]
    note: str
    """Of which episodes the prediction is, or why there is none."""


def score(recording: Recording) -> ScoreComparison:
    """Return the evaluation in the policy's file beside what happened."""
    if (
        recording.info.get("kind") == IMPORTED
        or recording.folder is None
        or not (recording.folder / FLEET_FILE).is_file()
    ):
        return ScoreComparison(
            (), "The run holds no policy, so nothing predicted a score: it was imported, not recorded by `testudo up`."
        )
    try:
        run = read_run(recording.folder)
        contract = PolicyArtefact.load(run.policy_path, sha256=run.policy_sha256).contract
    except TestudoError as error:
        return ScoreComparison((), f"The run's policy cannot be read, so nothing tells what it was to score: {error}")
    return score_of(run, contract, contract.evaluation)


def score_of(run: RecordedRun, contract: Any, evaluation: Mapping[str, Any]) -> ScoreComparison:
    """Return what happened beside an evaluation by team size, as a contract holds it."""
    section = FleetSection(run, contract)
    real = summarise_fleet(section)
    known = [size for size, values in evaluation.items() if size.isdecimal() and set(values) >= _NEEDED]
    if not known:
        return ScoreComparison(
            _real_only(real),
            "The policy's file holds no evaluation by team size, so nothing predicted a "
            "score: run `testudo evaluate --json` before `testudo export`.",
        )
    sizes = sorted(known, key=lambda size: (abs(int(size) - len(run.robots)), int(size)))
    predicted = evaluation[sizes[0]]
    return ScoreComparison(
        (*_outcome_rows(real, predicted), *_motion_rows(real, predicted)),
        f"Predicted: {predicted['episodes']} held-out episodes of {sizes[0]} robots in "
        "simulation. One run bears a rate out only if it is near 0 or 1.",
    )


def _outcome_rows(real: Any, predicted: Mapping[str, Any]) -> list[ScoreRow]:
    """Compare success and contacts."""
    success = real.arrived == len(real.robots) and real.contacts in (0, None)
    chance = float(predicted["success"])
    return [
        ScoreRow(
            "success",
            f"{100 * chance:.1f} % ({100 * predicted['success_low']:.1f} to {100 * predicted['success_high']:.1f})",
            f"{'yes' if success else 'no'}: {real.arrived} of {len(real.robots)} arrived",
            True if success and chance >= 0.5 else False if not success and chance >= 0.95 else None,
        ),
        ScoreRow(
            "contacts",
            f"{predicted['contacts']} in {predicted['episodes']} episodes",
            "not recorded" if real.contacts is None else str(real.contacts),
            None if real.contacts is None else real.contacts == 0 or predicted["contacts"] > 0,
        ),
    ]


def _motion_rows(real: Any, predicted: Mapping[str, Any]) -> list[ScoreRow]:
    """Compare least distance [m], time [s] and the share of ticks in which the shield acts."""
    rows: list[ScoreRow] = []
    least, first = predicted.get("minimum_separation_m"), predicted.get("separation_p1_m")
    if least is not None and real.minimum_separation_m is not None:
        usual = "" if first is None else f", 1 % of episodes below {first:.3f} m"
        rows.append(
            ScoreRow(
                "least distance of centres",
                f"{least:.3f} m at worst{usual}",
                f"{real.minimum_separation_m:.3f} m",
                real.minimum_separation_m >= least,
            )
        )
    time_s = predicted.get("time_to_success_s")
    if time_s is not None:
        rows.append(
            ScoreRow(
                "time until all arrived",
                f"{time_s:.1f} s (median of those that succeed)",
                "-" if real.arrival_s is None else f"{real.arrival_s:.1f} s",
                None,
            )
        )
    ticks = sum(robot.ticks for robot in real.robots)
    acts = sum(robot.projected for robot in real.robots) / max(ticks, 1)
    rows.append(
        ScoreRow(
            "ticks in which the shield acts",
            f"{100 * predicted['intervention_rate']:.1f} %",
            f"{100 * acts:.1f} %",
            None,
        )
    )
    return rows


def _real_only(real: Any) -> tuple[ScoreRow, ...]:
    separation = real.minimum_separation_m
    return (
        ScoreRow("arrived", "-", f"{real.arrived} of {len(real.robots)}", None),
        ScoreRow("contacts", "-", "not recorded" if real.contacts is None else str(real.contacts), None),
        ScoreRow("least distance of centres", "-", "-" if separation is None else f"{separation:.3f} m", None),
    )
