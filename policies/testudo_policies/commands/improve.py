"""`testudo improve`: improves a policy from a real run, in one command."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from testudo_deploy.contract.shipped_policies import policy_file
from testudo_deploy.files.atomic_files import dated_folder
from testudo_deploy.launch.run_folder import FLEET_FILE, POLICY_FILE
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import parse_robot
from testudo_policies.commands.export import export_table
from testudo_policies.commands.json_output import check_output, write_output
from testudo_policies.exporting.onnx_export import ExportReport
from testudo_policies.improve.comparison import BETTER, Verdict, comparison_table, counterfactual_table
from testudo_policies.improve.fine_tuning import FineTuningComponents
from testudo_policies.improve.identification import identify_step
from testudo_policies.improve.steps import (
    MODEL,
    POLICY,
    Improvement,
    ImproveSettings,
    Method,
    components_step,
    counterfactual_step,
    evaluate_step,
    export_step,
    identified_spec,
    open_improvement,
    robot_changes,
    train_step,
)
from testudo_runs.run_reader import read_run
from testudo_sim.devices import devices

_KEPT = 1  # exit status where the old policy stays


def improve(
    run: Annotated[Path, tyro.conf.Positional],
    *,
    policy: Path,
    out: Path | None = None,
    minutes: float = 5.0,
    method: Method = "finetune",
    robot: Path | None = None,
    episodes: int = 500,
    decisions: int | None = None,
    json: Path | None = None,
) -> int:
    """Improve a policy from a real run: identify, randomise, fine-tune, compare with the old policy, export.

    Every step is saved in the output folder: after Ctrl-C the same command resumes. The new policy is exported only if
    a paired test shows that it is better than the old one, on the identified model or from states of the run, and if it
    is worse in no respect; else the exit status is 1.

    Example:
        testudo improve runs/mine --policy policy.onnx
        testudo improve runs/mine --policy policy.onnx --out better --minutes 10
        testudo improve runs/mine --policy policy.onnx --method h2o
        testudo improve runs/mine --policy policy.onnx --robot identified.toml

    Args:
        run: run folder, recorded or imported.
        policy: artefact of the old policy, which fine-tuning starts from, or the name of one that ships.
        out: output folder; default: improved/ and the time.
        minutes: time limit of fine-tuning, without compilation.
        method: `finetune` learns in the identified simulation; `h2o` also learns from the recorded transitions and
            weights simulated ones by their estimated realism.
        robot: identified robot file; by default this command identifies it from the run.
        episodes: number of held-out episodes of each comparison.
        decisions: simulated decisions of fine-tuning; default: as many as in the old policy's training.
        json: file for all results.
    """
    console = Console()
    check_output(json)
    begin = time.perf_counter()
    _check(run, minutes, episodes, decisions)
    folder = out or dated_folder("improved")
    console.print(devices().text)
    recorded = all((run / name).is_file() for name in (FLEET_FILE, POLICY_FILE))
    settings = ImproveSettings(run, policy_file(policy), folder, method, minutes, episodes, decisions)
    state = open_improvement(settings, console, read_run(run) if recorded else None)
    console.print(f"folder {folder}; after Ctrl-C the same command with --out {folder} resumes")
    if not recorded:
        console.print(
            "the run has no policy artefact and no fleet file: its starts and goals are unknown, so old and new policy "
            "are compared on the identified model only"
        )
    state.headline(1, "identify the robots of the run")
    identify_step(state, robot)
    console.print(_changes_table(state))
    verdict = _fine_tune_and_compare(state)
    console.print(Text(verdict.text))
    console.print(f"{time.perf_counter() - begin:.0f} s; numbers in {folder / 'improve.json'}")
    write_output(json, state.values, console)
    return 0 if verdict.name == BETTER else _KEPT


def _fine_tune_and_compare(state: Improvement) -> Verdict:
    """Fine-tune, compare, and export what is better."""
    console = state.console
    state.headline(2, f"fine-tune in worlds drawn from the identified intervals ({state.settings.method})")
    components = components_step(state)
    trained = train_step(state, components)
    state.headline(3, "compare old and new")
    comparisons = evaluate_step(state, components, trained)
    console.print(comparison_table(comparisons))
    verdict = Verdict.of(comparisons)
    state.keep("comparisons", [item.to_dict() for item in comparisons])
    state.headline(4, "export if it is better")
    if verdict.name == BETTER:
        report = export_step(state, components, trained, next(c.new for c in comparisons if c.name == MODEL))
        verdict = replace(verdict, regressions=_accept_candidate(state, components, report))
    state.keep("worse", list(verdict.regressions))
    state.keep("verdict", verdict.name)
    state.keep("evidence", verdict.evidence)
    return verdict


def _accept_candidate(state: Improvement, components: FineTuningComponents, report: ExportReport) -> tuple[str, ...]:
    """Rename the candidate to the final file if it is not worse in the counterfactual; return in what it is worse."""
    console, target = state.console, state.settings.folder / POLICY
    regressions = counterfactual_step(state, components, report.path)
    if state.run is not None:
        console.print(counterfactual_table(state.values["counterfactual"]))
    if regressions:
        report.path.unlink()
        return regressions
    report.path.replace(target)
    console.print(export_table(replace(report, path=target)))
    state.keep("exported", {"path": POLICY, "sha256": report.sha256})
    console.print(f"next: testudo up --policy {target} --fleet FLEET.yaml")
    return ()


def _check(run: Path, minutes: float, episodes: int, decisions: int | None) -> None:
    if not run.is_dir():
        raise TestudoError(f"{run}: no such run folder")
    if not 0 < minutes < float("inf"):
        raise TestudoError(f"--minutes: found {minutes}, expected a positive number")
    if episodes < 1:
        raise TestudoError(f"--episodes: found {episodes}, expected at least 1")
    if decisions is not None and decisions < 1:
        raise TestudoError(f"--decisions: found {decisions}, expected at least 1")


def _changes_table(state: Improvement) -> Table:
    """Return the table of changed robot parameters, and save them."""
    old = parse_robot(state.old.contract.robot_spec, str(state.settings.policy))
    changes = robot_changes(old, identified_spec(state))
    state.keep("identified", changes)
    table = Table("quantity", "old policy's robot", "identified", title="Parameters that worlds are drawn from")
    for key, change in changes.items():
        table.add_row(key, _interval(change["old"], change["unit"]), _interval(change["new"], change["unit"]))
    if not changes:
        table.add_row("no change", "", "")
    return table


def _interval(values: list[float] | None, unit: str) -> str:
    if values is None:
        return "not known"
    value, low, high = values
    return rf"{value:.4g} \[{low:.4g}, {high:.4g}] {unit}"
