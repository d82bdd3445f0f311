"""The score of a run compared with the prediction in the policy file; for other runs, why there is none."""

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
    agrees: bool | None  # None if one run can neither confirm nor refute it


@dataclass(frozen=True)
class ScoreComparison:
    """Predicted against real score of a run."""

    rows: tuple[ScoreRow, ...]
    note: str  # episodes of the prediction, or why there is none


def score(recording: Recording) -> ScoreComparison:
    """Return the evaluation in the policy file and the recorded score."""
    if (
        recording.info.get("kind") == IMPORTED
        or recording.folder is None
        or not (recording.folder / FLEET_FILE).is_file()
    ):
        return ScoreComparison(
            (), "The run has no policy, so there is no predicted score: it was imported, not recorded by `testudo up`."
        )
    try:
        run = read_run(recording.folder)
        contract = PolicyArtefact.load(run.policy_path, sha256=run.policy_sha256).contract
    except TestudoError as error:
        return ScoreComparison((), f"The run's policy cannot be read, so there is no predicted score: {error}")
    return score_of(run, contract, contract.evaluation)


def score_of(run: RecordedRun, contract: Any, evaluation: Mapping[str, Any]) -> ScoreComparison:
    """Return the recorded score and an evaluation by team size, as in a contract."""
    section = FleetSection(run, contract)
    real = summarise_fleet(section)
    known = [size for size, values in evaluation.items() if size.isdecimal() and set(values) >= _NEEDED]
    if not known:
        separation = real.minimum_separation_m
        return ScoreComparison(
            (
                ScoreRow("arrived", "-", f"{real.arrived} of {len(real.robots)}", None),
                ScoreRow("contacts", "-", "not recorded" if real.contacts is None else str(real.contacts), None),
                ScoreRow("least distance of centres", "-", "-" if separation is None else f"{separation:.3f} m", None),
            ),
            "The policy file has no evaluation by team size, so there is no predicted score: run `testudo evaluate "
            "--json` before `testudo export`.",
        )
    sizes = sorted(known, key=lambda size: (abs(int(size) - len(run.robots)), int(size)))
    predicted = evaluation[sizes[0]]
    return ScoreComparison(
        (*_outcome_rows(real, predicted), *_motion_rows(real, predicted)),
        f"Predicted: {predicted['episodes']} held-out episodes of {sizes[0]} robots in "
        "simulation. One run confirms a rate only if it is near 0 or 1.",
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
        measured = real.minimum_separation_m
        predicted_text = f"{least:.3f} m at worst{usual}"
        rows.append(ScoreRow("least distance of centres", predicted_text, f"{measured:.3f} m", measured >= least))
    time_s = predicted.get("time_to_success_s")
    if time_s is not None:
        arrived = "-" if real.arrival_s is None else f"{real.arrival_s:.1f} s"
        median = f"{time_s:.1f} s (median of those that succeed)"
        rows.append(ScoreRow("time until all arrived", median, arrived, None))
    ticks = sum(robot.ticks for robot in real.robots)
    acts = sum(robot.projected for robot in real.robots) / max(ticks, 1)
    share = f"{100 * predicted['intervention_rate']:.1f} %"
    return [*rows, ScoreRow("ticks in which the shield acts", share, f"{100 * acts:.1f} %", None)]
